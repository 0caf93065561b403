import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { type EntryIdParts, formatEntryId, parseEntryId } from "#src/entry-id.js";
import { publish, scan } from "./ledger-under-test.js";
import {
  activeSource,
  advance,
  brokenInvariants,
  createIndex,
  describeWholeLedger,
  indexDue,
  purge,
  readNow,
} from "./whole-ledger.js";

const URI = "catalog://plans/basic";

describeWholeLedger("audit", (ledger) => {
  async function indexed() {
    const { session, source, ids } = await activeSource(ledger, [URI]);
    await ledger.recordCapabilities(session, {
      era: "modern",
      protocolVersion: "2026-07-28",
      server: { name: "catalogue", version: "1.2.3" },
      resources: true,
      subscribe: true,
      listChanged: true,
    });
    const index = await createIndex(ledger);
    await readNow(ledger, session, [URI], () => "one\ntwo");
    await indexDue(ledger, index, source);
    return { session, source, index, id: ids[0] as number };
  }

  test("a URI leads to everything derived from it, an entry to version, read, scan, session, reader, server (L4)", async () => {
    const { session, source, index, id } = await indexed();
    const [first, second] = [...index.entries.keys()];
    const ofUri = (await ledger.trace({ uri: "CATALOG://plans/basic" })).versions.filter(
      (version) => version.source === source,
    );
    expect(ofUri).toHaveLength(1);
    expect(ofUri[0]).toMatchObject({
      lineageId: `${id}.1`,
      uri: URI,
      ordinal: 1,
      source,
      reader: "svc:rag",
      session: session.sessionId,
      server: "catalogue 1.2.3",
    });
    expect(ofUri[0]?.scan).toBeGreaterThan(0);
    expect(ofUri[0]?.digest).toMatch(/^[0-9a-f]{64}$/);
    const mine = ofUri[0]?.entries.filter((entry) => entry.index === index.ref.name);
    expect(mine).toEqual(
      [first, second].map((entry) => ({
        index: index.ref.name,
        store: index.ref.store,
        kind: "chunk",
        id: entry,
        state: "CURRENT",
      })),
    );
    const reads = await ledger.sql<{ request_id: string }>(
      "select request_id from fenceline.read where subscription_id = $1",
      [id],
    );
    expect(ofUri[0]?.readId).toBe(reads[0]?.request_id);
    const ofEntry = await ledger.trace({ entry: second as string });
    expect(ofEntry.entry).toBe(second);
    expect(ofEntry.versions.map(({ lineageId, entries }) => [lineageId, entries.map((entry) => entry.id)])).toEqual([
      [`${id}.1`, [second]],
    ]);
    expect(await ledger.trace({ entry: randomUUID() })).toMatchObject({ versions: [] });
    expect(await ledger.trace({ uri: "catalog://nowhere" })).toEqual({
      uri: "catalog://nowhere",
      versions: [],
      derivations: [],
    });
  });

  test("after a purge a trace answers from what remains, without a digest (L4, P8)", async () => {
    const { source, index } = await indexed();
    const { revocationId } = await ledger.revoke({ source, subject: "svc:rag", reason: "r" });
    await advance(ledger, revocationId);
    const traced = async () =>
      (await ledger.trace({ uri: URI })).versions.filter((version) => version.source === source);
    expect((await traced())[0]?.entries.map(({ state }) => state)).toEqual(["REVOKED", "REVOKED"]);
    await purge(ledger, index);
    const [version] = await traced();
    expect(version).toMatchObject({ ordinal: 1, reader: "svc:rag", server: "catalogue 1.2.3", digest: undefined });
    expect(version?.entries.map(({ state }) => state)).toEqual(["PURGED", "PURGED"]);
  });

  test("a part's URI leads to the directory's version and the entries of that part alone (F5, L4)", async () => {
    const directory = `catalog://${randomUUID()}`;
    const { session, source } = await activeSource(ledger, [directory]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [directory], () => ({ [`${directory}/a`]: "a", [`${directory}/b`]: "b" }));
    await indexDue(ledger, index, source);
    const { versions } = await ledger.trace({ uri: `${directory}/b` });
    expect(versions.map(({ uri }) => uri)).toEqual([directory]);
    const texts = versions[0]?.entries.filter((entry) => entry.index === index.ref.name);
    expect(texts?.map(({ id }) => index.entries.get(id))).toEqual(["b"]);
  });

  test("the status shows each source under its reader, what waits, and who holds it (P5)", async () => {
    const { source, session } = await indexed();
    const statusOf = async () => (await ledger.status()).sources.find(({ name }) => name === source);
    expect(await statusOf()).toMatchObject({
      reader: "svc:rag",
      era: "modern",
      pushed: 1,
      polled: 0,
      scan: "SNAPSHOT_UNPROVEN",
      due: 0,
      holder: "worker-1",
    });
    expect((await statusOf())?.oldestVerifiedAt).toBeInstanceOf(Date);
    const before = await ledger.status();
    await ledger.recordNotifications(session, [URI], { windowMs: 0 });
    await ledger.endSession(session);
    expect(await statusOf()).toMatchObject({ due: 1, holder: undefined });
    const { revocationId } = await ledger.revoke({ source, subject: "svc:rag", reason: "r" });
    expect((await ledger.status()).revocations.open).toBe(before.revocations.open + 1);
    await advance(ledger, revocationId);
    const after = await ledger.status();
    expect(after.waiting.purging).toBeGreaterThan(before.waiting.purging);
    expect(await statusOf()).toMatchObject({ pushed: 0, due: 0 });
  });

  test("the status shows the scan that failed beside the catalogue it left alone, what is unsettled, and what is held (S4, S8)", async () => {
    const uris = Array.from({ length: 30 }, (_, number) => `catalog://${number}`);
    const { source, session } = await activeSource(ledger, uris);
    const statusOf = async () => (await ledger.status()).sources.find(({ name }) => name === source);
    const published = await statusOf();
    expect(published).toMatchObject({
      scan: "SNAPSHOT_UNPROVEN",
      lastScan: { verdict: "SNAPSHOT_UNPROVEN", reason: undefined, endedAt: expect.any(Date) },
      catalogMeasuredAt: expect.any(Date),
      nextReviewAt: expect.any(Date),
      heldRemovals: 0,
    });
    const begun = await ledger.beginScan(session);
    if (typeof begun === "string") return expect.fail(begun);
    expect(await statusOf()).toEqual(published);
    const failed = { complete: false, verdict: "INCOMPLETE", reason: "timeout" } as const;
    await ledger.finishScan(session, begun.scanId, failed);
    expect(await statusOf()).toMatchObject({
      scan: "SNAPSHOT_UNPROVEN",
      catalogMeasuredAt: published?.catalogMeasuredAt,
      lastScan: { verdict: "INCOMPLETE", reason: "timeout" },
    });
    await publish(ledger, session, []);
    expect(await statusOf()).toMatchObject({ heldRemovals: 1 });
    const first = await scan(ledger, session, uris);
    const second = await scan(ledger, session, uris.slice(1));
    expect(await statusOf()).toMatchObject({ lastScan: { verdict: undefined } });
    await ledger.publishUnsettled(session, { first, second, attempts: 5 });
    expect(await statusOf()).toMatchObject({ scan: "UNSETTLED", lastScan: { verdict: "UNSETTLED" } });
  });

  test("recorded entries are paged in order, and strays are told from them (repair)", async () => {
    const { index } = await indexed();
    const [first, second] = [...index.entries.keys()] as [string, string];
    expect(await ledger.recordedEntries(index.ref.name, { limit: 1 })).toEqual([first]);
    expect(await ledger.recordedEntries(index.ref.name, { limit: 9, afterId: first })).toEqual([second]);
    expect(await ledger.recordedEntries(index.ref.name, { limit: 9, afterId: second })).toEqual([]);
    const parts = parseEntryId(first) as EntryIdParts;
    const stray = formatEntryId({ ...parts, number: 0xff_ffff_ffff });
    expect(await ledger.standingOfEntries(index.ref.name, [first, stray, randomUUID(), "x"])).toEqual([
      "present",
      "unrecorded",
      "foreign",
      "foreign",
    ]);
    expect(await ledger.standingOfEntries("main", [first])).toEqual(["foreign"]);
    await ledger.sql("update fenceline.entry_group set state = 'PURGING' where index_id = $1", [index.ref.indexId]);
    expect(await ledger.standingOfEntries(index.ref.name, [first])).toEqual(["changing"]);
    await ledger.sql("update fenceline.entry_group set state = 'PRESENT' where index_id = $1", [index.ref.indexId]);
  });

  test("a ledger at rest breaks no invariant, and each is checked on something", async () => {
    const { source } = await indexed();
    await ledger.grant({ source, reader: "svc:rag", audience: "user:alice", scope: { everything: true } });
    expect(await brokenInvariants(ledger)).toEqual([]);
    expect((await ledger.verify()).length).toBeGreaterThanOrEqual(20);
  });
});
