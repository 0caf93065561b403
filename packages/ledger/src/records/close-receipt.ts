import { z } from "zod";
import { receiptFields, resourceKeyText } from "./receipt-fields.js";
import { counter, ledgerId } from "./record-fields.js";

/** That a subscription began to close, closed, or was left with its unsubscription unanswered (U7, U9). */
export const closeReceipt = z.strictObject({
  record: z.literal("closeReceipt.v1"),
  ...receiptFields,
  uri: resourceKeyText,
  state: z.enum(["UNSUBSCRIBING", "CLOSED", "UNSUBSCRIBE_UNKNOWN"]),
  /** The event of the state machine that led there; `null` for what was there before transitions were recorded. */
  event: z.string().min(1).nullable(),
  /** The revocation it was closed for; `null`: for none. */
  revocationId: ledgerId.nullable(),
  /** Of the subscription that closed. */
  generation: z.int().positive().nullable(),
  /** The last ordinal issued before the close began; none is issued after it. */
  closeOrdinal: counter.nullable(),
  /** The policy epoch at which the close began. */
  closeEpoch: counter.nullable(),
});
export type CloseReceipt = z.infer<typeof closeReceipt>;
