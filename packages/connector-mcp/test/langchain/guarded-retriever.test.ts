import { Document } from "@langchain/core/documents";
import { RunnableLambda } from "@langchain/core/runnables";
import { beforeEach, describe, expect, test } from "vitest";
import { BoundedStore } from "#src/langchain/bounded-store.js";
import { GuardedRetriever, type RetrievalOptions } from "#src/langchain/guarded-retriever.js";
import { HashedLexicalEmbeddings } from "#src/langchain/hashed-lexical-embeddings.js";
import { storeAdapterOf } from "#src/langchain/store-adapter.js";
import { MemoryStore } from "./memory-stores.js";
import { ScriptedVisibility, unreachable } from "./scripted-visibility.js";

const embeddings = new HashedLexicalEmbeddings();
const ALICE = { configurable: { asker: ["user:alice", "group:sales"] } };
const BOB = { configurable: { asker: ["user:bob"] } };

let store: MemoryStore;
let ledger: ScriptedVisibility;
/** What the store and the ledger were asked, in order. */
let calls: string[];

beforeEach(() => {
  store = new MemoryStore(embeddings);
  ledger = new ScriptedVisibility();
  calls = [];
});

function retrieverOf(options: RetrievalOptions = {}): GuardedRetriever {
  const bounded = new BoundedStore(storeAdapterOf(store), { timeoutMs: 1_000 });
  return new GuardedRetriever({ ...options, ledger, index: "main", store: bounded, embeddings });
}

async function addCard(id: string, pageContent: string): Promise<void> {
  await store.addDocuments([new Document({ id, pageContent, metadata: { source: "catalog", uri: "as written" } })]);
}

/** Cards that answer the question "plan" in this order, the first one best. */
async function addCards(count: number, show?: (position: number) => boolean): Promise<void> {
  const direction = await embeddings.embedQuery("plan");
  for (let position = 0; position < count; position += 1) {
    const id = `card-${position}`;
    const vector = direction.map((value) => value * (1 - position / 1_000));
    await store.addVectors([vector], [new Document({ id, pageContent: id, metadata: { source: "catalog" } })]);
    if (show?.(position)) ledger.show(id, ["user:alice"]);
  }
}

