import { z } from "zod";
import { uriScope } from "../uri-scope.js";
import { instant, ledgerId, name } from "./record-fields.js";

/**
 * That an audience may see what a reader read (G1). The reader itself needs none, and without one nobody else sees
 * anything. It never outweighs a revocation (G2).
 */
export const grant = z.strictObject({
  record: z.literal("grant.v1"),
  grantId: ledgerId,
  source: name,
  reader: name,
  /** A user or a group: `user:alice`, `group:sales`. */
  audience: name,
  scope: uriScope,
  /** How it was given; what leaves the configuration is withdrawn. */
  origin: z.enum(["config", "api", "cli"]),
  grantedAt: instant,
  withdrawnAt: instant.nullable(),
});
