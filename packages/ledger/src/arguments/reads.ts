import { z } from "zod";
import { type ArgumentsOf, count, leaseMs, session, storableText, uri } from "../input.js";
import type { ReadLedger } from "../reads.js";
import { areReadAnswers, oneOfEachSubscription, readAnswers, readRef } from "./read-answers.js";

const settledRead = z.object({
  ...readRef,
  as: z.enum(["lost", "failed", "empty", "too_large", "not_found", "forbidden", "unauthorized"]),
  message: storableText.optional(),
});

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
    ["answers", readAnswers, areReadAnswers],
  ],
  settleReads: [
    ["session", session],
    ["reads", z.array(settledRead).check(oneOfEachSubscription)],
  ],
};
