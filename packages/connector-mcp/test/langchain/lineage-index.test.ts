import type { Ledger } from "@fenceline/ledger";
import { describe, expect, test } from "vitest";
import { EmbeddedVectorStore } from "#src/langchain/embedded-vector-store.js";
import { HashedLexicalEmbeddings } from "#src/langchain/hashed-lexical-embeddings.js";
import { LineageIndex, type LineageIndexOptions } from "#src/langchain/lineage-index.js";
import { purgeStore } from "#src/langchain/purge.js";
import { adaptVectorStore } from "#src/langchain/store-adapter.js";
import { AcceptedCatalog, withFreshLedger } from "./accepted-catalog.js";
import { KeyAssigningStore, MemoryStore, UndeletingStore } from "./memory-stores.js";

const PLAN = "catalog://plans/basic";
const SIZE = { chunkSize: 60, chunkOverlap: 0 };
const ALICE = { configurable: { asker: ["user:alice"] } };
const PARAGRAPHS = {
  storage: "The basic plan has five gigabytes of storage.",
  support: "Support for the basic plan is by e-mail.",
  price100: "The price of the basic plan is 100 a month.",
  price120: "The price of the basic plan is 120 a month.",
};

class CountingEmbeddings extends HashedLexicalEmbeddings {
  readonly embedded: string[] = [];
  failWith: Error | undefined;

  override async embedDocuments(texts: string[]): Promise<number[][]> {
    if (this.failWith) throw this.failWith;
    this.embedded.push(...texts);
    return super.embedDocuments(texts);
  }
}

let ledger: Ledger;

withFreshLedger((fresh) => {
  ledger = fresh;
});

/** An index over a store of its own, fed by one source. */
async function setUp(options: Partial<LineageIndexOptions> = {}, uris: readonly string[] = [PLAN]) {
  const embeddings = new CountingEmbeddings();
  const store = new MemoryStore(embeddings);
  const index = new LineageIndex({ ledger, name: "main", vectorStore: store, embeddings, chunkSize: SIZE, ...options });
  await index.register();
  const catalog = await AcceptedCatalog.open(ledger, uris);
  await catalog.grant("user:alice");
  const purge = () => purgeStore({ ledger, store: index.store, name: index.storeName });
  const answer = async (question: string, retriever = index.asRetriever({ k: 10 })) =>
    (await retriever.invoke(question, ALICE)).map(({ pageContent }) => pageContent).sort();
  return { embeddings, store, index, catalog, purge, answer };
}

/** Lets the ledger's clock run ahead of the machine's. */
async function setClockAhead(by: string): Promise<void> {
  await ledger.database.query(
    `create or replace function ${ledger.schema}.now() returns timestamptz language sql volatile
     as $$ select clock_timestamp() + interval '${by}' $$`,
  );
}

/** Ids of the entries in a store, whoever wrote them. */
const idsIn = (store: MemoryStore) => [...store.rows.keys()].sort();

