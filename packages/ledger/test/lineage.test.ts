import { createHmac, randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import type { IndexWork } from "#src/index-work.js";
import { activate } from "./ledger-under-test.js";
import {
  activeSource,
  advance,
  brokenInvariants,
  claimWork,
  createIndex,
  describeWholeLedger,
  indexDue,
  purge,
  readNow,
  seen,
  writeVersion,
} from "./whole-ledger.js";

const URI = "catalog://plans/basic";
const READER = ["svc:rag"];

describeWholeLedger("lineage", (ledger) => {
  /** One resource with a first version that waits to be indexed. */
  async function oneVersion(text = "one\ntwo") {
    const { session, source, ids } = await activeSource(ledger, [URI]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [URI], () => text);
    return { session, source, index, id: ids[0] as number };
  }

  async function onlyWork(index: Awaited<ReturnType<typeof createIndex>>, source: string): Promise<IndexWork> {
    const work = await claimWork(ledger, index, source);
    expect(work).toHaveLength(1);
    return work[0] as IndexWork;
  }

  test("an entry has its record before it is in any store, and is visible only once confirmed (L2, L3)", async () => {
    const { index, source } = await oneVersion();
    const work = await onlyWork(index, source);
    expect(work).toMatchObject({ source, reader: "svc:rag", uri: URI, ordinal: 1, present: [] });
    expect(work.parts.map(({ text }) => text)).toEqual(["one\ntwo"]);
    const planned = await writeVersion(ledger, index, work);
    expect([...index.entries.values()]).toEqual(["one", "two"]);
    expect(await ledger.recordedEntries(index.ref.name, { limit: 10 })).toEqual([]);
    expect(await seen(ledger, index, READER)).toEqual([]);
    expect(await ledger.confirmVersions(index.ref, [planned])).toEqual([
      { lineageId: work.lineageId, outcome: "confirmed" },
    ]);
    expect(await seen(ledger, index, READER)).toEqual(["one", "two"]);
    expect(await ledger.recordedEntries(index.ref.name, { limit: 10 })).toEqual([...index.entries.keys()]);
    expect(await claimWork(ledger, index, source)).toEqual([]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a new version replaces the old entries in one step; unchanged chunks are not written again (L3)", async () => {
    const { session, index, source } = await oneVersion("one\ntwo\nthree");
    await indexDue(ledger, index, source);
    const before = new Map(index.entries);
    await readNow(ledger, session, [URI], () => "one\n2\nthree");
    const work = await onlyWork(index, source);
    expect(work.present.map(({ entryId }) => before.get(entryId))).toEqual(["one", "two", "three"]);
    const planned = await writeVersion(ledger, index, work);
    expect(planned.reused.map((id) => before.get(id))).toEqual(["one", "three"]);
    expect(planned.written.flatMap(({ entryIds }) => entryIds)).toHaveLength(1);
    expect(await seen(ledger, index, READER)).toEqual(["one", "three", "two"]);
    await ledger.confirmVersions(index.ref, [planned]);
    expect(await seen(ledger, index, READER)).toEqual(["2", "one", "three"]);
    expect(await purge(ledger, index)).toBe(1);
    expect([...index.entries.values()].sort()).toEqual(["2", "one", "three"]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a failure before confirm leaves the old version serving, and the version due again (L3)", async () => {
    const { session, index, source } = await oneVersion("old");
    await indexDue(ledger, index, source);
    await readNow(ledger, session, [URI], () => "new");
    const work = await onlyWork(index, source);
    const { written } = await writeVersion(ledger, index, work);
    await ledger.abandonIntents(written.map(({ groupId }) => groupId));
    await ledger.releaseIndexWork(index.ref, work, "embedding failed");
    expect(await seen(ledger, index, READER)).toEqual(["old"]);
    expect(await claimWork(ledger, index, source)).toEqual([]);
    await ledger.advanceClock(1_000);
    expect(await indexDue(ledger, index, source)).toEqual({ [URI]: "confirmed" });
    expect(await seen(ledger, index, READER)).toEqual(["new"]);
    expect(await purge(ledger, index)).toBe(2);
    expect([...index.entries.values()]).toEqual(["new"]);
  });

  test("a version without content is confirmed and replaces what was there (L3)", async () => {
    const { session, index, source } = await oneVersion("one");
    await indexDue(ledger, index, source);
    await readNow(ledger, session, [URI], () => "");
    expect(await indexDue(ledger, index, source)).toEqual({ [URI]: "confirmed" });
    expect(await seen(ledger, index, READER)).toEqual([]);
    expect(await purge(ledger, index)).toBe(1);
  });

  test("a version accepted while the one before is written makes it due again, and both are confirmed in turn (L3)", async () => {
    const { session, index, source } = await oneVersion("first");
    const work = await onlyWork(index, source);
    const planned = await writeVersion(ledger, index, work);
    await readNow(ledger, session, [URI], () => "second");
    expect(await claimWork(ledger, index, source)).toEqual([]);
    expect(await ledger.confirmVersions(index.ref, [planned])).toMatchObject([{ outcome: "confirmed" }]);
    expect(await seen(ledger, index, READER)).toEqual(["first"]);
    expect(await indexDue(ledger, index, source)).toEqual({ [URI]: "confirmed" });
    expect(await seen(ledger, index, READER)).toEqual(["second"]);
  });

  test("a claim that is renewed outlasts its first end, and one that another worker took stays that one's (L3)", async () => {
    const { index, source } = await oneVersion("text");
    const work = await onlyWork(index, source);
    const long = { leaseMs: 3_600_000 };
    for (let renewals = 0; renewals < 3; renewals += 1) {
      await ledger.advanceClock(9_000);
      await ledger.renewIndexWork(index.ref, [work], long);
    }
    await ledger.advanceClock(9_000);
    expect(await claimWork(ledger, index, source)).toEqual([]);
    const slow = await writeVersion(ledger, index, work);
    await ledger.advanceClock(1_000);
    const taken = await onlyWork(index, source);
    await ledger.renewIndexWork(index.ref, [work], long);
    expect(await ledger.confirmVersions(index.ref, [slow])).toMatchObject([{ outcome: "claim_lost" }]);
    const quick = await writeVersion(ledger, index, taken);
    await ledger.advanceClock(10_000);
    await ledger.renewIndexWork(index.ref, [taken], long);
    expect(await ledger.confirmVersions(index.ref, [quick])).toMatchObject([{ outcome: "confirmed" }]);
  });

  test("a claim that ended is another worker's; the first is refused and what it wrote is removed (L3, P4)", async () => {
    const { index, source } = await oneVersion("text");
    const slow = await writeVersion(ledger, index, await onlyWork(index, source));
    await ledger.advanceClock(10_000);
    expect(await ledger.confirmVersions(index.ref, [slow])).toMatchObject([{ outcome: "claim_lost" }]);
    const quick = await writeVersion(ledger, index, await onlyWork(index, source));
    expect(await ledger.confirmVersions(index.ref, [slow])).toMatchObject([{ outcome: "claim_lost" }]);
    expect(await ledger.confirmVersions(index.ref, [quick])).toMatchObject([{ outcome: "confirmed" }]);
    expect(await ledger.confirmVersions(index.ref, [slow])).toMatchObject([{ outcome: "superseded" }]);
    expect(await purge(ledger, index)).toBe(1);
    expect(await seen(ledger, index, READER)).toEqual(["text"]);
    expect([...index.entries.values()]).toEqual(["text"]);
  });

  test("an intent is not purged while its worker may still come to confirm, though its write must have ended (L2, P4)", async () => {
    const { index, source } = await oneVersion("text");
    const planned = await writeVersion(ledger, index, await onlyWork(index, source));
    await ledger.advanceClock(6_000);
    expect(await purge(ledger, index)).toBe(0);
    expect(await ledger.confirmVersions(index.ref, [planned])).toMatchObject([{ outcome: "confirmed" }]);
    expect(await seen(ledger, index, READER)).toEqual(["text"]);
  });

  test("a confirm whose answer was lost answers the same again, and takes nothing away (L3)", async () => {
    const { index, source } = await oneVersion("text");
    const planned = await writeVersion(ledger, index, await onlyWork(index, source));
    await ledger.confirmVersions(index.ref, [planned]);
    expect(await ledger.confirmVersions(index.ref, [planned])).toMatchObject([{ outcome: "confirmed" }]);
    await ledger.abandonIntents(planned.written.map(({ groupId }) => groupId));
    expect(await purge(ledger, index)).toBe(0);
    expect(await seen(ledger, index, READER)).toEqual(["text"]);
  });

  test("a late confirm of an older version never replaces a newer one (L3)", async () => {
    const { session, index, source } = await oneVersion("first");
    const first = await writeVersion(ledger, index, await onlyWork(index, source));
    await ledger.advanceClock(10_000);
    await readNow(ledger, session, [URI], () => "second");
    await indexDue(ledger, index, source);
    expect(await ledger.confirmVersions(index.ref, [first])).toMatchObject([{ outcome: "superseded" }]);
    expect(await seen(ledger, index, READER)).toEqual(["second"]);
  });

  test("a version that reuses an entry purged meanwhile is refused whole (L3, P3)", async () => {
    const { session, index, source } = await oneVersion("one");
    await indexDue(ledger, index, source);
    await readNow(ledger, session, [URI], () => "two");
    await indexDue(ledger, index, source);
    await readNow(ledger, session, [URI], () => "one\nthree");
    const planned = await writeVersion(ledger, index, await onlyWork(index, source));
    expect(planned.reused).toHaveLength(1);
    await purge(ledger, index);
    expect(await ledger.confirmVersions(index.ref, [planned])).toMatchObject([{ outcome: "group_gone" }]);
    expect(await seen(ledger, index, READER)).toEqual(["two"]);
    await ledger.advanceClock(10_000);
    expect(await indexDue(ledger, index, source)).toEqual({ [URI]: "confirmed" });
    expect(await seen(ledger, index, READER)).toEqual(["one", "three"]);
  });

  test("an entry id of another ledger is refused like one that is gone (L5)", async () => {
    const { index, source } = await oneVersion("one");
    const planned = await writeVersion(ledger, index, await onlyWork(index, source));
    const reused = [randomUUID()];
    expect(await ledger.confirmVersions(index.ref, [{ ...planned, reused }])).toMatchObject([
      { outcome: "group_gone" },
    ]);
  });

  test("equal content read by two readers is stored once, and goes when the last one loses it (L5)", async () => {
    const one = await activeSource(ledger, [URI]);
    const index = await createIndex(ledger);
    await readNow(ledger, one.session, [URI], () => "shared\nmore");
    await indexDue(ledger, index, one.source);
    const two = await secondReader(one.source);
    await readNow(ledger, two, [URI], () => "shared");
    const [work] = await claimWork(ledger, index, one.source);
    const planned = await writeVersion(ledger, index, work as IndexWork);
    expect(planned.written).toEqual([]);
    expect(await ledger.confirmVersions(index.ref, [planned])).toMatchObject([{ outcome: "confirmed" }]);
    expect(await seen(ledger, index, ["svc:two"])).toEqual(["shared"]);
    expect(await seen(ledger, index, READER)).toEqual(["more", "shared"]);
    expect(index.entries.size).toBe(2);

    await readNow(ledger, one.session, [URI], () => "other");
    await indexDue(ledger, index, one.source);
    expect(await purge(ledger, index)).toBe(1);
    expect(await seen(ledger, index, ["svc:two"])).toEqual(["shared"]);
    await readNow(ledger, two, [URI], () => "other");
    await indexDue(ledger, index, one.source);
    expect(await purge(ledger, index)).toBe(1);
    expect([...index.entries.values()]).toEqual(["other"]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("readers that reuse different halves of one group in one confirm each keep theirs (L3, L5)", async () => {
    const one = await activeSource(ledger, [URI]);
    const index = await createIndex(ledger);
    await readNow(ledger, one.session, [URI], () => "a\nb\nc\nd");
    await indexDue(ledger, index, one.source);
    const two = await secondReader(one.source);
    await readNow(ledger, one.session, [URI], () => "a\nb\nc");
    await readNow(ledger, two, [URI], () => "b\nc\nd");
    expect(Object.values(await indexDue(ledger, index, one.source))).toEqual(["confirmed"]);
    expect(await seen(ledger, index, READER)).toEqual(["a", "b", "c"]);
    expect(await seen(ledger, index, ["svc:two"])).toEqual(["b", "c", "d"]);
    expect(await purge(ledger, index)).toBe(0);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("ids of entries are never used again (L5)", async () => {
    const { session, index, source } = await oneVersion("a");
    const ids = new Set<string>();
    for (let round = 0; round < 3; round += 1) {
      await indexDue(ledger, index, source);
      for (const id of index.entries.keys()) ids.add(id);
      await readNow(ledger, session, [URI], () => `${round}`);
      await indexDue(ledger, index, source);
      for (const id of index.entries.keys()) ids.add(id);
      await purge(ledger, index);
      await readNow(ledger, session, [URI], () => "a");
    }
    expect(ids.size).toBe(6);
  });

  test("a chunk that outlives many versions keeps two edges, not one per version (L3)", async () => {
    const { session, index, source, id } = await oneVersion("stays\n0");
    for (let round = 1; round < 6; round += 1) {
      await indexDue(ledger, index, source);
      await readNow(ledger, session, [URI], () => `stays\n${round}`);
    }
    await indexDue(ledger, index, source);
    const edges = await ledger.sql<{ edges: number }>(
      `select count(*)::int as edges from fenceline.group_root r join fenceline.entry_group g using (group_id)
       where r.subscription_id = $1 and g.state = 'PRESENT' group by g.group_id order by edges desc limit 1`,
      [id],
    );
    expect(edges).toEqual([{ edges: 2 }]);
    expect(await seen(ledger, index, READER)).toEqual(["5", "stays"]);
  });

  test("a digest of a chunk is keyed: it is the HMAC under the ledger's key, not a hash of the text (P8)", async () => {
    const [identity] = await ledger.sql<{ digest_key: Buffer }>("select digest_key from fenceline.identity");
    const expected = createHmac("sha256", identity?.digest_key as Buffer)
      .update("chunk")
      .digest("hex");
    expect(ledger.digestChunk("chunk")).toBe(expected);
    expect(await ledger.sql("select encode(fenceline.keyed_digest('chunk'), 'hex') as digest")).toEqual([
      { digest: expected },
    ]);
  });

  test("nothing is claimed for a subscription that is hidden or that a revocation closed (F7, P2)", async () => {
    const { index, source, id } = await oneVersion();
    await ledger.sql(
      "update fenceline.subscription set hidden_because = 'tombstone_pending' where subscription_id = $1",
      [id],
    );
    expect(await claimWork(ledger, index, source)).toEqual([]);
    await ledger.sql("update fenceline.subscription set hidden_because = null where subscription_id = $1", [id]);
    const { revocationId } = await ledger.revoke({ source, subject: "svc:rag", reason: "r" });
    await advance(ledger, revocationId);
    expect(await claimWork(ledger, index, source)).toEqual([]);
  });

  test("what was accepted before an unsubscription is indexed after it, and stays, also in an index built later (U10)", async () => {
    const { session, index, source } = await oneVersion("written");
    const planned = await writeVersion(ledger, index, await onlyWork(index, source));
    const [closing] = await ledger.beginUnsubscribe(session, [URI]);
    expect(await ledger.confirmVersions(index.ref, [planned])).toMatchObject([{ outcome: "confirmed" }]);
    await ledger.settleUnsubscribe(session, [closing?.subscriptionId as number], "acknowledged");
    const { name, store } = index.ref;
    const embeddings = "test";
    const ref = await ledger.registerIndex({
      name,
      version: 2,
      store,
      embeddings,
      configurationDigest: Buffer.from("2"),
    });
    const next = { ref, entries: new Map<string, string>() };
    expect(await indexDue(ledger, next, source)).toEqual({ [URI]: "confirmed" });
    expect(await seen(ledger, next, READER)).toEqual(["written"]);
    const { revocationId } = await ledger.revoke({ source, subject: "svc:rag", reason: "r" });
    expect(await seen(ledger, next, READER)).toEqual([]);
    await advance(ledger, revocationId);
    expect(await purge(ledger, next)).toBe(1);
    const later = await createIndex(ledger);
    expect(
      await ledger.sql("select 1 from fenceline.outbox where index_id = $1 and subscription_id = $2", [
        later.ref.indexId,
        closing?.subscriptionId,
      ]),
    ).toEqual([]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("an index registered later gets what was accepted before; another configuration is refused (L3)", async () => {
    const { session, source } = await activeSource(ledger, [URI]);
    await readNow(ledger, session, [URI], () => "before");
    const index = await createIndex(ledger);
    expect(await indexDue(ledger, index, source)).toEqual({ [URI]: "confirmed" });
    const { name, store } = index.ref;
    const registration = {
      name,
      version: 1,
      store,
      embeddings: "test",
      configurationDigest: Buffer.from("configuration"),
    };
    expect(await ledger.registerIndex(registration)).toEqual(index.ref);
    await expect(
      ledger.registerIndex({ ...registration, configurationDigest: Buffer.from("changed") }),
    ).rejects.toMatchObject({ code: "index_configuration_changed" });
    await expect(ledger.registerIndex({ ...registration, store: "nowhere" })).rejects.toMatchObject({
      code: "store_unknown",
    });
  });

  test("a new version of an index takes over when everything that waited in it is confirmed (L3)", async () => {
    const { session, source } = await activeSource(ledger, [URI]);
    await readNow(ledger, session, [URI], () => "text");
    const first = await createIndex(ledger);
    await claimAndConfirmAll(first);
    expect(await ledger.servingIndex(first.ref.name)).toEqual(first.ref);
    const ref = await ledger.registerIndex({
      name: first.ref.name,
      version: 2,
      store: first.ref.store,
      embeddings: "other",
      configurationDigest: Buffer.from("2"),
    });
    expect(await ledger.findIndex(first.ref.name)).toEqual(ref);
    expect(await ledger.servingIndex(first.ref.name)).toEqual(first.ref);
    await claimAndConfirmAll({ ref, entries: first.entries });
    expect(await ledger.servingIndex(first.ref.name)).toEqual(ref);
    expect(await ledger.findIndex("no such index")).toBeUndefined();
    expect(source).toBe(session.source);
  });

  test("every page of a loader is recorded as an export, and holds accepted versions only (L6)", async () => {
    const uris = ["catalog://plans/a", "catalog://plans/b", "catalog://plans/c"];
    const { session, source } = await activeSource(ledger, uris);
    await readNow(ledger, session, uris.slice(0, 2), (uri) => `text of ${uri}`);
    const page = { source, reader: "svc:rag", destination: "notebook", limit: 1 };
    const [first] = await ledger.exportVersions(page);
    expect(first).toMatchObject({ source, reader: "svc:rag", present: [], ordinal: 1 });
    expect(first?.parts).toMatchObject([{ uri: first?.uri, text: `text of ${first?.uri}` }]);
    const rest = await ledger.exportVersions({ ...page, limit: 10, afterId: first?.subscriptionId as number });
    expect([first, ...rest].map((each) => each?.uri).sort()).toEqual(uris.slice(0, 2));
    expect(
      await ledger.sql(
        `select e.destination from fenceline.export e join fenceline.subscription s using (subscription_id)
         where s.scope_id = $1`,
        [session.scopeId],
      ),
    ).toEqual([{ destination: "notebook" }, { destination: "notebook" }]);
    expect(await ledger.exportVersions({ ...page, reader: "svc:nobody" })).toEqual([]);
  });

  /** A second reader of the same source, with the same URI active. */
  async function secondReader(source: string) {
    const opened = await ledger.openSession({ source, reader: "svc:two", owner: "worker-2", leaseMs: 86_400_000 });
    if (opened.outcome !== "opened") return expect.fail(`the session is ${opened.outcome}`);
    await activate(ledger, opened.session, [URI]);
    return opened.session;
  }

  async function claimAndConfirmAll(index: Awaited<ReturnType<typeof createIndex>>) {
    for (;;) {
      const work = await ledger.claimIndexWork(index.ref, { limit: 100, leaseMs: 10_000 });
      if (work.length === 0) return;
      const planned = [];
      for (const each of work) planned.push(await writeVersion(ledger, index, each));
      await ledger.confirmVersions(index.ref, planned);
    }
  }
});
