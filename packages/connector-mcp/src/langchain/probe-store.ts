import { randomUUID } from "node:crypto";
import { FencelineError } from "@fenceline/ledger";
import { connectorError } from "../errors.js";
import type { BoundedStore, EntryRef } from "./bounded-store.js";
import type { StoreEntry } from "./store-adapter.js";

const PROBE_TEXT = "Fenceline asks this store whether it keeps ids and deletes by them.";

/**
 * Writes two entries, finds, searches and deletes them, and leaves nothing behind: shows before any content is written
 * that the store can hold the promise of a verified purge (P3).
 *
 * @param dimensions length of the vectors the store is used with
 * @throws {FencelineError} `store_unsuitable`, naming the store and what it did wrong; `store_failed`, `store_timeout`
 */
export async function probeStore(store: BoundedStore, dimensions: number): Promise<void> {
  const [kept, deleted] = [probeEntry(dimensions), probeEntry(dimensions)];
  let refs: EntryRef[] = [{ entryId: kept.id }, { entryId: deleted.id }];
  const refuse = (reason: string, cause?: unknown): never => {
    throw connectorError("store_unsuitable", `The store ${store.kind} cannot be used: ${reason}.`, { cause });
  };
  try {
    if ((await store.present(refs)).size > 0) refuse("it calls ids present that were never written");
    const keys = await store.write([kept, deleted]);
    if (keys.size > 0 && !store.locates) refuse("it assigns its own keys and offers no way to find an entry by our id");
    refs = refs.map(({ entryId }) => refOf(entryId, keys.get(entryId)));
    if ((await store.present(refs)).size < 2) refuse("it does not find by id what was just written");
    const unlocated = refs.map(({ entryId }) => ({ entryId }));
    if ((await store.present(unlocated)).size < 2) refuse("it does not find an entry by our id");
    const hits = await store.search(kept.vector, 4);
    const nameless = hits.some(({ id, pageContent }) => pageContent === PROBE_TEXT && id === undefined);
    if (nameless) refuse("its search answers without the id of an entry");

    const [keptRef, deletedRef] = refs as [EntryRef, EntryRef];
    await removing(() => store.remove([deletedRef]), "it does not delete by id", refuse);
    const left = await store.present(refs);
    if (left.has(deleted.id)) refuse("an entry is still there after it was deleted by id");
    if (!left.has(kept.id)) refuse("deleting one entry deleted another");
    await removing(() => store.remove([deletedRef]), "deleting an id that is gone fails", refuse);
    await store.remove([keptRef]);
    if ((await store.present(refs)).size > 0) refuse("an entry is still there after it was deleted by id");
  } catch (error) {
    // Whatever is wrong with the store, the answer is the first failure, not that of tidying up after it.
    await store.remove(refs).catch(() => undefined);
    throw error;
  }
}

async function removing(
  remove: () => Promise<void>,
  reason: string,
  refuse: (reason: string, cause?: unknown) => never,
): Promise<void> {
  try {
    await remove();
  } catch (error) {
    if (error instanceof FencelineError && error.code === "store_failed") refuse(reason, error.cause);
    throw error;
  }
}

function probeEntry(dimensions: number): StoreEntry {
  const vector = new Array<number>(dimensions).fill(0);
  vector[0] = 1;
  return { id: randomUUID(), pageContent: PROBE_TEXT, metadata: { source: "fenceline-probe" }, vector };
}

function refOf(entryId: string, storeKey: string | undefined): EntryRef {
  return storeKey === undefined ? { entryId } : { entryId, storeKey };
}
