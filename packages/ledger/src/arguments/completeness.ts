import { z } from "zod";
import type { CompletenessLedger } from "../completeness.js";
import { type ArgumentsOf, name, session, storableText } from "../input.js";
import { removalFloor } from "./scans.js";

/** Whether it is proven is no matter of form: a forced one is refused as `snapshot_not_proven`. */
const snapshot = z.unknown();

const blank = { error: "expected text that is not empty" };
const notBlank = storableText.refine((text) => text.trim() !== "", blank);

/** What the calls of `CompletenessLedger` take. */
export const completenessArguments: ArgumentsOf<CompletenessLedger> = {
  provenSnapshot: [["session", session]],
  removeAbsent: [
    ["session", session],
    ["snapshot", snapshot],
    ["options", z.object({ floor: removalFloor.optional() }).optional()],
  ],
  revokeByEnumeration: [
    ["session", session],
    ["snapshot", snapshot],
    [
      "request",
      z.object({
        // A slash and a digest follow it in the id of each revocation.
        requestId: name.max(440).refine((text) => text.trim() !== "", blank),
        reason: notBlank,
        requestedBy: name.optional(),
        subject: name.refine((text) => text.trim() !== "", blank).optional(),
        role: z.enum(["reader", "audience", "both"]).optional(),
        floor: removalFloor.optional(),
      }),
    ],
  ],
};
