/**
 * The snapshot-id extension (S3; `docs/snapshot-id.md`): a server that names the state of its lists on every page of them, so that
 * pages of one state can be told from pages of several.
 */
import { digestFields } from "./canonical-digest.js";

/** Names the extension in `capabilities.extensions` of both sides, and the id in the `_meta` of a result. */
export const SNAPSHOT_ID_EXTENSION = "io.fenceline/snapshot-id";

/** Longer ones are none. */
const MAX_ID_LENGTH = 1_024;

/** The id that a result binds; `undefined`: none, or none that the extension allows. */
export function snapshotIdIn(meta: Readonly<Record<string, unknown>> | undefined): string | undefined {
  const id = meta?.[SNAPSHOT_ID_EXTENSION];
  return typeof id === "string" && id.length > 0 && id.length <= MAX_ID_LENGTH ? id : undefined;
}

/** What the ledger keeps of an id: of the part of a list that is chosen, since another part is another set under the same id. */
export function snapshotIdDigest(id: string, choice: Uint8Array): Uint8Array {
  return digestFields("snapshot id", [id, choice]);
}
