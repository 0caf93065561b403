import { FencelineError, type PurgeClaim, type RevocationLedger } from "@fenceline/ledger";
import { Document } from "@langchain/core/documents";
import { beforeEach, describe, expect, test } from "vitest";
import { BoundedStore } from "#src/langchain/bounded-store.js";
import { purgeStore } from "#src/langchain/purge.js";
import { adaptVectorStore } from "#src/langchain/store-adapter.js";
import { KeyAssigningStore, MemoryStore } from "./memory-stores.js";

/** The purge's side of the ledger: groups wait, are claimed, and confirmed or handed back. */
class PurgeQueue implements Pick<RevocationLedger, "claimPurge" | "confirmPurge" | "releasePurge"> {
  readonly #waiting: PurgeClaim[] = [];
  readonly confirmed: number[] = [];
  /** Groups of each confirmation. */
  readonly confirmations: number[][] = [];
  readonly released: { groups: number[]; failure: string }[] = [];

  readonly reappeared: string[] = [];

  add(groupId: number, entries: PurgeClaim["entries"], sweptBefore = false): void {
    this.#waiting.push({ groupId, claimToken: crypto.randomUUID(), indexId: 1, sweptBefore, entries });
  }

  async claimPurge({ limit }: { limit: number }): Promise<PurgeClaim[]> {
    return this.#waiting.splice(0, limit);
  }

  async confirmPurge(
    _store: string,
    claims: readonly PurgeClaim[],
    { reappeared = [] }: { reappeared?: readonly string[] },
  ): Promise<void> {
    this.confirmed.push(...claims.map(({ groupId }) => groupId));
    this.confirmations.push(claims.map(({ groupId }) => groupId));
    this.reappeared.push(...reappeared);
  }

  async releasePurge(_store: string, claims: readonly PurgeClaim[], failure: string): Promise<void> {
    this.released.push({ groups: claims.map(({ groupId }) => groupId), failure });
  }
}

let store: MemoryStore;
let ledger: PurgeQueue;

beforeEach(() => {
  store = new MemoryStore();
  ledger = new PurgeQueue();
});

const purge = (signal?: AbortSignal) =>
  purgeStore({
    ledger: ledger as unknown as RevocationLedger,
    store: new BoundedStore(adaptVectorStore(store, store), { timeoutMs: 1_000 }),
    name: "main",
    ...(signal && { signal }),
  });

async function written(groupId: number, count: number, sweptBefore = false): Promise<string[]> {
  const ids = Array.from({ length: count }, () => crypto.randomUUID());
  await store.addDocuments(ids.map((id) => new Document({ id, pageContent: `card ${id}`, metadata: { entryId: id } })));
  ledger.add(
    groupId,
    ids.map((entryId) => ({ entryId })),
    sweptBefore,
  );
  return ids;
}

describe("purging a store", () => {
  test("entries are deleted by id and said to be absent only after a look at each (P3)", async () => {
    await written(1, 3);
    const [kept] = await written(2, 700);
    expect(await purge()).toEqual({ groups: 2, entries: 703 });
    expect(ledger.confirmed).toEqual([1, 2]);
    expect(await store.present([kept ?? ""])).toEqual([]);
  });

  test("the ledger is told as it goes, so that large groups make headway within a lease (P5)", async () => {
    for (const [groupId, entries] of [1_500, 400, 100, 1, 2_500, 1].entries()) await written(groupId, entries);
    expect(await purge()).toEqual({ groups: 6, entries: 4_502 });
    expect(ledger.confirmations).toEqual([[0, 1, 2], [3], [4], [5]]);
  });

  test("what never reached the store is absent too (P3)", async () => {
    ledger.add(1, [{ entryId: crypto.randomUUID() }]);
    expect(await purge()).toEqual({ groups: 1, entries: 1 });
  });

  test("an entry that came back after an earlier sweep is deleted again and named (P3)", async () => {
    const [back] = await written(1, 1, true);
    ledger.add(2, [{ entryId: crypto.randomUUID() }], true);
    await written(3, 1);
    expect(await purge()).toEqual({ groups: 3, entries: 3 });
    expect(ledger.reappeared).toEqual([back]);
    expect(store.rows.size).toBe(0);
  });

  test("an entry that is still shown for a while is looked at until it is gone (P3)", async () => {
    const [id] = await written(1, 1);
    let looks = 0;
    const { present } = store;
    store.present = async (keys) => {
      looks += 1;
      return looks < 3 ? [id as string] : present.call(store, keys);
    };
    expect(await purge()).toEqual({ groups: 1, entries: 1 });
    expect(looks).toBe(3);
  });

  test("a group that does not go is handed back with the reason, and does not hold up the others (P5)", async () => {
    const [stuck] = await written(1, 2);
    await written(2, 2);
    const { present } = store;
    store.present = async (keys) => [...(await present.call(store, keys)), ...keys.filter((key) => key === stuck)];
    const result = await purge();
    expect(result).toMatchObject({ groups: 1, entries: 2, failure: { code: "store_purge_unverified" } });
    expect(ledger.confirmed).toEqual([2]);
    expect(ledger.released).toEqual([{ groups: [1], failure: expect.stringContaining("still shows") as string }]);
  });

  test("a store that is down: nothing is confirmed, the failure is recorded (P5)", async () => {
    await written(1, 2);
    store.onCall = () => {
      throw new TypeError("connection refused");
    };
    const { failure } = await purge();
    expect(failure).toBeInstanceOf(FencelineError);
    expect(ledger.confirmed).toEqual([]);
    expect(ledger.released[0]).toMatchObject({ groups: [1], failure: expect.stringContaining("refused") as string });
  });

  test("entries under keys of the store's own are deleted, recorded keys or not (L2, P3)", async () => {
    const assigning = new KeyAssigningStore();
    store = assigning;
    const ids = await written(1, 2);
    const [located] = await assigning.locate([ids[0] as string]);
    ledger.add(2, [{ entryId: ids[0] as string, storeKey: located?.key as string }]);
    expect(await purge()).toMatchObject({ groups: 2 });
    expect(store.rows.size).toBe(0);
  });

  test("a given signal stops before the next page", async () => {
    await written(1, 1);
    expect(await purge(AbortSignal.abort())).toEqual({ groups: 0, entries: 0 });
    expect(ledger.confirmed).toEqual([]);
  });
});