describe("an index fed from the ledger", () => {
  test("an accepted version is chunked, embedded, written and answers a question", async () => {
    const { index, catalog, answer, store } = await setUp();
    await catalog.accept(PLAN, `${PARAGRAPHS.storage}\n\n${PARAGRAPHS.price100}`);
    expect(await index.indexDue()).toMatchObject({ versions: 1, written: 2, reused: 0, failed: 0, problems: [] });
    expect(await answer("price")).toEqual([PARAGRAPHS.storage, PARAGRAPHS.price100].sort());
    expect(await index.indexDue()).toMatchObject({ versions: 0, written: 0 });
    expect(store.rows.size).toBe(2);
  });

  test("of a new version only changed chunks are embedded and written; the others keep their entries (L3)", async () => {
    const { index, catalog, answer, embeddings, store, purge } = await setUp();
    const textWith = (price: string) => [PARAGRAPHS.storage, PARAGRAPHS.support, price].join("\n\n");
    await catalog.accept(PLAN, textWith(PARAGRAPHS.price100));
    await index.indexDue();
    const before = idsIn(store);
    embeddings.embedded.length = 0;
    store.written = 0;

    await catalog.accept(PLAN, textWith(PARAGRAPHS.price120));
    expect(await index.indexDue()).toMatchObject({ versions: 1, written: 1, reused: 2 });
    expect(embeddings.embedded).toEqual([PARAGRAPHS.price120]);
    expect(store.written).toBe(1);
    expect(await answer("price")).toEqual([PARAGRAPHS.storage, PARAGRAPHS.support, PARAGRAPHS.price120].sort());

    expect(await purge()).toMatchObject({ entries: 1 });
    expect(idsIn(store).filter((id) => before.includes(id))).toHaveLength(2);
    expect(store.rows.size).toBe(3);
  });

  test("after a new version was accepted the old price is no answer, before it is indexed too (§9)", async () => {
    const { index, catalog, answer } = await setUp();
    await catalog.accept(PLAN, PARAGRAPHS.price100);
    await index.indexDue();
    await catalog.notify(PLAN);
    expect(await answer("price")).toEqual([]);
    await catalog.accept(PLAN, PARAGRAPHS.price120);
    expect(await answer("price")).toEqual([]);
    expect(await answer("price", index.asRetriever({ freshness: "mark" }))).toEqual([PARAGRAPHS.price100]);
    await index.indexDue();
    expect(await answer("price")).toEqual([PARAGRAPHS.price120]);
  });

  test("a retriever that waits answers with the new version as soon as it is indexed (§9)", async () => {
    const { index, catalog, answer } = await setUp();
    await catalog.accept(PLAN, PARAGRAPHS.price100);
    await index.indexDue();
    await catalog.accept(PLAN, PARAGRAPHS.price120);
    const waiting = answer("price", index.asRetriever({ freshness: { waitMs: 20_000 } }));
    await index.indexDue();
    expect(await waiting).toEqual([PARAGRAPHS.price120]);
  });

  test("equal content read by two readers is stored once and serves each (L5)", async () => {
    const { index, catalog, store } = await setUp();
    const other = await AcceptedCatalog.open(ledger, [PLAN], { source: catalog.source, reader: "svc:other" });
    for (const reader of [catalog, other]) await reader.accept(PLAN, PARAGRAPHS.price100);
    expect(await index.indexDue()).toMatchObject({ versions: 2, written: 1, reused: 1 });
    expect(store.rows.size).toBe(1);
    for (const asker of ["svc:rag", "svc:other"]) {
      const documents = await index.asRetriever().invoke("price", { configurable: { asker: [asker] } });
      expect(documents.map(({ pageContent }) => pageContent)).toEqual([PARAGRAPHS.price100]);
    }
    const [row] = store.rows.values();
    expect(JSON.stringify(row)).not.toMatch(/svc:/);
  });

  test("nobody but the granted and the reader sees an entry (G1)", async () => {
    const { index, catalog } = await setUp();
    await catalog.accept(PLAN, PARAGRAPHS.price100);
    await index.indexDue();
    const seenBy = (asker: string) => index.asRetriever().invoke("price", { configurable: { asker: [asker] } });
    expect(await seenBy("user:bob")).toEqual([]);
    expect(await seenBy("user:alice")).toHaveLength(1);
    expect(await seenBy("svc:rag")).toHaveLength(1);
  });

  test("one retriever serves two askers at once, each with what is granted to that asker (G2)", async () => {
    const pro = "catalog://plans/pro";
    const { index, catalog } = await setUp({}, [PLAN, pro]);
    const { source, reader } = catalog;
    await ledger.grant({ source, reader, audience: "user:bob", scope: { uri: pro } });
    await catalog.accept(PLAN, PARAGRAPHS.price100);
    await catalog.accept(pro, PARAGRAPHS.price120);
    await index.indexDue();
    const askers = Array.from({ length: 20 }, (_, n) => (n % 2 === 0 ? "user:alice" : "user:bob"));
    const answers = await index.asRetriever().batch(
      askers.map(() => "price"),
      askers.map((asker) => ({ configurable: { asker: [asker] } })),
    );
    const seen = answers.map((documents) => documents.map(({ metadata }) => metadata.uri).sort());
    expect(seen).toEqual(askers.map((asker) => (asker === "user:bob" ? [pro] : [PLAN, pro])));
  });

  test("a revoked reader's entries are hidden at once and gone from the store after the purge (P2, P3)", async () => {
    const { index, catalog, answer, store, purge } = await setUp();
    await catalog.accept(PLAN, PARAGRAPHS.price100);
    await index.indexDue();
    const { source, reader } = catalog;
    const { revocationId } = await ledger.revoke({ source, subject: reader, role: "reader", reason: "left" });
    expect(await answer("price")).toEqual([]);
    expect(store.rows.size).toBe(1);
    while ((await ledger.advanceRevocation(revocationId)) === "more");
    expect(await purge()).toMatchObject({ entries: 1 });
    expect(store.rows.size).toBe(0);
    expect((await ledger.revocation(revocationId))?.stores).toMatchObject([{ remaining: 0, claim: "absent" }]);
  });

  test("a version revoked between write and confirm leaves nothing in the store (P4)", async () => {
    const { index, catalog, answer, store, purge } = await setUp();
    await catalog.accept(PLAN, PARAGRAPHS.price100);
    const { source, reader } = catalog;
    let revoked = false;
    store.onCall = async (call) => {
      if (call !== "present" || revoked) return;
      revoked = true;
      await ledger.revoke({ source, subject: reader, role: "reader", reason: "left" });
    };
    expect(await index.indexDue()).toMatchObject({ versions: 0, refused: 1 });
    expect(store.rows.size).toBe(0);
    expect(await answer("price")).toEqual([]);
    await purge();
    expect(store.rows.size).toBe(0);
  });

  test("a new version without any text takes the place of the old one, which goes", async () => {
    const { index, catalog, answer, store, purge } = await setUp();
    await catalog.accept(PLAN, PARAGRAPHS.price100);
    await index.indexDue();
    await catalog.accept(PLAN, [{ uri: PLAN, mimeType: "image/png", bytes: Uint8Array.of(1, 2, 3) }]);
    expect(await index.indexDue()).toMatchObject({
      versions: 1,
      written: 0,
      problems: [{ uri: PLAN, code: "left_out", message: expect.stringContaining("mime_type_not_text") as string }],
    });
    expect(await answer("price")).toEqual([]);
    await purge();
    expect(store.rows.size).toBe(0);
  });

  test("an embedding model that fails on one text holds up only the version that has it", async () => {
    const { index, catalog, answer, embeddings } = await setUp({}, [PLAN, "catalog://plans/pro"]);
    const { embedDocuments } = embeddings;
    embeddings.embedDocuments = async (texts) => {
      if (texts.some((text) => text.includes("poison"))) throw new RangeError("too long");
      return embedDocuments.call(embeddings, texts);
    };
    await catalog.accept(PLAN, PARAGRAPHS.price100);
    await catalog.accept("catalog://plans/pro", "poison");
    const result = await index.indexDue();
    expect(result).toMatchObject({ versions: 1, failed: 1 });
    expect(result.problems).toMatchObject([{ uri: "catalog://plans/pro", code: "embeddings_failed" }]);
    expect(await answer("price")).toEqual([PARAGRAPHS.price100]);
  });

  test("a store that does not answer ends the run at its deadline, and the old version keeps serving (P5)", async () => {
    const { index, catalog, store, answer } = await setUp({ leaseMs: 1_000 });
    await catalog.accept(PLAN, PARAGRAPHS.storage);
    await index.indexDue();
    await catalog.accept(PLAN, `${PARAGRAPHS.storage}\n\n${PARAGRAPHS.support}`);
    store.onCall = (call) => (call === "write" ? new Promise(() => {}) : undefined);
    expect(await index.indexDue()).toMatchObject({ versions: 0, failed: 1, problems: [{ code: "store_timeout" }] });
    expect(await answer("storage", index.asRetriever({ freshness: "mark" }))).toEqual([PARAGRAPHS.storage]);
  });

  test("a version whose claim ended before confirm is named and tried later, not at once for ever", async () => {
    const { index, catalog, store, answer } = await setUp();
    await catalog.accept(PLAN, PARAGRAPHS.price100);
    store.onCall = async (call) => {
      if (call === "write") await setClockAhead("1 minute");
    };
    const result = await index.indexDue();
    expect(result).toMatchObject({ versions: 0, failed: 1, problems: [{ uri: PLAN, code: "claim_lost" }] });
    expect(store.rows.size).toBe(0);
    expect(await index.indexDue()).toMatchObject({ versions: 0, failed: 0 });
    store.onCall = () => {};
    await setClockAhead("2 minutes");
    expect(await index.indexDue()).toMatchObject({ versions: 1 });
    expect(await answer("price")).toEqual([PARAGRAPHS.price100]);
  });

  test("a write that ends after its lease, and after a purge, is never shown and is gone after the next sweep (P3)", async () => {
    const { index, catalog, store, answer, purge } = await setUp({ leaseMs: 400 });
    await catalog.accept(PLAN, PARAGRAPHS.price100);
    let endLateWrite = () => {};
    store.onCall = (call) => {
      if (call !== "write") return;
      store.onCall = () => {};
      return new Promise((resolve) => {
        endLateWrite = resolve;
      });
    };
    expect(await index.indexDue()).toMatchObject({ problems: [{ code: "store_timeout" }] });
    const { source, reader } = catalog;
    const { revocationId } = await ledger.revoke({ source, subject: reader, role: "reader", reason: "left" });
    while ((await ledger.advanceRevocation(revocationId)) === "more");
    await expect.poll(purge, { timeout: 10_000 }).toMatchObject({ entries: 1 });

    endLateWrite();
    await expect.poll(() => store.rows.size, { timeout: 10_000 }).toBe(1);
    expect(await answer("price")).toEqual([]);
    await setClockAhead("1 hour");
    expect(await purge()).toMatchObject({ entries: 1 });
    expect(store.rows.size).toBe(0);
    const causes = (await ledger.purgeReceipts(revocationId)).map(({ cause }) => cause);
    expect(causes).toEqual(["revoked", "reappeared"]);
  });

  test("entries that a store lost right after it took them are not confirmed", async () => {
    const { index, catalog, store } = await setUp();
    await catalog.accept(PLAN, PARAGRAPHS.storage);
    store.onCall = (call) => {
      if (call === "present") store.rows.clear();
    };
    expect(await index.indexDue()).toMatchObject({ versions: 0, problems: [{ code: "store_write_lost" }] });
  });

  test("a given signal hands back what was claimed, and another run takes it up at once", async () => {
    const { index, catalog, embeddings } = await setUp();
    await catalog.accept(PLAN, PARAGRAPHS.storage);
    const abort = new AbortController();
    const { embedDocuments } = embeddings;
    embeddings.embedDocuments = () => {
      abort.abort();
      return new Promise(() => {});
    };
    expect(await index.indexDue({ signal: abort.signal })).toMatchObject({ versions: 0, failed: 0 });
    embeddings.embedDocuments = embedDocuments;
    expect(await index.indexDue()).toMatchObject({ versions: 1 });
  });

  test("many versions are written with a few calls to the store", async () => {
    const uris = Array.from({ length: 40 }, (_, n) => `catalog://plans/${n}`);
    const { index, catalog, store } = await setUp({}, uris);
    for (const uri of uris) await catalog.accept(uri, `The price of plan ${uri} is 100 a month.`);
    let writes = 0;
    store.onCall = (call) => {
      if (call === "write") writes += 1;
    };
    expect(await index.indexDue()).toMatchObject({ versions: 40 });
    expect(writes).toBe(2);
  });

  test("a store that assigns its own keys is indexed and purged by them (L2)", async () => {
    const keys = new KeyAssigningStore();
    const { index, catalog, answer, purge } = await setUp({ vectorStore: adaptVectorStore(keys, keys) });
    await catalog.accept(PLAN, PARAGRAPHS.price100);
    await index.indexDue();
    await catalog.accept(PLAN, PARAGRAPHS.price120);
    await index.indexDue();
    expect(await purge()).toMatchObject({ entries: 1 });
    expect(keys.rows.size).toBe(1);
    expect(await answer("price")).toEqual([PARAGRAPHS.price120]);
  });

  test("the embedded store in the ledger's own database carries an index from write to purge", async () => {
    const embeddings = new HashedLexicalEmbeddings();
    const vectorStore = new EmbeddedVectorStore(embeddings, {
      database: ledger.database,
      schema: ledger.schema,
      collection: "own@1",
    });
    const { index, catalog, answer, purge } = await setUp({ vectorStore, embeddings });
    await catalog.accept(PLAN, PARAGRAPHS.price100);
    await index.indexDue();
    await catalog.accept(PLAN, PARAGRAPHS.price120);
    await index.indexDue();
    expect(await answer("price")).toEqual([PARAGRAPHS.price120]);
    expect(await purge()).toMatchObject({ entries: 1 });
    const left = await ledger.database.query<{ page_content: string }>(
      `select page_content from ${ledger.schema}.embedded_entry where collection = 'own@1'`,
    );
    expect(left).toEqual([{ page_content: PARAGRAPHS.price120 }]);
  });

  test("a store that cannot delete is refused before anything is written to it", async () => {
    const embeddings = new HashedLexicalEmbeddings();
    const vectorStore = new UndeletingStore(embeddings);
    const index = new LineageIndex({ ledger, name: "refused", vectorStore, embeddings });
    await expect(index.indexDue()).rejects.toMatchObject({ code: "store_unsuitable" });
    expect(await ledger.findIndex("refused")).toBeUndefined();
  });
});

