import { z } from "zod";
import { receiptFields, resourceKeyText } from "./receipt-fields.js";
import { counter } from "./record-fields.js";

/**
 * That an answer came and changed nothing: the only trace a loser leaves (F4, U8).
 *
 * | verdict | means |
 * | --- | --- |
 * | `STALE` | older than what was accepted, or of an older session or generation (F4) |
 * | `STALE_AFTER_CLOSE` | the subscription had begun to close (U8) |
 * | `NOT_ISSUED` | no such read was issued, or it was settled before (F9) |
 * | `REVOKED` | a standing revocation covers the resource (P2) |
 */
export const staleReceipt = z.strictObject({
  record: z.literal("staleReceipt.v1"),
  ...receiptFields,
  /** `null`: the answer named a subscription that is none of this source and subject. */
  uri: resourceKeyText.nullable(),
  /** As the answer named it. */
  readOrdinal: counter,
  verdict: z.enum(["STALE", "STALE_AFTER_CLOSE", "NOT_ISSUED", "REVOKED"]),
  /** Generation of the session that handed the answer over. */
  sessionGeneration: counter.nullable(),
});
export type StaleReceipt = z.infer<typeof staleReceipt>;
