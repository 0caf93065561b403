import { FencelineError } from "@fenceline/ledger";
import { connectorError } from "../errors.js";
import { within } from "./deadline.js";
import type { StoreAdapter, StoreEntry, StoreFilter, StoreHit } from "./store-adapter.js";

/** Chroma refuses more than 5461 items, others slow down long before; 500 is where a larger batch gains nothing. */
const BATCH = 500;

/** An entry as the ledger names it, with the key where the store assigned one. */
export interface EntryRef {
  readonly entryId: string;
  readonly storeKey?: string;
}

/**
 * A store as the rest of this folder calls it: by the ledger's ids, any number at once, with a deadline on each call.
 * Failures are `FencelineError`s: those of our own stores as they are, else `store_failed` (the store's error is the
 * cause) or `store_timeout`, after which nobody knows whether the call takes effect.
 */
export class BoundedStore {
  readonly #adapter: StoreAdapter;
  /** Longest wait for one call, in milliseconds. */
  readonly timeoutMs: number;

  constructor(adapter: StoreAdapter, options: { readonly timeoutMs: number }) {
    this.#adapter = adapter;
    this.timeoutMs = options.timeoutMs;
  }

  get kind(): string {
    return this.#adapter.kind;
  }

  /** Whether an entry whose key was never recorded can be found by its id. */
  get locates(): boolean {
    return this.#adapter.locate !== undefined;
  }

  /** Calls to the store that `write` takes for so many entries. */
  static callsFor(entries: number): number {
    return Math.ceil(entries / BATCH);
  }

  /** Writes the entries; answers with the keys of those that the store named by itself. */
  async write(entries: readonly StoreEntry[]): Promise<Map<string, string>> {
    const assigned = new Map<string, string>();
    for (const batch of batchesOf(entries)) {
      const keys = await this.#call("write", () => this.#adapter.write(batch));
      if (keys === undefined) continue;
      if (keys.length !== batch.length) {
        throw connectorError(
          "store_failed",
          `The store ${this.kind} named ${keys.length} keys for ${batch.length} entries.`,
        );
      }
      batch.forEach((entry, position) => {
        assigned.set(entry.id, keys[position] as string);
      });
    }
    return assigned;
  }

  /** Deletes entries by id. Those that are not there are no error. */
  async remove(refs: readonly EntryRef[]): Promise<void> {
    const keys = [...(await this.#idsByKey(refs)).keys()];
    for (const batch of batchesOf(keys)) await this.#call("delete", () => this.#adapter.remove(batch));
  }

  /** The ids of those entries that are in the store now. */
  async present(refs: readonly EntryRef[]): Promise<Set<string>> {
    const idsByKey = await this.#idsByKey(refs);
    const found = new Set<string>();
    for (const batch of batchesOf([...idsByKey.keys()])) {
      for (const key of await this.#call("look up", () => this.#adapter.present(batch))) {
        const entryId = idsByKey.get(key);
        if (entryId !== undefined) found.add(entryId);
      }
    }
    return found;
  }

  /** Whether the store can be gone through, and so what the ledger does not know of be found in it. */
  get isListed(): boolean {
    return this.#adapter.ids !== undefined;
  }

  /** Ids of everything in the store, a page at a time; nothing where it cannot be gone through. */
  async *ids(): AsyncGenerator<readonly string[]> {
    const { ids } = this.#adapter;
    if (ids === undefined) return;
    let after: string | undefined;
    while (true) {
      const from = after;
      const page = await this.#call("list", () =>
        ids.call(this.#adapter, { limit: BATCH, ...(from !== undefined && { after: from }) }),
      );
      if (page.length > 0) yield page;
      after = page.at(-1);
      if (page.length < BATCH) return;
    }
  }

  async search(vector: readonly number[], k: number, filter?: StoreFilter): Promise<readonly StoreHit[]> {
    return this.#call("search", () => this.#adapter.search(vector, k, filter));
  }

  /** The keys to ask the store for. Without a recorded key a store that assigns them is asked for it first. */
  async #idsByKey(refs: readonly EntryRef[]): Promise<Map<string, string>> {
    const { locate } = this.#adapter;
    const idsByKey = new Map<string, string>();
    const unlocated: string[] = [];
    for (const { entryId, storeKey } of refs) {
      if (storeKey === undefined && locate !== undefined) unlocated.push(entryId);
      else idsByKey.set(storeKey ?? entryId, entryId);
    }
    for (const batch of batchesOf(unlocated)) {
      const located = await this.#call("look up", () => locate?.call(this.#adapter, batch) ?? Promise.resolve([]));
      for (const { id, key } of located) idsByKey.set(key, id);
    }
    return idsByKey;
  }

  async #call<T>(what: string, call: () => Promise<T>): Promise<T> {
    const timedOut = () =>
      connectorError("store_timeout", `The store ${this.kind} did not answer (${what}) within ${this.timeoutMs} ms.`);
    try {
      return await within(this.timeoutMs, call(), timedOut);
    } catch (error) {
      throw storeFailure(this.kind, what, error);
    }
  }
}

function storeFailure(kind: string, what: string, error: unknown): unknown {
  if (error instanceof FencelineError) return error;
  const reason = error instanceof Error ? error.message : String(error);
  return connectorError("store_failed", `The store ${kind} failed (${what}): ${reason}`, { cause: error });
}

function* batchesOf<T>(items: readonly T[]): Generator<readonly T[]> {
  for (let start = 0; start < items.length; start += BATCH) yield items.slice(start, start + BATCH);
}
