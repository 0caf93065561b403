import { z } from "zod";
import { counter, entryId, instant, name } from "./record-fields.js";

const origin = z.union([z.strictObject({ lineageId: z.string().min(1) }), z.strictObject({ entryId })]);

/**
 * What an entry was made from: a version or another entry (L1).
 *
 * - `alternative`: the same content; one living alternative is enough (L5).
 * - `ingredient`: one of several it was made of; all must live, and be visible to the asker. Parents of one `ingredient`
 *   number are alternatives of each other, every number must live.
 */
const entryParent = z.strictObject({
  as: z.enum(["alternative", "ingredient"]),
  ingredient: counter,
  of: origin,
});

/** Something derived from resources, recorded before it is written to its store (L1, L2). */
export const derivedEntry = z.strictObject({
  record: z.literal("derivedEntry.v1"),
  /** Never reused. */
  entryId,
  kind: z.enum(["chunk", "vector", "document", "embedding", "summary", "answer"]),
  index: name,
  store: name,
  parents: z.array(entryParent).min(1),
  /** Set if it was made for one audience alone (an answer, a cache): revoking that audience purges it (P3). */
  audience: name.nullable(),
  /** Where it is physically: of its whole group of entries with the same roots. Who sees it is decided by edges and grants. */
  state: z.enum(["INTENT", "PRESENT", "ABANDONED", "PURGING", "PURGED"]),
  recordedAt: instant,
});
export type DerivedEntry = z.infer<typeof derivedEntry>;
