import { z } from "zod";
import type { ExportLedger } from "../exports.js";
import { type ArgumentsOf, after, count, entryId, id, name, storableText } from "../input.js";

/** What the calls of `ExportLedger` take. */
export const exportArguments: ArgumentsOf<ExportLedger> = {
  exportVersions: [
    [
      "page",
      z.object({ source: name, reader: name, destination: storableText, limit: count, afterId: after.optional() }),
    ],
  ],
  exportEntries: [
    ["request", z.object({ index: name, entryIds: z.array(entryId), asker: z.array(name), destination: storableText })],
  ],
  exports: [
    [
      "filter",
      z
        .object({
          after: after.optional(),
          open: z.boolean().optional(),
          revocationId: id.optional(),
          limit: count.optional(),
        })
        .optional(),
    ],
  ],
  acknowledgeExport: [["exportId", id]],
};
