import { expect, test } from "vitest";
import type { IndexWork } from "#src/index-work.js";
import {
  activeSource,
  advance,
  brokenInvariants,
  claimWork,
  createDerivedIndex,
  createIndex,
  derive,
  describeWholeLedger,
  type IndexUnderTest,
  indexDue,
  purge,
  readNow,
  seen,
  writeVersion,
} from "./whole-ledger.js";

const URI = "catalog://plans/basic";
const READER = ["svc:rag"];

describeWholeLedger("indexes", (ledger) => {
  test("a retired version shows nothing, takes nothing more, and is purged whole (L3, P3)", async () => {
    const { session, source, index } = await indexed();
    expect(await ledger.retireIndex(index.ref.name)).toBe(true);
    expect(await seen(ledger, index, READER)).toEqual([]);
    expect(await ledger.servingIndex(index.ref.name)).toBeUndefined();
    expect(await ledger.findIndex(index.ref.name)).toBeUndefined();
    await readNow(ledger, session, [URI], () => "two");
    expect(await claimWork(ledger, index, source)).toEqual([]);
    expect(await ledger.sql("select 1 from fenceline.outbox where index_id = $1", [index.ref.indexId])).toEqual([]);
    expect(await purge(ledger, index)).toBe(1);
    expect(index.entries.size).toBe(0);
    expect(await ledger.retireIndex(index.ref.name)).toBe(true);
    expect(await ledger.retireIndex("an index that never was")).toBe(false);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("old and new serve side by side until the takeover; then the old one is retired alone (L3)", async () => {
    const { source, index } = await indexed();
    const next = await nextVersion(index);
    expect((await ledger.servingIndex(index.ref.name))?.version).toBe(1);
    await indexDue(ledger, next, source);
    expect((await ledger.servingIndex(index.ref.name))?.version).toBe(2);
    expect(await seen(ledger, index, READER)).toEqual(["one"]);
    expect(await seen(ledger, next, READER)).toEqual(["one"]);
    await ledger.retireIndex(index.ref.name, 1);
    expect(await seen(ledger, index, READER)).toEqual([]);
    expect(await seen(ledger, next, READER)).toEqual(["one"]);
    expect(await purge(ledger, index)).toBe(1);
    expect((await ledger.servingIndex(index.ref.name))?.version).toBe(2);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a version retired before it was complete cannot take over; the one before goes on serving (L3)", async () => {
    const { source, index } = await indexed();
    const next = await nextVersion(index);
    const [work] = await claimWork(ledger, next, source);
    const planned = await writeVersion(ledger, next, work as IndexWork);
    await ledger.retireIndex(index.ref.name, 2);
    expect(await ledger.confirmVersions(next.ref, [planned])).toMatchObject([{ outcome: "index_retired" }]);
    expect((await ledger.servingIndex(index.ref.name))?.version).toBe(1);
    const late = await writeVersion(ledger, next, work as IndexWork);
    expect(late.written).toHaveLength(1);
    expect(await ledger.confirmVersions(next.ref, [late])).toMatchObject([{ outcome: "index_retired" }]);
    await ledger.advanceClock(10_000);
    expect(await purge(ledger, next)).toBe(2);
    await expect(ledger.registerIndex(declared(next))).rejects.toMatchObject({ code: "index_retired" });
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a revocation waits for what a retired index still has in its store (P3)", async () => {
    const { source, index } = await indexed();
    await ledger.retireIndex(index.ref.name);
    const { revocationId } = await ledger.revoke({ source, subject: "svc:rag", reason: "r" });
    await advance(ledger, revocationId);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "EFFECTIVE" });
    expect(await purge(ledger, index)).toBe(1);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE" });
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a retirement that was interrupted is finished by asking again", async () => {
    const { index } = await indexed();
    await ledger.sql("select fenceline.retire_index($1, null)", [index.ref.name]);
    expect(await brokenInvariants(ledger)).toEqual(["retired_index_serves_nothing"]);
    await ledger.retireIndex(index.ref.name);
    expect(await brokenInvariants(ledger)).toEqual([]);
    expect(await purge(ledger, index)).toBe(1);
  });

  test("an index of derived entries serves at once, has no version due, and is retired like any other (L1)", async () => {
    const { session, source, index } = await indexed();
    const answers = await createDerivedIndex(ledger);
    expect(await ledger.servingIndex(answers.ref.name)).toEqual(answers.ref);
    await readNow(ledger, session, [URI], () => "two");
    expect(await claimWork(ledger, answers, source)).toEqual([]);
    await indexDue(ledger, index, source);
    const parents = [{ as: "ingredient" as const, of: { entryId: [...index.entries.keys()].at(-1) as string } }];
    await derive(ledger, answers, { kind: "document", parents, digests: [ledger.digestChunk("d")] }, "document");
    await expect(ledger.registerIndex(declared(answers))).rejects.toMatchObject({
      code: "index_configuration_changed",
    });
    await ledger.retireIndex(answers.ref.name);
    expect(
      await ledger.recordDerived(answers.ref, [{ kind: "document", parents, digests: ["0f".repeat(32)] }], {
        leaseMs: 5_000,
      }),
    ).toEqual([{ outcome: "index_retired" }]);
    expect(await purge(ledger, answers)).toBe(1);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  async function indexed() {
    // What other tests read would wait in every new index as well.
    await ledger.sql("update fenceline.subscription set hidden_because = 'forbidden' where hidden_because is null");
    const { session, source } = await activeSource(ledger, [URI]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [URI], () => "one");
    await indexDue(ledger, index, source);
    return { session, source, index };
  }

  function declared({ ref }: IndexUnderTest) {
    const { name, version, store } = ref;
    return { name, version, store, embeddings: "test", configurationDigest: Buffer.from("configuration") };
  }

  async function nextVersion(index: IndexUnderTest): Promise<IndexUnderTest> {
    const other = await createIndex(ledger);
    const ref = await ledger.registerIndex({ ...declared(index), store: other.ref.store, version: 2 });
    return { ref, entries: new Map() };
  }
});
