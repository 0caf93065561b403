import { z } from "zod";
import type { DerivationLedger } from "../derivations.js";
import { type ArgumentsOf, chunkDigest, entryId, id, leaseMs, name, oneOfEach, uri } from "../input.js";
import { derivedEntry } from "../records/derived-entry.js";
import { index, work } from "./lineage.js";

/** One that names no version of this ledger is unknown, like one of another ledger. */
const lineageId = z.string();
const of = z.union([z.strictObject({ lineageId, part: uri.optional() }), z.strictObject({ entryId })]);
const parent = z.discriminatedUnion("as", [
  z.strictObject({ as: z.literal("ingredient"), of }),
  z.strictObject({ as: z.literal("alternative"), of, ingredient: z.int().nonnegative().optional() }),
]);
const chunkDigests = z.array(chunkDigest);
const options = z.object({ leaseMs });

/** What the calls of `DerivationLedger` take. */
export const derivationArguments: ArgumentsOf<DerivationLedger> = {
  recordDerived: [
    ["index", index],
    [
      "derivations",
      z.array(
        z.object({
          kind: derivedEntry.shape.kind.exclude(["embedding"]),
          parents: z.array(parent).min(1),
          digests: chunkDigests.min(1),
          audience: name.optional(),
        }),
      ),
    ],
    ["options", options],
  ],
  confirmDerived: [["groupIds", z.array(id).check(oneOfEach((groupId) => groupId, "group id"))]],
  cachedEmbeddings: [
    ["cache", index],
    ["of", z.object({ work, partId: id, chunkDigests })],
  ],
  attachEmbeddings: [
    ["cache", index],
    ["work", work],
    ["entryIds", z.array(entryId)],
  ],
  recordEmbeddings: [
    ["cache", index],
    ["parts", z.array(z.object({ work, partId: id, chunkDigests: chunkDigests.min(1) }))],
    ["options", options],
  ],
};
