import { z } from "zod";
import type { AuditLedger } from "../audit.js";
import { type ArgumentsOf, count, entryId, name, uri } from "../input.js";

/** What the calls of `AuditLedger` take. */
export const auditArguments: ArgumentsOf<AuditLedger> = {
  trace: [["of", z.union([z.strictObject({ uri }), z.strictObject({ entry: entryId })])]],
  verify: [],
  status: [],
  recordedEntries: [
    ["index", name],
    ["page", z.object({ limit: count, afterId: entryId.optional() })],
  ],
  standingOfEntries: [
    ["index", name],
    ["entryIds", z.array(entryId)],
  ],
  requeueLostEntries: [
    ["index", name],
    ["entryIds", z.array(entryId)],
  ],
};
