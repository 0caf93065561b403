import { z } from "zod";
import {
  type ArgumentsOf,
  after,
  count,
  digest,
  entryId,
  hexDigest,
  id,
  leaseMs,
  name,
  oneOfEach,
  ordinal,
  storableText,
  uuid,
} from "../input.js";
import type { LineageLedger } from "../lineage.js";

const index = z.object({ indexId: count });
/** Work that was claimed, as it came. */
const work = z.object({ subscriptionId: id, ordinal, claimToken: uuid });
const group = z.object({ groupId: id, partId: id });

/** What the calls of `LineageLedger` take. */
export const lineageArguments: ArgumentsOf<LineageLedger> = {
  registerStore: [["store", z.object({ name, kind: name })]],
  registerIndex: [
    ["index", z.object({ name, version: count, store: name, embeddings: name, configurationDigest: digest })],
  ],
  findIndex: [["name", name]],
  servingIndex: [["name", name]],
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
    ["intents", z.array(z.object({ work, partId: id, chunkDigests: z.array(hexDigest).min(1) }))],
    ["options", z.object({ writerLeaseMs: leaseMs })],
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
  exportVersions: [
    [
      "page",
      z.object({ source: name, reader: name, destination: storableText, limit: count, afterId: after.optional() }),
    ],
  ],
};
