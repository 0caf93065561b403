import { z } from "zod";
import {
  type ArgumentsOf,
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
});

/** What the calls of `ScanLedger` take. */
export const scanArguments: ArgumentsOf<ScanLedger> = {
  beginScan: [["session", session]],
  recordScanPage: [
    ["session", session],
    ["scanId", id],
    ["page", z.object({ cursorDigest: digest, entries: z.array(entry) })],
  ],
  finishScan: [
    ["session", session],
    ["scanId", id],
    [
      "end",
      z.discriminatedUnion("complete", [
        z.object({ complete: z.literal(true), snapshotIdDigest: digest.optional() }),
        z.object({ complete: z.literal(false), verdict: z.enum(["INCOMPLETE", "VOID"]), reason: storableText }),
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
        floor: z.object({ count: ordinal, share }).optional(),
        reviewMs: milliseconds.optional(),
      }),
    ],
  ],
  publishUnsettled: [
    ["session", session],
    ["scans", z.object({ first: id, second: id })],
  ],
  recordListChanged: [["session", session]],
  heldRemovals: [],
  confirmRemoval: [
    ["heldRemovalId", id],
    ["confirmedBy", name],
  ],
};
