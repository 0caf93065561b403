import { z } from "zod";
import {
  type ArgumentsOf,
  count,
  entryId,
  id,
  leaseMs,
  name,
  ordinal,
  scope,
  session,
  storableText,
  uuid,
} from "../input.js";
import type { RevocationLedger } from "../revocations.js";

/** What a person has to have written. */
const written = storableText.refine((text) => text.trim() !== "", { error: "expected text that is not empty" });

const claims = z.array(z.object({ groupId: id, claimToken: uuid }));

/** What the calls of `RevocationLedger` take. */
export const revocationArguments: ArgumentsOf<RevocationLedger> = {
  revoke: [
    [
      "request",
      z.object({
        requestId: name.optional(),
        source: name.optional(),
        subject: name.refine((text) => text.trim() !== "", { error: "expected text that is not empty" }),
        role: z.enum(["reader", "audience", "both"]).optional(),
        scope: scope.optional(),
        reason: written,
        requestedBy: name.optional(),
      }),
    ],
  ],
  revokeForbidden: [
    ["session", session],
    ["reads", z.array(z.object({ subscriptionId: id, ordinal }))],
  ],
  lift: [["revocationId", id]],
  revocation: [["revocationId", id]],
  listRevocations: [["filter", z.object({ open: z.boolean().optional() }).optional()]],
  advanceRevocation: [
    ["revocationId", id],
    ["options", z.object({ limit: count.optional() }).optional()],
  ],
  revocationsToAdvance: [],
  claimPurge: [["request", z.object({ store: name, limit: count, leaseMs })]],
  confirmPurge: [
    ["store", name],
    ["claims", claims],
    ["proof", z.object({ claim: z.enum(["absent", "erased"]), reappeared: z.array(entryId).optional() })],
  ],
  releasePurge: [
    ["store", name],
    ["claims", claims],
    ["failure", storableText],
  ],
  purgeReceipts: [["revocationId", id.optional()]],
};
