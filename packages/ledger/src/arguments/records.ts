import { z } from "zod";
import { type ArgumentsOf, count, entryId, id, name } from "../input.js";
import { receiptRecordNames } from "../ledger-receipts.js";
import type { RecordLedger } from "../record-ledger.js";

/** What the calls of `RecordLedger` take. */
export const recordArguments: ArgumentsOf<RecordLedger> = {
  scanRecord: [["scanId", id]],
  subscriptionRecord: [["subscriptionId", id]],
  versionRecord: [["lineageId", name]],
  capabilityRecord: [["capabilityReceiptId", id]],
  entryRecord: [["entryId", entryId]],
  revocationRecord: [["revocationId", id]],
  purgeRecord: [["purgeReceiptId", id]],
  receipts: [
    [
      "page",
      z.object({ after: name.optional(), limit: count, kinds: z.array(z.enum(receiptRecordNames)).min(1).optional() }),
    ],
  ],
};
