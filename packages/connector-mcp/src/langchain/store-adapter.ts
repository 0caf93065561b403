/**
 * The port to whatever holds vectors, and the adapter that fits LangChain vector stores to it.
 *
 * 1. Entry ids come from the ledger and are never reused, so a delete by id cannot hit what another writer wrote (L5).
 * 2. A store that assigns its own keys must find an entry by our id again, or a crash right after a write would leave an
 *    entry that nobody can delete (L2, P3).
 * 3. `present` is what *absent* rests on (P3): it has to look at the store itself, never at a cache or an old snapshot.
 */
import { Document, type DocumentInterface } from "@langchain/core/documents";
import type { VectorStoreInterface } from "@langchain/core/vectorstores";
import { connectorError } from "../errors.js";

/** Metadata as every store can keep it: flat, no arrays, no null. */
export type EntryMetadata = Readonly<Record<string, string | number | boolean>>;

export interface StoreEntry {
  /** The ledger's id, a UUID. */
  readonly id: string;
  readonly pageContent: string;
  readonly metadata: EntryMetadata;
  readonly vector: readonly number[];
}

export interface StoreHit {
  /** The ledger's id; `undefined` for what somebody else wrote into the store. */
  readonly id: string | undefined;
  readonly pageContent: string;
  readonly metadata: Readonly<Record<string, unknown>>;
  /** As the store measures it: similarity or distance, best hit first. */
  readonly score: number;
}

/** What a store filters by, in the store's own form. */
export type StoreFilter = object | string;

/**
 * A store of vectors. A *key* is what the store knows an entry by: our id, or one that the store assigned.
 *
 * Callers never pass more than 500 items, an empty list, or an id twice. Errors may be of any kind.
 */
export interface StoreAdapter {
  /** For people: shown in `status` and in errors. */
  readonly kind: string;
  /** Resolves when the entries are durable. Returns the keys, in order, where the store assigns its own. */
  write(entries: readonly StoreEntry[]): Promise<readonly string[] | undefined>;
  /** Deletes by key. A key that is not there is no error. */
  remove(keys: readonly string[]): Promise<void>;
  /** Which of the keys are in the store now, by a fresh read. */
  present(keys: readonly string[]): Promise<readonly string[]>;
  /** Only for a store that assigns keys: those of the entries that carry these ids in `metadata.entryId`. */
  locate?(ids: readonly string[]): Promise<readonly { readonly id: string; readonly key: string }[]>;
  /**
   * Ids of everything in the store in an order of its own, a page at a time; of a store that assigns keys, the ids in
   * `metadata.entryId`. Without it nothing can be found in the store that the ledger does not know of.
   */
  ids?(page: { readonly limit: number; readonly after?: string }): Promise<readonly string[]>;
  /** The `k` nearest entries, best first; fewer only when there are no more. */
  search(vector: readonly number[], k: number, filter?: StoreFilter): Promise<readonly StoreHit[]>;
}

/** What a LangChain vector store cannot do by its own interface and an adapter has to be given. */
export interface VectorStoreLookup {
  /** As {@link StoreAdapter.present}, by the store's own query API. */
  present(keys: readonly string[]): Promise<readonly string[]>;
  /** As {@link StoreAdapter.locate}. */
  locate?(ids: readonly string[]): Promise<readonly { readonly id: string; readonly key: string }[]>;
  /** As {@link StoreAdapter.ids}. */
  ids?(page: { readonly limit: number; readonly after?: string }): Promise<readonly string[]>;
  /** Default: what the store calls itself. */
  readonly kind?: string;
}

/** A LangChain vector store that says which ids it holds, as {@link EmbeddedVectorStore} does. */
export type VectorStoreWithPresence = VectorStoreInterface & Pick<VectorStoreLookup, "present" | "locate" | "ids">;

/**
 * Fits any LangChain vector store to the port. Our id is given to it three times, since stores disagree on which they
 * heed: as `Document.id`, in `options.ids`, and in `metadata.entryId`.
 */
export function adaptVectorStore(vectorStore: VectorStoreInterface, lookup: VectorStoreLookup): StoreAdapter {
  const { locate, ids } = lookup;
  return {
    kind: lookup.kind ?? vectorStore._vectorstoreType(),
    async write(entries) {
      const ids = entries.map((entry) => entry.id);
      const documents = entries.map(
        ({ id, pageContent, metadata }) => new Document({ id, pageContent, metadata: { ...metadata, entryId: id } }),
      );
      const keys = await vectorStore.addVectors(
        entries.map((entry) => [...entry.vector]),
        documents,
        { ids },
      );
      const assigned = Array.isArray(keys) && keys.some((key, position) => key !== ids[position]);
      // Some stores answer with numbers where their type says strings.
      return assigned ? keys.map(String) : undefined;
    },
    remove: (keys) => vectorStore.delete({ ids: [...keys] }),
    present: (keys) => lookup.present(keys),
    ...(locate && { locate: (ids: readonly string[]) => locate.call(lookup, ids) }),
    ...(ids && { ids: (page: Parameters<typeof ids>[0]) => ids.call(lookup, page) }),
    async search(vector, k, filter) {
      const found = await vectorStore.similaritySearchVectorWithScore([...vector], k, filter);
      return found.map(([document, score]) => toHit(document, score));
    },
  };
}

/**
 * The adapter for a store in either form.
 *
 * @throws {FencelineError} `store_unsuitable`: a vector store without a `present` method needs {@link adaptVectorStore}
 */
export function storeAdapterOf(store: StoreAdapter | VectorStoreInterface): StoreAdapter {
  if (isStoreAdapter(store)) return store;
  if (sayWhatIsPresent(store)) return adaptVectorStore(store, store);
  throw connectorError(
    "store_unsuitable",
    `${store._vectorstoreType()} cannot say which ids it holds, so nothing could be shown to be absent from it. ` +
      "Wrap it: adaptVectorStore(store, { present: async (ids) => … }).",
  );
}

/** Whether this is an adapter already, and not a LangChain vector store. */
function isStoreAdapter(store: StoreAdapter | VectorStoreInterface): store is StoreAdapter {
  return "write" in store && "remove" in store && "present" in store && "search" in store;
}

function sayWhatIsPresent(store: VectorStoreInterface): store is VectorStoreWithPresence {
  return "present" in store && typeof store.present === "function";
}

function toHit({ id, pageContent, metadata }: DocumentInterface, score: number): StoreHit {
  const { entryId, ...rest } = metadata;
  return { id: typeof entryId === "string" ? entryId : id, pageContent, metadata: rest, score };
}
