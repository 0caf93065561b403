import { z } from "zod";
import { instant, ledgerId, name, serverImplementation } from "./record-fields.js";

/** What was negotiated with a server in one session (U1): later steps use this, not what the server might be able to do. */
export const capabilityReceipt = z
  .strictObject({
    record: z.literal("capabilityReceipt.v1"),
    capabilityReceiptId: ledgerId,
    source: name,
    subject: name,
    sessionId: ledgerId,
    /** `modern`: 2026-07-28 and later (`subscriptions/listen`); `legacy`: `resources/subscribe` (U2). */
    era: z.enum(["modern", "legacy"]),
    /** As the server negotiated it: a date, but for servers that never heard so. */
    protocolVersion: z.string().min(1),
    server: serverImplementation.nullable(),
    /** Without it nothing is asked for, and the source is unknown, not empty (S9). */
    resources: z.boolean(),
    subscribe: z.boolean(),
    listChanged: z.boolean(),
    /** The extension by which pages bind a snapshot id (S3). */
    snapshotId: z.boolean(),
    negotiatedAt: instant,
  })
  .refine(({ resources, subscribe, listChanged }) => resources || !(subscribe || listChanged), {
    path: ["resources"],
    error: "is what subscribe and listChanged are options of (U1)",
  });
export type CapabilityReceipt = z.infer<typeof capabilityReceipt>;