describe("guarded retriever", () => {
  test("each asker of a batch sees what is granted to that asker, however the calls interleave (G2)", async () => {
    await addCard("a", "the basic plan of alice");
    await addCard("b", "the basic plan of bob");
    ledger.show("a", ["group:sales"]);
    ledger.show("b", ["user:bob"]);
    let release = () => {};
    const bothAsk = new Promise<void>((resolve) => {
      release = resolve;
    });
    ledger.onQuery = async (asker) => {
      if (asker.includes("user:bob")) release();
      await bothAsk; // alice's answer is ready only after bob asked
    };
    const answers = await retrieverOf().batch(["basic plan", "basic plan"], [ALICE, BOB]);
    expect(answers.map((documents) => documents.map(({ id }) => id))).toEqual([["a"], ["b"]]);
  });

  test.each([
    ["no config", undefined],
    ["no asker", { configurable: {} }],
    ["an asker in metadata instead", { metadata: { asker: ["user:alice"] } }],
    ["an empty list", { configurable: { asker: [] } }],
    ["a bare name", { configurable: { asker: "user:alice" } }],
    ["an empty name", { configurable: { asker: ["user:alice", ""] } }],
  ])("%s: nothing is searched, nothing is shown (G2)", async (_what, config) => {
    await addCards(1, () => true);
    store.onCall = () => void calls.push("store");
    await expect(retrieverOf().invoke("plan", config)).rejects.toMatchObject({ code: "asker_missing" });
    await expect(retrieverOf()._getRelevantDocuments("plan")).rejects.toMatchObject({ code: "asker_missing" });
    expect(calls).toEqual([]);
  });

  test("inside a chain the asker comes along with the config", async () => {
    await addCards(1, () => true);
    const chain = RunnableLambda.from((question: string) => question).pipe(retrieverOf());
    expect((await chain.invoke("plan", ALICE)).map(({ id }) => id)).toEqual(["card-0"]);
  });

  test("the ledger is asked after the store, so a revocation that replied before is always seen (P2)", async () => {
    await addCards(3, () => true);
    store.onCall = () => {
      calls.push("store");
      ledger.hide("card-0"); // the revocation replies while the store still answers with the entry
    };
    ledger.onQuery = () => void calls.push("ledger");
    const documents = await retrieverOf().invoke("plan", ALICE);
    expect(documents.map(({ id }) => id)).not.toContain("card-0");
    expect(calls[0]).toBe("store");
    expect(calls.at(-1)).toBe("ledger");
  });

  test("an entry seen in an earlier round is asked about again: revoked meanwhile, it is not shown (P2)", async () => {
    await addCards(60, (position) => position === 0 || position > 40);
    ledger.onQuery = () => {
      if (ledger.queries.length === 2) ledger.hide("card-0");
    };
    const { hits } = await retrieverOf({ k: 4 }).search("plan", { asker: ["user:alice"] });
    expect(ledger.queries[0]).toContain("card-0");
    expect(hits.map(({ id }) => id)).not.toContain("card-0");
    expect(hits).toHaveLength(4);
  });

  test("looks further until k are visible, with one question to the ledger per round", async () => {
    await addCards(100, (position) => position >= 90);
    const { hits, truncated } = await retrieverOf({ k: 3 }).search("plan", { asker: ["user:alice"] });
    expect(hits).toHaveLength(3);
    expect(truncated).toBe(false);
    expect(ledger.queries.map(({ length }) => length)).toEqual([10, 20, 40, 80, 100]);
  });

  test.each([0, -1, 1.5, Number.NaN])("k or maxCandidates of %d is refused", async (count) => {
    await addCards(3, () => true);
    expect(() => retrieverOf({ k: count })).toThrow("whole number above 0");
    expect(() => retrieverOf({ maxCandidates: count })).toThrow("whole number above 0");
    const search = retrieverOf().search("plan", { asker: ["user:alice"], k: count });
    await expect(search).rejects.toMatchObject({ code: "assertion_failed" });
  });

  test("says truncated when it stops at maxCandidates with fewer than k, and not when there is no more", async () => {
    await addCards(100, (position) => position >= 98);
    const short = await retrieverOf({ k: 3, maxCandidates: 40 }).search("plan", { asker: ["user:alice"] });
    expect(short).toEqual({ hits: [], truncated: true });
    const all = await retrieverOf({ k: 3 }).search("plan", { asker: ["user:alice"] });
    expect(all).toMatchObject({ truncated: false });
    expect(all.hits).toHaveLength(2);
  });

  test("a version that takes over between the store's answer and the ledger's is found, not lost (L3)", async () => {
    await addCard("old", "the basic plan costs 100");
    ledger.show("old", ["user:alice"]);
    let takenOver = false;
    ledger.onQuery = async () => {
      if (takenOver) return;
      takenOver = true;
      await addCard("new", "the basic plan costs 120");
      ledger.hide("old");
      ledger.show("new", ["user:alice"]);
    };
    const documents = await retrieverOf().invoke("basic plan", ALICE);
    expect(documents.map(({ pageContent }) => pageContent)).toEqual(["the basic plan costs 120"]);
  });

  test("what somebody else wrote into the store, without a record, is never shown", async () => {
    await store.addDocuments([new Document({ pageContent: "plan" })]);
    expect(await retrieverOf().invoke("plan", ALICE)).toEqual([]);
  });

  test.each([["exclude_changed" as const], [{ waitMs: 30 }]])(
    "after a change was announced the old price is not an answer, under policy %j (§9)",
    async (freshness) => {
      await addCard("price", "basic plan price=100");
      ledger.show("price", ["user:alice"], "changed");
      expect(await retrieverOf({ freshness }).invoke("price", ALICE)).toEqual([]);
    },
  );

  test("marked, the old price is shown as changed, with the time it was confirmed (§9)", async () => {
    await addCard("price", "basic plan price=100");
    ledger.show("price", ["user:alice"], "changed", new Date("2026-01-02T03:04:05Z"));
    const [document] = await retrieverOf({ freshness: "mark" }).invoke("price", ALICE);
    expect(document?.metadata).toMatchObject({ freshness: "changed", verifiedAt: "2026-01-02T03:04:05.000Z" });
  });

  test("waiting ends as soon as the new version is there, and answers with it (§9)", async () => {
    await addCard("old", "price=100");
    ledger.show("old", ["user:alice"], "changed");
    ledger.onQuery = async () => {
      if (ledger.queries.length !== 2) return;
      ledger.hide("old");
      await addCard("new", "price=120");
      ledger.show("new", ["user:alice"]);
    };
    const startedAt = performance.now();
    const documents = await retrieverOf({ freshness: { waitMs: 20_000 } }).invoke("price", ALICE);
    expect(documents.map(({ pageContent }) => pageContent)).toEqual(["price=120"]);
    expect(performance.now() - startedAt).toBeLessThan(5_000);
  });

  test("a changed entry behind the k best does not make anyone wait (§9)", async () => {
    await addCard("near", "price of the basic plan");
    await addCard("far", "price list of everything else that we have in the house");
    ledger.show("near", ["user:alice"]);
    ledger.show("far", ["user:alice"], "changed");
    const documents = await retrieverOf({ k: 1, freshness: { waitMs: 20_000 } }).invoke(
      "price of the basic plan",
      ALICE,
    );
    expect(documents.map(({ id }) => id)).toEqual(["near"]);
    expect(ledger.queries).toHaveLength(1);
  });

  test("with a bound, what was confirmed longer ago or never is left out; without one it is shown with its age (§9)", async () => {
    const minutesAgo = (minutes: number) => new Date(Date.now() - minutes * 60_000);
    await addCards(3);
    ledger.show("card-0", ["user:alice"], "fresh", minutesAgo(1));
    ledger.show("card-1", ["user:alice"], "expired", minutesAgo(30));
    await addCard("never", "plan");
    ledger.show("never", ["user:alice"], "unverified");
    ledger.show("card-2", ["user:alice"], "unverified", minutesAgo(2));
    const idsWith = async (options: RetrievalOptions) =>
      (await retrieverOf(options).invoke("plan", ALICE)).map(({ id }) => id).sort();
    expect(await idsWith({})).toEqual(["card-0", "card-1", "card-2", "never"]);
    expect(await idsWith({ maxStalenessMs: 10 * 60_000 })).toEqual(["card-0", "card-2", "never"]);
  });

  test("the version shown names uri, source and lineage, not what the store wrote long ago (L3)", async () => {
    await addCard("card", "plan");
    ledger.show("card", ["user:alice"]);
    const [document] = await retrieverOf().invoke("plan", ALICE);
    expect(document).toMatchObject({
      id: "card",
      metadata: { uri: "catalog://plans/card", source: "catalog", lineageId: "lineage-card", truncated: false },
    });
    expect(JSON.stringify(document)).not.toContain("svc:rag");
  });

  test("with the ledger away there is no answer, not an unguarded one", async () => {
    await addCards(3, () => true);
    ledger.onQuery = unreachable;
    await expect(retrieverOf().invoke("plan", ALICE)).rejects.toMatchObject({ code: "database_unreachable" });
  });

  test("a signal that was given before ends the call before anything is asked", async () => {
    await addCards(1, () => true);
    store.onCall = () => void calls.push("store");
    const config = { ...ALICE, signal: AbortSignal.abort() };
    await expect(retrieverOf().invoke("plan", config)).rejects.toMatchObject({ code: "request_aborted" });
    expect(calls).toEqual([]);
  });

  test("a signal given while the store thinks ends the call at once", async () => {
    await addCards(1, () => true);
    const abort = new AbortController();
    store.onCall = () => {
      abort.abort();
      return new Promise(() => {});
    };
    const call = retrieverOf().invoke("plan", { ...ALICE, signal: abort.signal });
    await expect(call).rejects.toMatchObject({ code: "request_aborted" });
  });

  test("tracers get the question and the documents, not who asks", async () => {
    await addCards(1, () => true);
    const traced: unknown[] = [];
    const callbacks = [
      {
        handleRetrieverStart: (...seen: unknown[]) => void traced.push(seen),
        handleRetrieverEnd: (...seen: unknown[]) => void traced.push(seen),
      },
    ];
    await retrieverOf().invoke("plan", { ...ALICE, callbacks });
    expect(traced).toHaveLength(2);
    expect(JSON.stringify(traced)).not.toMatch(/alice|sales/);
  });
});
