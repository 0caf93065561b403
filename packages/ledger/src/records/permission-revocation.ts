import { z } from "zod";
import { uriScope } from "../uri-scope.js";
import { counter, instant, ledgerId, name } from "./record-fields.js";

/**
 * A permission taken back (P1). In effect from `effectiveAt`, when its row was committed, until it is lifted (P2); `state`
 * says only how far the removal has come.
 *
 * | state | means |
 * | --- | --- |
 * | `EFFECTIVE` | hidden; subscriptions are being closed, entries removed (P5: open until every store has answered) |
 * | `COMPLETE_EXCEPT_EXPORTS` | every store verified; exports out of reach are not yet acknowledged (L6) |
 * | `COMPLETE` | every store verified, every export acknowledged |
 * | `LIFTED` | no longer in effect |
 */
export const permissionRevocation = z
  .strictObject({
    record: z.literal("permissionRevocation.v1"),
    revocationId: ledgerId,
    /** Asking again with the same id and contents answers with this revocation. */
    requestId: z.string().min(1),
    /** `null`: every source. */
    source: name.nullable(),
    subject: name,
    /** As what the subject loses: `both` unless asked by role. */
    role: z.enum(["reader", "audience", "both"]),
    scope: uriScope,
    reason: z.string().min(1),
    requestedBy: name,
    requestedAt: instant,
    effectiveAt: instant,
    completedAt: instant.nullable(),
    liftedAt: instant.nullable(),
    state: z.enum(["EFFECTIVE", "COMPLETE_EXCEPT_EXPORTS", "COMPLETE", "LIFTED"]),
    /** It covered nothing known when asked for, and stands nevertheless: answered as `NOTHING_COVERED` (P1). */
    nothingCovered: z.boolean(),
    covered: z.strictObject({ resources: counter, entries: counter }),
  })
  .refine(({ state, liftedAt }) => (state === "LIFTED") === (liftedAt !== null), {
    path: ["liftedAt"],
    error: "is set exactly when lifted",
  })
  .refine(({ state, completedAt }) => state !== "COMPLETE" || completedAt !== null, {
    path: ["completedAt"],
    error: "is missing",
  });
export type PermissionRevocation = z.infer<typeof permissionRevocation>;
