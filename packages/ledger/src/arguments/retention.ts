import { z } from "zod";
import { type ArgumentsOf, count, milliseconds } from "../input.js";
import type { RetentionLedger } from "../retention.js";

/** Leases, claims and the writes of indexing end within it. */
const LEAST_AGE_MS = 600_000;

const age = z.union([milliseconds.min(LEAST_AGE_MS), z.literal("forever")]).optional();

/** What the calls of `RetentionLedger` take. */
export const retentionArguments: ArgumentsOf<RetentionLedger> = {
  prune: [
    [
      "policy",
      z
        .strictObject({
          receiptsMs: age,
          readsMs: age,
          purgedGroupsMs: age,
          versionsMs: age,
          scansMs: age,
          sessionsMs: age,
          purgeReceiptsMs: age,
          acknowledgedExportsMs: age,
        })
        .optional(),
    ],
    [
      "options",
      z
        .object({
          batchSize: count.optional(),
          signal: z.instanceof(AbortSignal).optional(),
          onProgress: z.custom<() => void>((value) => typeof value === "function").optional(),
        })
        .optional(),
    ],
  ],
  maintain: [],
};
