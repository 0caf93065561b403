import { randomUUID } from "node:crypto";
import { formatEntryId, type Ledger, parseEntryId } from "@fenceline/ledger";
import { Document } from "@langchain/core/documents";
import { expect, test } from "vitest";
import { HashedLexicalEmbeddings } from "#src/langchain/hashed-lexical-embeddings.js";
import { LineageIndex } from "#src/langchain/lineage-index.js";
import { purgeStore } from "#src/langchain/purge.js";
import { compareStore, type StoreComparison } from "#src/langchain/store-comparison.js";
import { AcceptedCatalog, withFreshLedger } from "./accepted-catalog.js";
import { MemoryStore } from "./memory-stores.js";

const URI = "catalog://plans/basic";
const embeddings = new HashedLexicalEmbeddings();

let ledger: Ledger;
let store: ListedStore;
let index: LineageIndex;

/** A store that can be gone through. */
class ListedStore extends MemoryStore {
  async ids({ limit, after }: { limit: number; after?: string }): Promise<string[]> {
    const ids = [...this.rows.keys()].sort();
    return ids.filter((id) => after === undefined || id > after).slice(0, limit);
  }
}

/** An index with one entry that is served, and one that it replaced and that waits for its purge. */
withFreshLedger(async (fresh) => {
  ledger = fresh;
  store = new ListedStore(embeddings);
  index = new LineageIndex({ ledger, name: "main", vectorStore: store, embeddings });
  await index.register();
  const catalog = await AcceptedCatalog.open(ledger, [URI]);
  for (const price of [100, 120]) {
    await catalog.accept(URI, `price=${price}`);
    await index.indexDue();
  }
  expect(store.rows.size).toBe(2);
});

/** Compares, and purges whatever is due just before the ledger answers to one of the calls. */
function compareWhilePurging(before: "recordedEntries" | "standingOfEntries"): Promise<StoreComparison> {
  const answer = ledger[before] as (...args: unknown[]) => Promise<never>;
  const purging: Ledger = {
    ...ledger,
    [before]: async (...args: unknown[]) => {
      await purge();
      return answer(...args);
    },
  };
  return compareStore({ ledger: purging, index: "main", storeName: index.storeName, store: index.store });
}

const purge = () => purgeStore({ ledger, store: index.store, name: index.storeName });
const sound = { store: "main", missing: 0, orphans: 0, foreign: 0 };

test("an entry that waits for its purge is no difference", async () => {
  expect(await index.compare()).toEqual({ ...sound, recorded: 2, present: 2 });
});

test.each(["recordedEntries", "standingOfEntries"] as const)(
  "an entry that is purged between the store's answer and that of %s is no orphan",
  async (call) => {
    expect(await compareWhilePurging(call)).toMatchObject(sound);
    expect(store.rows.size).toBe(1);
  },
);

test("an entry that the store lost is missing; one without a record is an orphan, one of somebody else is foreign", async () => {
  await purge();
  const [id] = await ledger.recordedEntries("main", { limit: 1 });
  const parts = parseEntryId(id as string);
  if (parts === undefined) return expect.fail(`${id} is no entry id`);
  await store.delete({ ids: [id as string] });
  expect(await index.compare()).toEqual({ ...sound, recorded: 1, present: 0, missing: 1 });
  const strays = [formatEntryId({ ...parts, number: 2 ** 40 }), randomUUID()];
  await store.addDocuments(strays.map((stray) => new Document({ id: stray, pageContent: "stray", metadata: {} })));
  expect(await index.compare()).toEqual({ ...sound, recorded: 1, present: 0, missing: 1, orphans: 1, foreign: 1 });
});
