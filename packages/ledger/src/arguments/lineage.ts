import { z } from "zod";
import {
  type ArgumentsOf,
  chunkDigest,
  count,
  entryId,
  id,
  leaseMs,
  name,
  oneOfEach,
  ordinal,
  storableText,
  uri,
  uuid,
} from "../input.js";
import type { OwnCalls } from "../lineage.js";
import { contentFinding } from "../records/content-finding.js";

/** An index as it was registered. */
export const index = z.object({ indexId: count });
/** Work that was claimed, as it came. */
export const work = z.object({ subscriptionId: id, ordinal, claimToken: uuid });
const group = z.object({ groupId: id, partId: id });

/** What the calls of `LineageLedger` take, without those of its other areas. */
export const lineageArguments: ArgumentsOf<OwnCalls> = {
  claimIndexWork: [
    ["index", index],
    ["page", z.object({ limit: count, leaseMs })],
  ],
  renewIndexWork: [
    ["index", index],
    ["claimed", z.array(work)],
    ["lease", z.object({ leaseMs })],
  ],
  releaseIndexWork: [
    ["index", index],
    ["work", work],
    ["failure", storableText.optional()],
  ],
  recordIntents: [
    ["index", index],
    ["intents", z.array(z.object({ work, partId: id, chunkDigests: z.array(chunkDigest).min(1) }))],
    ["options", z.object({ writerLeaseMs: leaseMs })],
  ],
  recordFindings: [
    [
      "versions",
      z
        .array(
          z.object({
            work: z.object({ subscriptionId: id, ordinal }),
            findings: z.array(contentFinding.extend({ uri, detector: name.optional() })).max(1_000),
          }),
        )
        .check(oneOfEach(({ work: { subscriptionId } }) => subscriptionId, "work.subscriptionId")),
    ],
  ],
  recordStoreKeys: [["keys", z.array(z.object({ entryId, storeKey: storableText }))]],
  confirmVersions: [
    ["index", index],
    [
      "versions",
      z
        .array(z.object({ work, written: z.array(group), reused: z.array(entryId) }))
        .check(oneOfEach(({ work: { subscriptionId } }) => subscriptionId, "work.subscriptionId")),
    ],
  ],
  abandonIntents: [["groupIds", z.array(id)]],
};
