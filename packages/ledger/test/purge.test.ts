import { expect, test } from "vitest";
import type { PurgeClaim } from "#src/revocations.js";
import { activate } from "./ledger-under-test.js";
import {
  activeSource,
  advance,
  brokenInvariants,
  claimWork,
  createIndex,
  describeWholeLedger,
  type IndexUnderTest,
  indexDue,
  purge,
  readNow,
  seen,
  writeVersion,
} from "./whole-ledger.js";

const URIS = ["catalog://plans/basic", "catalog://plans/pro", "catalog://plans/team", "catalog://other/terms"];
const READER = ["svc:rag"];

describeWholeLedger("purge", (ledger) => {
  /** Four resources, read and indexed in two stores; each entry's text is its URI. */
  async function indexed() {
    const { session, source, ids } = await activeSource(ledger, URIS);
    const index = await createIndex(ledger);
    const second = await createIndex(ledger);
    await readNow(ledger, session, URIS, (uri) => uri);
    await indexDue(ledger, index, source);
    await indexDue(ledger, second, source);
    return { session, source, ids, index, second };
  }

  const revokePlans = (source: string) =>
    ledger.revoke({
      source,
      subject: "svc:rag",
      role: "reader",
      scope: { prefix: "catalog://plans/" },
      reason: "contract ended",
    });

  test("a store that is down leaves the others their work; the revocation stays open and names it (P5)", async () => {
    const { source, index, second } = await indexed();
    const { revocationId } = await revokePlans(source);
    await advance(ledger, revocationId);
    const claims = await claimAll(second);
    await ledger.releasePurge(second.ref.store, claims, "connection refused");
    await purge(ledger, index);
    const status = await ledger.revocation(revocationId);
    expect(status?.state).toBe("EFFECTIVE");
    expect(status?.stores.find(({ store }) => store === second.ref.store)).toMatchObject({
      remaining: 3,
      claim: "hidden",
      failure: "connection refused",
    });
    expect((await ledger.status()).stores).toContainEqual({
      store: second.ref.store,
      reachable: false,
      failure: "connection refused",
    });
    expect(await purge(ledger, second)).toBe(0);
    await ledger.advanceClock(1_000);
    expect(await purge(ledger, second)).toBe(3);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE" });
    expect((await ledger.status()).stores).toContainEqual({ store: second.ref.store, reachable: true });
  });

  test("a store that no process removes from shows in the status after 30 s (P5, P6)", async () => {
    const { source, index } = await indexed();
    const { revocationId } = await revokePlans(source);
    await advance(ledger, revocationId);
    const storeStatus = async () => (await ledger.status()).stores.find(({ store }) => store === index.ref.store);
    expect(await storeStatus()).toEqual({ store: index.ref.store, reachable: true });
    await ledger.advanceClock(30_001);
    expect(await storeStatus()).toMatchObject({ reachable: false });
  });

  test("a purge whose worker died is claimed again when its lease ended; the late one changes nothing (P3, P5)", async () => {
    const { source, index } = await indexed();
    const { revocationId } = await revokePlans(source);
    await advance(ledger, revocationId);
    const dead = await claimAll(index);
    expect(dead).toHaveLength(3);
    expect(await claimAll(index)).toEqual([]);
    await ledger.advanceClock(10_000);
    const alive = await claimAll(index);
    expect(alive).toHaveLength(3);
    await ledger.confirmPurge(index.ref.store, dead, { claim: "absent" });
    expect(await ledger.purgeReceipts(revocationId)).toEqual([]);
    await ledger.confirmPurge(index.ref.store, alive, { claim: "absent" });
    expect(await ledger.purgeReceipts(revocationId)).toHaveLength(1);
  });

  test("a purge worker that dies after it found a group held leaves nobody waiting for it (L5, P5)", async () => {
    const { source, index, second } = await indexed();
    const opened = await ledger.openSession({ source, reader: "svc:two", owner: "worker", leaseMs: 86_400_000 });
    if (opened.outcome !== "opened") return expect.fail(opened.outcome);
    await activate(ledger, opened.session, URIS);
    const { revocationId } = await revokePlans(source);
    await advance(ledger, revocationId);
    expect(await purge(ledger, second)).toBe(3);
    await readNow(ledger, opened.session, URIS, (uri) => uri);
    await indexDue(ledger, index, source);
    await ledger.sql("select * from fenceline.claim_purge($1, 100, 10000)", [index.ref.store]);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "EFFECTIVE" });
    expect(await purge(ledger, index)).toBe(0);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE" });
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("an entry whose write ended after the purge is found by a later sweep, deleted and recorded (P3, P4)", async () => {
    const { session, source } = await activeSource(ledger, URIS.slice(0, 1));
    const index = await createIndex(ledger);
    await readNow(ledger, session, URIS.slice(0, 1), () => "late");
    const [work] = await claimWork(ledger, index, source);
    await writeVersion(ledger, index, work as NonNullable<typeof work>);
    const [written] = [...index.entries];
    index.entries.clear();
    await ledger.advanceClock(10_000);
    expect(await purge(ledger, index)).toBe(0);
    index.entries.set(...(written as [string, string]));
    expect(await seen(ledger, index, READER)).toEqual([]);
    expect(await purge(ledger, index)).toBe(0);
    await ledger.advanceClock(10_000);
    expect(await purge(ledger, index)).toBe(1);
    const causes = (await ledger.purgeReceipts()).filter(({ store }) => store === index.ref.store);
    expect(causes.map(({ cause }) => cause)).toEqual(["abandoned", "reappeared"]);
    for (let sweep = 0; sweep < 8; sweep += 1) {
      await ledger.advanceClock(86_400_000);
      await purge(ledger, index);
    }
    expect(await ledger.standingOfEntries(index.ref.name, [written?.[0] as string])).toEqual(["unrecorded"]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("what is superseded leaves a receipt with its cause, and older plain digests go with it (P3, P8)", async () => {
    const { session, source, index } = await indexed();
    await readNow(ledger, session, URIS.slice(0, 1), () => "new");
    await indexDue(ledger, index, source);
    expect(await purge(ledger, index)).toBe(1);
    const [receipt] = (await ledger.purgeReceipts()).filter(({ store }) => store === index.ref.store);
    expect(receipt).toMatchObject({ cause: "superseded", entries: 1, claim: "absent", revocationId: undefined });
    const { versions } = await ledger.trace({ uri: URIS[0] as string });
    const mine = versions.filter((version) => version.source === source);
    expect(mine.map(({ ordinal, digest }) => [ordinal, digest === undefined])).toEqual([
      [2, false],
      [1, true],
    ]);
  });

  test("a tombstoned resource's entries leave every store, and the receipt says why (F7, P3)", async () => {
    const { session, source, index } = await indexed();
    const uri = URIS[0] as string;
    for (let round = 0; round < 2; round += 1) {
      const [read] = await ledger.issueReads(session, { uris: [uri], reason: "demand", leaseMs: 30_000 });
      await ledger.settleReads(session, [{ ...(read as NonNullable<typeof read>), as: "not_found" }]);
      await ledger.advanceClock(3_600_000);
    }
    expect(await seen(ledger, index, READER)).toHaveLength(3);
    expect(await purge(ledger, index)).toBe(1);
    const causes = (await ledger.purgeReceipts()).filter(({ store }) => store === index.ref.store);
    expect(causes.map(({ cause }) => cause)).toEqual(["tombstoned"]);
    expect(await brokenInvariants(ledger)).toEqual([]);
    expect(source).toBe(session.source);
  });

  test("a lost entry is not reused: its resource is read again and the entry written anew (repair)", async () => {
    const { session, source, index } = await indexed();
    const [lost] = [...index.entries.keys()];
    const text = index.entries.get(lost as string) as string;
    index.entries.delete(lost as string);
    expect(await ledger.requeueLostEntries(index.ref.name, [lost as string, "no id"])).toBe(1);
    expect(await readNow(ledger, session, [text], (uri) => uri)).toEqual(["accepted"]);
    expect(await indexDue(ledger, index, source)).toEqual({ [text]: "confirmed" });
    await purge(ledger, index);
    expect(await seen(ledger, index, READER)).toEqual([...URIS].sort());
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a version planned before an entry was found lost is refused, and indexed again without it (repair)", async () => {
    const { session, source, index } = await indexed();
    const uri = URIS[0] as string;
    await readNow(ledger, session, [uri], () => `${uri}\nmore`);
    const [work] = await claimWork(ledger, index, source);
    const planned = await writeVersion(ledger, index, work as NonNullable<typeof work>);
    expect(planned.reused).toHaveLength(1);
    expect(await ledger.requeueLostEntries(index.ref.name, planned.reused)).toBe(1);
    expect(await ledger.confirmVersions(index.ref, [planned])).toMatchObject([{ outcome: "group_gone" }]);
    await ledger.releaseIndexWork(index.ref, planned.work);
    expect(await indexDue(ledger, index, source)).toEqual({ [uri]: "confirmed" });
    await ledger.advanceClock(10_000);
    await purge(ledger, index);
    expect(await seen(ledger, index, READER)).toEqual([...URIS, "more"].sort());
  });

  function claimAll(index: IndexUnderTest): Promise<PurgeClaim[]> {
    return ledger.claimPurge({ store: index.ref.store, limit: 100, leaseMs: 10_000 });
  }
});