/** The ledger as a process sees it that dies before or after a call: from then on nothing of it arrives any more. */
function dyingAt(call: keyof Ledger, when: "before" | "after"): Ledger {
  let dead = false;
  const die = () => {
    dead = true;
    throw new RangeError("the process is gone");
  };
  return new Proxy(ledger, {
    get(target, property) {
      const value = Reflect.get(target, property) as unknown;
      if (typeof value !== "function") return value;
      if (property === "digestChunk") return value.bind(target);
      return async (...args: unknown[]) => {
        if (dead || (property === call && when === "before")) die();
        const answer: unknown = await Reflect.apply(value, target, args);
        if (property === call) die();
        return answer;
      };
    },
  });
}

/** The store as a process sees it that dies after its write: it does not come to tidy up. */
class LeftAlone extends MemoryStore {
  readonly #left: MemoryStore;
  #wrote = false;

  constructor(left: MemoryStore) {
    super(left.embeddings);
    this.#left = left;
  }

  override async addVectors(...args: Parameters<MemoryStore["addVectors"]>) {
    const [, documents] = args;
    this.#wrote ||= documents.some(({ metadata: { source } }) => source !== "fenceline-probe");
    return this.#left.addVectors(...args);
  }

  override async delete(params?: { ids?: string[] }): Promise<void> {
    if (!this.#wrote) await this.#left.delete(params);
  }

  override present(keys: readonly string[]): Promise<string[]> {
    return this.#left.present(keys);
  }

  override similaritySearchVectorWithScore(...args: Parameters<MemoryStore["similaritySearchVectorWithScore"]>) {
    return this.#left.similaritySearchVectorWithScore(...args);
  }
}

describe("a writer that is killed", () => {
  /** An index with one accepted version, and a worker of the same index that dies at a call. */
  async function setUpVictim(call: keyof Ledger, when: "before" | "after") {
    const leaseMs = 1_000;
    const bystander = await setUp({ leaseMs });
    const { catalog, embeddings, store } = bystander;
    await catalog.accept(PLAN, PARAGRAPHS.price100);
    const dying = dyingAt(call, when);
    const vectorStore = new LeftAlone(store);
    const victim = new LineageIndex({ ledger: dying, name: "main", vectorStore, embeddings, chunkSize: SIZE, leaseMs });
    await expect(victim.indexDue()).rejects.toThrow("the process is gone");
    return bystander;
  }

  test.each([
    ["before its intent is recorded", "recordIntents", "before", 0],
    ["after its intent is recorded, before the write", "recordIntents", "after", 0],
    ["after the write, before confirm", "confirmVersions", "before", 1],
  ] as const)(
    "%s shows nothing, leaves nothing for good, and the version is indexed again (L2, P4)",
    async (_when, call, when, left) => {
      const { index, answer, store, purge } = await setUpVictim(call, when);
      expect(store.rows.size).toBe(left);
      expect(await answer("price")).toEqual([]);

      await expect.poll(() => index.indexDue(), { timeout: 10_000 }).toMatchObject({ versions: 1 });
      expect(await answer("price")).toEqual([PARAGRAPHS.price100]);
      const sweep = async () => {
        await purge();
        return store.rows.size;
      };
      await expect.poll(sweep, { timeout: 10_000 }).toBe(1);
      expect(await answer("price")).toEqual([PARAGRAPHS.price100]);
    },
  );

  test("after confirm leaves the version served, without a second write (L3)", async () => {
    const { index, answer, store, purge } = await setUpVictim("confirmVersions", "after");
    expect(await answer("price")).toEqual([PARAGRAPHS.price100]);
    const ids = idsIn(store);
    expect(await index.indexDue()).toMatchObject({ versions: 0, written: 0 });
    await purge();
    expect(idsIn(store)).toEqual(ids);
  });
});
