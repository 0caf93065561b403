import { z } from "zod";
import { isClosing, isOfActiveFamily, lifecycleStates, shownStates } from "../subscription-state.js";
import { contentDigest, counter, instant, ledgerId, name, serverImplementation } from "./record-fields.js";

/** One resource watched for one reader (spec section 3): where it stands in its life, and the counters that fence it. */
export const resourceSubscription = z
  .strictObject({
    record: z.literal("resourceSubscription.v1"),
    subscriptionId: ledgerId,
    source: name,
    /** The reader. Another reader of the same URI has a subscription of its own (F11). */
    subject: name,
    server: serverImplementation.nullable(),
    /** The resource key (F10). */
    uri: z.string().min(1),
    /** The session it was last asked for under; its end does not end the subscription (F6). */
    sessionId: ledgerId.nullable(),
    capabilityReceiptId: ledgerId.nullable(),
    /** Rises when a closed or unclear subscription is opened again, and only then. */
    generation: z.int().positive(),
    lifecycle: z.enum(lifecycleStates),
    /** `lifecycle`, with the ACTIVE family spelled out by `shownState`. */
    state: z.enum(shownStates),
    /** `polled`: not acknowledged, read on a timer; it never looks subscribed (U3). */
    mode: z.enum(["pushed", "polled"]),
    startedAt: instant,
    endedAt: instant.nullable(),
    /** Of the last notification; assigned here, since the protocol has none. */
    notificationNumber: counter,
    issuedOrdinal: counter,
    acceptedOrdinal: counter,
    /** `null`: the next accepted read makes a version even if its content is unchanged (F6). */
    lastAcceptedDigest: contentDigest.nullable(),
    verifiedAt: instant.nullable(),
    /** The last ordinal issued before the close; none is issued after it (U7). */
    closeOrdinal: counter.nullable(),
    closeEpoch: counter.nullable(),
  })
  .refine(({ acceptedOrdinal, issuedOrdinal }) => acceptedOrdinal <= issuedOrdinal, {
    path: ["acceptedOrdinal"],
    error: "is above issuedOrdinal (F3)",
  })
  .refine(({ lifecycle, state }) => lifecycle === state || (lifecycle === "ACTIVE" && isOfActiveFamily(state)), {
    path: ["state"],
    error: "is not how the lifecycle is shown",
  })
  .refine(({ lifecycle, closeOrdinal }) => isClosing(lifecycle) === (closeOrdinal !== null), {
    path: ["closeOrdinal"],
    error: "is set exactly from the beginning of a close on (U7)",
  })
  .refine(({ closeOrdinal, issuedOrdinal }) => closeOrdinal === null || closeOrdinal === issuedOrdinal, {
    path: ["closeOrdinal"],
    error: "differs from issuedOrdinal: a read was issued after the close (U7)",
  });
export type ResourceSubscription = z.infer<typeof resourceSubscription>;
