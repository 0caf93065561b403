import { z } from "zod";

/**
 * One thing that was found in a version before it was cut into chunks (spec §5), or the reason why a part of it was not. Codes and
 * counts only: it stays with the version when a purge took the content (P8).
 */
export const contentFinding = z.strictObject({
  /** Of the part (F5). */
  uri: z.string().min(1),
  code: z.string().regex(/^[a-z0-9_]+$/, "expected a code: letters, digits and _"),
  /** `left_out`: there was no text to look at. `reject`: what was found keeps the part out of every index. */
  action: z.enum(["flag", "strip", "reject", "left_out"]),
  /** How often, where that is counted. */
  count: z.int().nonnegative().optional(),
  /** Name of the detector that found it. */
  detector: z.string().min(1).optional(),
});
export type ContentFinding = z.infer<typeof contentFinding>;
