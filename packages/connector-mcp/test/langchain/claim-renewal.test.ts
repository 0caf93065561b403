import type { Ledger } from "@fenceline/ledger";
import { expect, test } from "vitest";
import { HashedLexicalEmbeddings } from "#src/langchain/hashed-lexical-embeddings.js";
import { LineageIndex, type LineageIndexOptions } from "#src/langchain/lineage-index.js";
import { AcceptedCatalog, withFreshLedger } from "./accepted-catalog.js";
import { MemoryStore } from "./memory-stores.js";

const URI = "catalog://plans/basic";
const TEXT = "The price of the basic plan is 100 a month.";

let ledger: Ledger;
let store: MemoryStore;

withFreshLedger(async (fresh) => {
  ledger = fresh;
  store = new MemoryStore();
  const catalog = await AcceptedCatalog.open(ledger, [URI]);
  await indexWith({}).register();
  await catalog.accept(URI, TEXT);
});

/** Another worker's view of the one index. */
function indexWith(options: Partial<LineageIndexOptions>): LineageIndex {
  const embeddings = new HashedLexicalEmbeddings();
  return new LineageIndex({ ledger, name: "main", vectorStore: store, embeddings, ...options });
}

const shown = async () => {
  const { hits } = await indexWith({})
    .asRetriever()
    .search("price", { asker: ["svc:rag"] });
  return hits.map(({ text }) => text);
};

test("a version that takes longer than its claim to embed and write keeps it, and is confirmed (L3)", async () => {
  const leaseMs = 600;
  const another = indexWith({ leaseMs });
  const embeddings = new HashedLexicalEmbeddings();
  const { embedDocuments } = embeddings;
  embeddings.embedDocuments = async (texts) => {
    const until = performance.now() + 3 * leaseMs;
    while (performance.now() < until) expect(await another.indexDue()).toMatchObject({ versions: 0, failed: 0 });
    return embedDocuments.call(embeddings, texts);
  };
  expect(await indexWith({ leaseMs, embeddings }).indexDue()).toMatchObject({ versions: 1, written: 1, failed: 0 });
  expect(await shown()).toEqual([TEXT]);
});

test("a version whose cutting keeps the process from its timers for longer than the claim is confirmed (L3)", async () => {
  const leaseMs = 300;
  const embeddings = new HashedLexicalEmbeddings();
  const { embedDocuments } = embeddings;
  embeddings.embedDocuments = async (texts) => {
    block(leaseMs / 2);
    return embedDocuments.call(embeddings, texts);
  };
  const digest = ledger.digestChunk;
  ledger = { ...ledger, digestChunk: (text) => digest(block(2 * leaseMs, text)) };
  expect(await indexWith({ leaseMs, embeddings }).indexDue()).toMatchObject({ versions: 1, failed: 0 });
  expect(await shown()).toEqual([TEXT]);
});

/** Keeps the process busy. */
function block<T>(milliseconds: number, value?: T): T {
  const until = performance.now() + milliseconds;
  while (performance.now() < until);
  return value as T;
}
