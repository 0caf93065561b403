import { z } from "zod";
import {
  type ArgumentsOf,
  count,
  digest,
  leaseMs,
  oneOfEach,
  ordinal,
  session,
  storableText,
  uri,
  uuid,
} from "../input.js";
import type { ReadLedger } from "../reads.js";

const readRef = { subscriptionId: ordinal, ordinal, requestId: uuid };

const part = z
  .object({
    uri,
    mimeType: storableText.optional(),
    text: storableText.optional(),
    bytes: z.instanceof(Uint8Array).optional(),
  })
  .refine(({ text, bytes }) => (text === undefined) !== (bytes === undefined), {
    path: ["text"],
    error: "expected either text or bytes",
    params: { isContent: true },
  });

const answer = z.object({ ...readRef, digest, mimeType: storableText.optional(), parts: z.array(part) });

const settledRead = z.object({
  ...readRef,
  as: z.enum(["lost", "failed", "empty", "too_large", "not_found", "forbidden", "unauthorized"]),
  message: storableText.optional(),
});

const oneOfEachSubscription = oneOfEach<{ subscriptionId: number }>((read) => read.subscriptionId, "subscriptionId");

/** What the calls of `ReadLedger` take. */
export const readArguments: ArgumentsOf<ReadLedger> = {
  issueDueReads: [
    ["session", session],
    ["page", z.object({ limit: count, leaseMs })],
  ],
  issueReads: [
    ["session", session],
    [
      "request",
      z.object({
        uris: z.array(uri),
        reason: z.enum(["first", "notified", "stream_opened", "timer", "vanished", "reopened", "demand"]),
        leaseMs,
      }),
    ],
  ],
  millisecondsToNextRead: [["session", session]],
  acceptResourceVersions: [
    ["session", session],
    ["answers", z.array(answer).check(oneOfEachSubscription)],
  ],
  settleReads: [
    ["session", session],
    ["reads", z.array(settledRead).check(oneOfEachSubscription)],
  ],
};
