/** What every store adapter has to do, whatever is behind it. */
import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { BoundedStore, type EntryRef } from "#src/langchain/bounded-store.js";
import { HashedLexicalEmbeddings } from "#src/langchain/hashed-lexical-embeddings.js";
import { probeStore } from "#src/langchain/probe-store.js";
import type { StoreAdapter, StoreEntry } from "#src/langchain/store-adapter.js";

export interface OpenedStore {
  readonly adapter: StoreAdapter;
  /** A second adapter of the same store, over a connection of its own where it has connections. */
  readonly again: () => Promise<StoreAdapter>;
  readonly close: () => Promise<void>;
}

const embeddings = new HashedLexicalEmbeddings();

async function entriesOf(texts: readonly string[]): Promise<StoreEntry[]> {
  const vectors = await embeddings.embedDocuments([...texts]);
  return texts.map((pageContent, position) => ({
    id: randomUUID(),
    pageContent,
    metadata: { source: "catalog", uri: `catalog://plans/${position}`, ordinal: position, draft: false },
    vector: vectors[position] ?? [],
  }));
}

/** Runs the suite over a store that `open` opens, empty, for vectors of 1024 dimensions. */
export function describeStoreAdapter(name: string, open: () => Promise<OpenedStore>): void {
  describe(`store adapter: ${name}`, () => {
    let opened: OpenedStore;
    let store: BoundedStore;

    beforeAll(async () => {
      opened = await open();
      store = new BoundedStore(opened.adapter, { timeoutMs: 20_000 });
    });
    afterAll(() => opened?.close());

    async function write(entries: readonly StoreEntry[]): Promise<EntryRef[]> {
      const keys = await store.write(entries);
      return entries.map(({ id }) => {
        const storeKey = keys.get(id);
        return storeKey === undefined ? { entryId: id } : { entryId: id, storeKey };
      });
    }

    test("passes the probe, which leaves nothing behind", async () => {
      await probeStore(store, embeddings.dimensions);
      expect(await store.search(await embeddings.embedQuery("Fenceline asks this store"), 10)).toEqual([]);
    });

    test("what was written is present by id at once, and nothing else is", async () => {
      const refs = await write(await entriesOf(["the basic plan", "the pro plan"]));
      const never = { entryId: randomUUID() };
      expect(await store.present([...refs, never])).toEqual(new Set(refs.map(({ entryId }) => entryId)));
      await store.remove(refs);
    });

    test("search answers with our ids, the text and flat metadata unchanged, best first", async () => {
      const entries = await entriesOf(["the basic plan is 10 EUR", "the pro plan is 25 EUR", "returns within 30 days"]);
      const refs = await write(entries);
      const hits = await store.search(await embeddings.embedQuery("basic plan"), 3);
      expect(hits.map(({ id }) => id)).toHaveLength(3);
      expect(hits[0]).toMatchObject({
        id: entries[0]?.id,
        pageContent: "the basic plan is 10 EUR",
        metadata: { source: "catalog", uri: "catalog://plans/0", ordinal: 0, draft: false },
      });
      expect((await store.search(await embeddings.embedQuery("basic plan"), 1)).length).toBe(1);
      await store.remove(refs);
    });

    test("deleting by id removes these entries, from look-up and search, and no other (P3)", async () => {
      const refs = await write(await entriesOf(["one card", "two cards", "three cards"]));
      const [kept, ...deleted] = refs as [EntryRef, ...EntryRef[]];
      await store.remove(deleted);
      expect(await store.present(refs)).toEqual(new Set([kept.entryId]));
      const hits = await store.search(await embeddings.embedQuery("cards"), 10);
      expect(hits.map(({ id }) => id)).toEqual([kept.entryId]);
      await store.remove(refs);
      expect(await store.present(refs)).toEqual(new Set());
    });

    test("deleting what is gone, or nothing at all, is no error", async () => {
      await store.remove([]);
      const refs = await write(await entriesOf(["a card"]));
      await store.remove(refs);
      await store.remove(refs);
      expect(await store.present([])).toEqual(new Set());
    });

    test("an entry whose key was never recorded is found and deleted by our id (L2)", async () => {
      const entries = await entriesOf(["a writer that died right after its write"]);
      await store.write(entries);
      const refs = entries.map(({ id }) => ({ entryId: id }));
      expect((await store.present(refs)).size).toBe(1);
      await store.remove(refs);
      expect((await store.present(refs)).size).toBe(0);
    });

    test("more entries than fit in a batch are written, found and deleted", async () => {
      const entries = await entriesOf(Array.from({ length: 1_203 }, (_, n) => `card number ${n}`));
      const refs = await write(entries);
      expect((await store.present(refs)).size).toBe(entries.length);
      await store.remove(refs);
      expect((await store.present(refs)).size).toBe(0);
    });

    test("text keeps quotes, line ends, every script and U+0000", async () => {
      const text = 'it\'s "quoted" \\ {a,b}\r\n\t日本語 😀 \u001a \u001a0 before\u0000after';
      const refs = await write(await entriesOf([text]));
      const [hit] = await store.search(await embeddings.embedQuery(text), 1);
      expect(hit?.pageContent).toBe(text);
      await store.remove(refs);
    });

    test("another connection sees a write and a delete at once (P3)", async () => {
      const other = new BoundedStore(await opened.again(), { timeoutMs: 20_000 });
      const refs = await write(await entriesOf(["seen by everybody"]));
      expect((await other.present(refs)).size).toBe(1);
      await store.remove(refs);
      expect((await other.present(refs)).size).toBe(0);
    });
  });
}
