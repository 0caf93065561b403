import { z } from "zod";
import { type ArgumentsOf, after, count, id, milliseconds, ordinal, session, uri } from "../input.js";
import type { SubscriptionLedger } from "../subscriptions.js";

const shard = ordinal.max(2 ** 31 - 1);

/** What the calls of `SubscriptionLedger` take. */
export const subscriptionArguments: ArgumentsOf<SubscriptionLedger> = {
  subscriptionsToOpen: [
    ["session", session],
    ["page", z.object({ limit: count, afterId: after.optional() })],
  ],
  templatesInUse: [["session", session]],
  subscriptionsStillOpen: [
    ["session", session],
    ["subscriptionIds", z.array(id)],
  ],
  openStream: [
    ["session", session],
    ["shard", shard],
  ],
  breakStream: [
    ["session", session],
    ["shard", shard],
  ],
  activateSubscriptions: [
    ["session", session],
    [
      "answer",
      z
        .object({ shard, pushed: z.array(id), polled: z.array(id) })
        .refine(({ pushed, polled }) => new Set([...pushed, ...polled]).size === pushed.length + polled.length, {
          path: ["pushed"],
          error: "expected each subscription once, as pushed or as polled",
        }),
    ],
  ],
  recordNotifications: [
    ["session", session],
    ["uris", z.array(uri)],
    ["options", z.object({ windowMs: milliseconds.optional() }).optional()],
  ],
  beginUnsubscribe: [
    ["session", session],
    ["uris", z.array(uri)],
    ["options", z.object({ excluded: z.boolean().optional() }).optional()],
  ],
  subscriptionsToSettle: [
    ["session", session],
    ["page", z.object({ limit: count, afterId: after.optional() })],
  ],
  settleUnsubscribe: [
    ["session", session],
    ["subscriptionIds", z.array(id)],
    ["answer", z.enum(["acknowledged", "unknown"])],
  ],
};
