import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Database, openDatabase } from "@fenceline/ledger";
import { copyDatabase, describeWithPostgres } from "@fenceline/test-services";
import { Document } from "@langchain/core/documents";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { EmbeddedVectorStore } from "#src/langchain/embedded-vector-store.js";
import { HashedLexicalEmbeddings } from "#src/langchain/hashed-lexical-embeddings.js";
import { storeAdapterOf } from "#src/langchain/store-adapter.js";
import { describeStoreAdapter } from "./store-conformance.js";

const embeddings = new HashedLexicalEmbeddings();
const [ID_1, ID_2] = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"];

async function openEmbedded(): Promise<{ database: Database; close: () => Promise<void> }> {
  const directory = await mkdtemp(join(tmpdir(), "fenceline-store-"));
  await copyDatabase("database", openDatabase, directory);
  const database = await openDatabase(`file:${directory}`);
  return {
    database,
    close: async () => {
      await database.close();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

describeStoreAdapter("embedded, on PGlite", async () => {
  const { database, close } = await openEmbedded();
  const open = () => storeAdapterOf(new EmbeddedVectorStore(embeddings, { database, collection: "conformance@1" }));
  return { adapter: open(), again: async () => open(), close };
});

describe("embedded vector store on PGlite", () => {
  let database: Database;
  let close: () => Promise<void>;
  const storeOf = (collection: string) => new EmbeddedVectorStore(embeddings, { database, collection });

  beforeAll(async () => {
    ({ database, close } = await openEmbedded());
  });
  afterAll(() => close?.());

  test("an id written again is overwritten, never doubled, even within one batch", async () => {
    const store = storeOf("upsert");
    await store.addDocuments([new Document({ pageContent: "price 100" })], { ids: [ID_1] });
    await store.addDocuments([new Document({ pageContent: "price 110" }), new Document({ pageContent: "price 120" })], {
      ids: [ID_1, ID_1],
    });
    const found = await store.similaritySearch("price", 10);
    expect(found).toEqual([new Document({ id: ID_1, pageContent: "price 120", metadata: {} })]);
    await store.delete({ ids: [ID_1] });
  });

  test("stores that start at once on a fresh database create its table once", async () => {
    const stores = ["a", "b", "c", "d"].map(
      (collection) => new EmbeddedVectorStore(embeddings, { database, schema: "fresh", collection }),
    );
    await Promise.all(stores.map((store) => store.ensureReady()));
    await stores[0]?.addDocuments([new Document({ pageContent: "x", id: ID_1 })]);
    expect(await stores[1]?.present([ID_1, ID_2])).toEqual([ID_1]);
  });

  test("collections do not see each other, while ids are unique over all of them", async () => {
    await storeOf("left").addDocuments([new Document({ pageContent: "left card", id: ID_1 })]);
    await storeOf("right").addDocuments([new Document({ pageContent: "right card", id: ID_2 })]);
    expect((await storeOf("left").similaritySearch("card", 10)).map(({ id }) => id)).toEqual([ID_1]);
    expect(await storeOf("left").present([ID_1, ID_2])).toEqual(expect.arrayContaining([ID_1, ID_2]));
    await storeOf("left").delete({ ids: [ID_1, ID_2] });
    expect(await storeOf("right").similaritySearch("card", 10)).toEqual([]);
  });

  test("everything in a collection is listed, page by page", async () => {
    const store = storeOf("listed");
    const ids = Array.from({ length: 5 }, () => crypto.randomUUID()).sort();
    await store.addDocuments(ids.map((id) => new Document({ id, pageContent: "card" })));
    const first = await store.ids({ limit: 3 });
    const second = await store.ids({ limit: 3, after: first.at(-1) as string });
    expect([first, second]).toEqual([ids.slice(0, 3), ids.slice(3)]);
  });

  test("a search is narrowed by source, uri and mimeType, whatever characters the values have", async () => {
    const store = storeOf("filter");
    const odd = "catalog://plans/'; drop table x; --\u0000";
    await store.addDocuments([
      new Document({ id: ID_1, pageContent: "card", metadata: { source: "a", uri: odd, mimeType: "text/plain" } }),
      new Document({ id: ID_2, pageContent: "card", metadata: { source: "b", uri: "catalog://plans/b" } }),
    ]);
    const idsOf = async (filter: EmbeddedVectorStore["FilterType"]) =>
      (await store.similaritySearch("card", 10, filter)).map(({ id }) => id).sort();
    expect(await idsOf({ uri: odd })).toEqual([ID_1]);
    expect(await idsOf({ source: ["a", "b"] })).toEqual([ID_1, ID_2]);
    expect(await idsOf({ source: "b", mimeType: "text/plain" })).toEqual([]);
    await store.delete({ ids: [ID_1, ID_2] });
  });

  test("a filter key that is not one of three never reaches the SQL", async () => {
    const filter = { "source' = source or '1": "1" } as EmbeddedVectorStore["FilterType"];
    await expect(storeOf("filter").similaritySearch("card", 1, filter)).rejects.toMatchObject({
      code: "store_request_invalid",
    });
  });

  test.each([[undefined], [{}], [{ filter: {} }]])("delete(%j) deletes nothing and says so", async (params) => {
    const store = storeOf("careful");
    await store.addDocuments([new Document({ id: ID_1, pageContent: "card" })]);
    await expect(store.delete(params as { ids?: string[] })).rejects.toMatchObject({ code: "store_request_invalid" });
    expect(await store.present([ID_1])).toEqual([ID_1]);
  });

  test("an id that is no UUID is refused by name", async () => {
    await expect(storeOf("ids").addDocuments([new Document({ id: "card-1", pageContent: "card" })])).rejects.toThrow(
      /"card-1"/,
    );
  });

  test("vectors of another length than the collection's are refused, by a store that starts later too", async () => {
    await storeOf("space").addDocuments([new Document({ id: ID_1, pageContent: "card" })]);
    const mismatch = { code: "embeddings_mismatch", message: expect.stringContaining("1024") as string };
    await expect(storeOf("space").addVectors([[1, 0]], [new Document({ pageContent: "card" })])).rejects.toMatchObject(
      mismatch,
    );
    await expect(storeOf("space").similaritySearchVectorWithScore([1, 0], 1)).rejects.toMatchObject(mismatch);
  });

  test("a batch with one impossible vector leaves nothing behind", async () => {
    const documents = [ID_1, ID_2].map((id) => new Document({ id, pageContent: "card" }));
    await storeOf("atomic").delete({ ids: [ID_1, ID_2] });
    await expect(
      storeOf("atomic").addVectors(
        [
          [1, 0],
          [Number.NaN, 0],
        ],
        documents,
      ),
    ).rejects.toThrow();
    expect(await storeOf("atomic").present([ID_1, ID_2])).toEqual([]);
  });

  test("metadata comes back as it was, U+0000 and halves of characters included", async () => {
    const metadata = { title: "a\u0000b \ud83d", nested: { deep: [1, null] }, draft: false };
    const store = storeOf("metadata");
    await store.addDocuments([new Document({ id: ID_1, pageContent: "card", metadata })]);
    expect((await store.similaritySearch("card", 1))[0]?.metadata).toEqual(metadata);
  });

  test("the score is the cosine similarity", async () => {
    const store = storeOf("score");
    await store.addVectors([[3, 4]], [new Document({ id: ID_1, pageContent: "card" })]);
    const [hit] = await store.similaritySearchVectorWithScore([4, 3], 1);
    expect(hit?.[1]).toBeCloseTo(0.96, 6);
  });

  test("a schema name that is more than a name is refused", () => {
    expect(() => new EmbeddedVectorStore(embeddings, { database, schema: "x; --", collection: "x" })).toThrow(
      expect.objectContaining({ code: "schema_invalid_name" }),
    );
  });
});

describeWithPostgres("embedded vector store on a PostgreSQL without pgvector", (postgresUrl) => {
  test("says pgvector_missing when it is opened, and leaves no table", async ({ skip }) => {
    const database = await openDatabase(postgresUrl);
    try {
      if (await database.ensureVector()) skip("this PostgreSQL has pgvector");
      const open = EmbeddedVectorStore.open(embeddings, { address: postgresUrl, schema: "no_vector", collection: "x" });
      await expect(open).rejects.toMatchObject({ code: "pgvector_missing" });
      expect(await database.query("select from pg_catalog.pg_namespace where nspname = 'no_vector'")).toEqual([]);
    } finally {
      await database.close();
    }
  });
});
