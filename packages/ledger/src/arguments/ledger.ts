import { z } from "zod";
import { id, milliseconds, name, ordinal, share } from "../input.js";

/** `Wake`. */
export const wakeArgument = z.discriminatedUnion("kind", [
  z.object({ kind: z.literal("revocation"), revocationId: id }),
  z.object({ kind: z.enum(["read", "discovery"]), source: name, reader: name }),
  z.object({ kind: z.literal("index"), index: name }),
]);

/** `ReadTiming`. */
export const readTimingArgument = z.object({
  polledIntervalMs: milliseconds,
  pushedIntervalMs: milliseconds,
  jitter: share,
  notificationWindowMs: milliseconds,
  retryMs: milliseconds,
  retryMaxMs: milliseconds,
  notFoundSpacingMs: milliseconds,
  removalFloorCount: ordinal,
  removalFloorShare: share,
  catalogReviewMs: milliseconds,
});
