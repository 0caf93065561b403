import { z } from "zod";
import { receiptFields, resourceKeyText } from "./receipt-fields.js";
import { counter } from "./record-fields.js";

/**
 * That a resource was found gone (F7).
 *
 * | state | means |
 * | --- | --- |
 * | `PENDING` | the server answered "not found": hidden at once, not yet deleted |
 * | `HELD` | it did, and the floor holds the removal back (S8): still shown |
 * | `CONFIRMED` | a second "not found", or its absence from a settled scan, confirmed the deletion |
 */
export const tombstoneReceipt = z.strictObject({
  record: z.literal("tombstoneReceipt.v1"),
  ...receiptFields,
  uri: resourceKeyText,
  state: z.enum(["PENDING", "HELD", "CONFIRMED"]),
  /** Of the read that was answered, or the newest accepted one where a scan confirmed it. */
  readOrdinal: counter.nullable(),
  /** What confirmed it; `null` until something did. */
  because: z.string().min(1).nullable(),
});
export type TombstoneReceipt = z.infer<typeof tombstoneReceipt>;
