import { z } from "zod";
import { receiptFields, resourceKeyText } from "./receipt-fields.js";

/** That content was accepted as a new version (F3). The version itself may be gone by now; its digest is not here (P8). */
export const versionReceipt = z.strictObject({
  record: z.literal("versionReceipt.v1"),
  ...receiptFields,
  uri: resourceKeyText,
  lineageId: z.string().min(1),
  readOrdinal: z.int().positive(),
  /** Of the subscription. */
  generation: z.int().positive(),
  /** Nothing newer had been announced when it was accepted; whether it is current now is derived when asked. */
  currentWhenAccepted: z.boolean(),
});
export type VersionReceipt = z.infer<typeof versionReceipt>;
