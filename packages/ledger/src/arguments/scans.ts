import { z } from "zod";
import {
  type ArgumentsOf,
  count,
  digest,
  id,
  milliseconds,
  name,
  ordinal,
  session,
  share,
  storableText,
  uri,
} from "../input.js";
import type { ScanLedger } from "../scans.js";

const entry = z.object({
  uri,
  name: storableText.optional(),
  title: storableText.optional(),
  mimeType: storableText.optional(),
  descriptorDigest: digest,
  uriTemplate: storableText.optional(),
});

const faults = z
  .array(z.object({ uri: storableText.optional(), code: storableText, message: storableText }))
  .max(1_000)
  .optional();

/** `RemovalFloor`. */
export const removalFloor = z.object({ count: ordinal, share });

/** What the calls of `ScanLedger` take. */
export const scanArguments: ArgumentsOf<ScanLedger> = {
  beginScan: [
    ["session", session],
    [
      "options",
      z
        .object({
          templates: z.boolean().optional(),
          budgets: z.object({ pages: count, entries: id, bytes: id }).partial().optional(),
        })
        .optional(),
    ],
  ],
  recordScanPage: [
    ["session", session],
    ["scanId", id],
    [
      "page",
      z.object({
        cursorDigest: digest,
        nextCursorDigest: digest.nullable().optional(),
        list: z.enum(["resources", "templates"]).optional(),
        entries: z.array(entry),
        pageDigest: digest.optional(),
        snapshotIdDigest: digest.optional(),
      }),
    ],
  ],
  finishScan: [
    ["session", session],
    ["scanId", id],
    [
      "end",
      z.discriminatedUnion("complete", [
        z.object({ complete: z.literal(true), faults }),
        z.object({ complete: z.literal(false), verdict: z.enum(["INCOMPLETE", "VOID"]), reason: storableText, faults }),
      ]),
    ],
  ],
  publishCatalog: [
    ["session", session],
    [
      "scans",
      z.object({
        first: id,
        second: id,
        floor: removalFloor.optional(),
        reviewMs: milliseconds.optional(),
      }),
    ],
  ],
  publishUnsettled: [
    ["session", session],
    ["scans", z.object({ first: id, second: id, attempts: count.optional() })],
  ],
  recordListChanged: [["session", session]],
  millisecondsToNextReview: [["session", session]],
  scansDue: [["options", z.object({ limit: count.optional() }).optional()]],
  listedTemplates: [
    ["request", z.object({ source: name, reader: name, limit: count, after: storableText.optional() })],
  ],
  heldRemovals: [],
  confirmRemoval: [
    ["heldRemovalId", id],
    ["confirmedBy", name],
  ],
};
