import { expect, test } from "vitest";
import { subscriptionRow } from "./ledger-under-test.js";
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

const DIRECTORY = "catalog://plans";
const PARTS = { "catalog://plans/open": "open", "catalog://plans/secret": "secret" };
const READER = ["svc:rag"];

describeWholeLedger("revoked parts of a directory", (ledger) => {
  const revokeSecret = (source: string) =>
    ledger.revoke({ source, subject: "svc:rag", scope: { uri: "catalog://plans/secret" }, reason: "r" });

  test("a revoked part goes alone; its directory keeps the rest, and a lift brings the part back unchanged (P2, F5, F6)", async () => {
    const { session, source, ids } = await activeSource(ledger, [DIRECTORY]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [DIRECTORY], () => PARTS);
    await indexDue(ledger, index, source);
    const { revocationId } = await revokeSecret(source);
    await advance(ledger, revocationId);
    expect(await subscriptionRow(ledger, ids[0] as number)).toMatchObject({ lifecycle: "ACTIVE", generation: 1 });
    expect(await purge(ledger, index)).toBe(1);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE", covered: { entries: 1 } });
    expect(await seen(ledger, index, READER)).toEqual(["open"]);
    await ledger.lift(revocationId);
    expect(await subscriptionRow(ledger, ids[0] as number)).toMatchObject({ due_in_ms: 0 });
    expect(await readNow(ledger, session, [DIRECTORY], () => PARTS)).toEqual(["accepted"]);
    await indexDue(ledger, index, source);
    expect(await seen(ledger, index, READER)).toEqual(["open", "secret"]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a part revoked while it is being indexed is left out of the confirm, and read again after a lift (P2, F6)", async () => {
    const { session, source } = await activeSource(ledger, [DIRECTORY]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [DIRECTORY], () => PARTS);
    const [work] = await claimWork(ledger, index, source);
    const planned = await writeVersion(ledger, index, work as NonNullable<typeof work>);
    const { revocationId } = await revokeSecret(source);
    expect(await ledger.confirmVersions(index.ref, [planned])).toMatchObject([{ outcome: "confirmed" }]);
    expect(await seen(ledger, index, READER)).toEqual(["open"]);
    await advance(ledger, revocationId);
    expect(await purge(ledger, index)).toBe(1);
    await ledger.lift(revocationId);
    expect(await readNow(ledger, session, [DIRECTORY], () => PARTS)).toEqual(["accepted"]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a part left out of a confirm comes back after a lift that no batch came before (P2, F6)", async () => {
    const { session, source } = await activeSource(ledger, [DIRECTORY]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [DIRECTORY], () => PARTS);
    const [work] = await claimWork(ledger, index, source);
    const planned = await writeVersion(ledger, index, work as NonNullable<typeof work>);
    const { revocationId } = await revokeSecret(source);
    expect(await ledger.confirmVersions(index.ref, [planned])).toMatchObject([{ outcome: "confirmed" }]);
    expect(await seen(ledger, index, READER)).toEqual(["open"]);
    await ledger.lift(revocationId);
    expect(await ledger.millisecondsToNextRead(session)).toBe(0);
    expect(await readNow(ledger, session, [DIRECTORY], () => PARTS)).toEqual(["accepted"]);
    await indexDue(ledger, index, source);
    expect(await seen(ledger, index, READER)).toEqual(["open", "secret"]);
  });

  test("a part that was taken before it was indexed still leads to its version, without entries (F5, L4)", async () => {
    const versionsOf = async (uri: string, source: string) =>
      (await ledger.trace({ uri })).versions
        .filter((version) => version.source === source)
        .map(({ uri: of, entries }) => ({ of, entries }));
    const found = [{ of: DIRECTORY, entries: [] }];
    await createIndex(ledger);
    const revoked = await activeSource(ledger, [DIRECTORY]);
    await readNow(ledger, revoked.session, [DIRECTORY], () => PARTS);
    const { revocationId } = await revokeSecret(revoked.source);
    await advance(ledger, revocationId);
    expect(await versionsOf("catalog://plans/secret", revoked.source)).toEqual(found);
    expect(await versionsOf("catalog://plans/open", revoked.source)).toEqual(found);

    const deleted = await activeSource(ledger, [DIRECTORY]);
    await readNow(ledger, deleted.session, [DIRECTORY], () => PARTS);
    for (const outcome of ["tombstone_pending", "tombstoned"]) {
      const demand = { uris: [DIRECTORY], reason: "demand", leaseMs: 10_000 } as const;
      const [read] = await ledger.issueReads(deleted.session, demand);
      const notFound = { ...(read as NonNullable<typeof read>), as: "not_found" } as const;
      expect(await ledger.settleReads(deleted.session, [notFound])).toMatchObject([{ outcome }]);
      await ledger.advanceClock(3_600_000);
    }
    expect(await versionsOf("catalog://plans/secret", deleted.source)).toEqual(found);
    expect(await versionsOf(DIRECTORY, deleted.source)).toEqual(found);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a directory first read while a part of it was revoked is read again at once when that is lifted, for each revocation (P2, F5)", async () => {
    const { session, source } = await activeSource(ledger, [DIRECTORY]);
    const revoked: number[] = [];
    for (let count = 0; count < 2; count += 1) {
      const { revocationId } = await revokeSecret(source);
      await advance(ledger, revocationId);
      revoked.push(revocationId);
    }
    for (const revocationId of revoked) {
      expect(await readNow(ledger, session, [DIRECTORY], () => PARTS)).toEqual(["accepted"]);
      expect(await ledger.millisecondsToNextRead(session)).toBeGreaterThan(0);
      await ledger.lift(revocationId);
      expect(await ledger.millisecondsToNextRead(session)).toBe(0);
    }
    const index = await createIndex(ledger);
    expect(await readNow(ledger, session, [DIRECTORY], () => PARTS)).toEqual(["accepted"]);
    await indexDue(ledger, index, source);
    expect(await seen(ledger, index, READER)).toEqual(["open", "secret"]);
  });
});
