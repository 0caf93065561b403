import { expect, test } from "vitest";
import type { IndexWork } from "#src/index-work.js";
import { activate } from "./ledger-under-test.js";
import {
  activeSource,
  advance,
  brokenInvariants,
  claimWork,
  createDerivedIndex,
  createIndex,
  describeWholeLedger,
  type IndexUnderTest,
  purge,
  readNow,
  writeVersion,
} from "./whole-ledger.js";

const URI = "catalog://plans/basic";
const LEASE = { leaseMs: 5_000 };

describeWholeLedger("the cache of embeddings", (ledger) => {
  test("a text is embedded once for all versions that have it, and forgotten with the last of them (L5, P3)", async () => {
    const { session, source, index, cache } = await cached();
    expect(await indexed(index, cache, source, session, "one\ntwo")).toEqual(["one", "two"]);
    expect(await indexed(index, cache, source, session, "one\nthree")).toEqual(["three"]);
    expect(await purge(ledger, cache)).toBe(1);
    expect([...cache.entries.values()].sort()).toEqual(["one", "three"]);
    for (let round = 0; round < 4; round += 1) {
      expect(await indexed(index, cache, source, session, `one\n${round}`)).toEqual([`${round}`]);
    }
    await purge(ledger, cache);
    expect([...cache.entries.values()].sort()).toEqual(["3", "one"]);
    const edges = await ledger.sql<{ edges: number }>(
      "select count(*)::int as edges from fenceline.group_root r where r.index_id = $1 group by r.group_id order by 1 desc",
      [cache.ref.indexId],
    );
    // The first one, the one before, and the current one: not one per version.
    expect(edges[0]?.edges).toBe(3);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a text of another URI is not found, be it the same (L5)", async () => {
    const { session, source, index, cache } = await cached(["catalog://plans/pro"]);
    await indexed(index, cache, source, session, "same");
    await readNow(ledger, session, ["catalog://plans/pro"], () => "same");
    const [work] = await claimWork(ledger, index, source);
    expect(await lookUp(cache, work as IndexWork, ["same"])).toEqual([]);
  });

  test("two readers of one URI share an embedding; it goes when a revocation takes it from the last (L5, P3)", async () => {
    const { session, source, index, cache } = await cached();
    await indexed(index, cache, source, session, "shared");
    const opened = await ledger.openSession({ source, reader: "svc:two", owner: "w", leaseMs: 86_400_000 });
    if (opened.outcome !== "opened") return expect.fail(opened.outcome);
    await activate(ledger, opened.session, [URI]);
    expect(await indexed(index, cache, source, opened.session, "shared")).toEqual([]);
    const first = await ledger.revoke({ source, subject: "svc:rag", reason: "r" });
    await advance(ledger, first.revocationId);
    expect(await purge(ledger, cache)).toBe(0);
    const second = await ledger.revoke({ source, subject: "svc:two", reason: "r" });
    await advance(ledger, second.revocationId);
    expect(await purge(ledger, cache)).toBe(1);
    for (const each of [index, cache]) await purge(ledger, each);
    expect(await ledger.revocation(second.revocationId)).toMatchObject({ state: "COMPLETE" });
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("nothing is attached to a version that is no longer the newest, nor what was purged (L3, L5)", async () => {
    const { session, source, index, cache } = await cached();
    await indexed(index, cache, source, session, "one\ntwo");
    await readNow(ledger, session, [URI], () => "one");
    const [work] = await claimWork(ledger, index, source);
    const hits = await lookUp(cache, work as IndexWork, ["one", "two"]);
    expect(hits).toHaveLength(2);
    await readNow(ledger, session, [URI], () => "other");
    expect(await ledger.attachEmbeddings(cache.ref, work as IndexWork, hits)).toEqual([]);
    await ledger.releaseIndexWork(index.ref, work as IndexWork);
    await indexed(index, cache, source, session, "none of these");
    expect(await purge(ledger, cache)).toBe(2);
    await readNow(ledger, session, [URI], () => "one");
    const [again] = await claimWork(ledger, index, source);
    expect(await ledger.attachEmbeddings(cache.ref, again as IndexWork, hits)).toEqual([]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  async function cached(others: readonly string[] = []) {
    const { session, source } = await activeSource(ledger, [URI, ...others]);
    return { session, source, index: await createIndex(ledger), cache: await createDerivedIndex(ledger) };
  }

  async function lookUp(cache: IndexUnderTest, work: IndexWork, texts: readonly string[]) {
    const chunkDigests = texts.map((text) => ledger.digestChunk(text));
    const found = await ledger.cachedEmbeddings(cache.ref, { work, partId: partOf(work), chunkDigests });
    return [...found.values()];
  }

  const partOf = (work: IndexWork) => work.parts[0]?.partId as number;

  /** Reads a new version and indexes it as a worker with a cache does; the texts that had to be embedded. */
  async function indexed(
    index: IndexUnderTest,
    cache: IndexUnderTest,
    source: string,
    session: Parameters<typeof readNow>[1],
    text: string,
  ): Promise<string[]> {
    await readNow(ledger, session, [URI], () => text);
    const embedded: string[] = [];
    for (const work of await claimWork(ledger, index, source)) {
      const texts = (work.parts[0]?.text ?? "").split("\n");
      const hits = await ledger.attachEmbeddings(cache.ref, work, await lookUp(cache, work, texts));
      const known = hits.map((id) => cache.entries.get(id));
      const missing = texts.filter((each) => !known.includes(each));
      if (missing.length > 0) {
        const chunkDigests = missing.map((each) => ledger.digestChunk(each));
        const [recorded] = await ledger.recordEmbeddings(
          cache.ref,
          [{ work, partId: partOf(work), chunkDigests }],
          LEASE,
        );
        if (recorded?.outcome !== "recorded") return expect.fail(recorded?.outcome);
        for (const [position, id] of recorded.entryIds.entries()) cache.entries.set(id, missing[position] as string);
        expect(await ledger.confirmDerived([recorded.groupId])).toEqual(["confirmed"]);
      }
      embedded.push(...missing);
      const planned = await writeVersion(ledger, index, work);
      expect(await ledger.confirmVersions(index.ref, [planned])).toMatchObject([{ outcome: "confirmed" }]);
    }
    return embedded;
  }
});
