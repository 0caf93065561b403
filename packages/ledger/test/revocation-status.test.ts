import { expect, test } from "vitest";
import {
  activeSource,
  claimWork,
  createIndex,
  describeWholeLedger,
  indexDue,
  purge,
  readNow,
  writeVersion,
} from "./whole-ledger.js";

const URIS = ["catalog://plans/basic", "catalog://plans/pro", "catalog://plans/team"];

describeWholeLedger("what a revocation waits for", (ledger) => {
  test("the status names what remains in each store and why, until nothing does (P5)", async () => {
    const { session, source } = await activeSource(ledger, URIS);
    const [index, second] = [await createIndex(ledger), await createIndex(ledger)];
    await readNow(ledger, session, URIS, (uri) => uri);
    await indexDue(ledger, index, source);
    await indexDue(ledger, second, source);
    await readNow(ledger, session, URIS.slice(0, 1), () => "being written\nin two lines");
    const [work] = await claimWork(ledger, index, source);
    await writeVersion(ledger, index, work as NonNullable<typeof work>);

    const { revocationId, batchesLeft } = await ledger.revoke({ source, subject: "svc:rag", reason: "r" });
    expect(batchesLeft).toBe(true);
    while ((await ledger.advanceRevocation(revocationId)) === "more");
    const waits = async () => {
      const status = await ledger.revocation(revocationId);
      const of = (name: string) =>
        status?.stores
          .find(({ store }) => store === name)
          ?.waits.map(({ because, entries, until }) => `${entries} ${because}${until === undefined ? "" : " until"}`);
      return [status?.batchesLeft, of(index.ref.store), of(second.ref.store)];
    };
    expect(await waits()).toEqual([false, ["3 due", "2 writer until"], ["3 due"]]);

    await ledger.claimPurge({ store: index.ref.store, limit: 100, leaseMs: 60_000 });
    const failed = await ledger.claimPurge({ store: second.ref.store, limit: 1, leaseMs: 60_000 });
    await ledger.releasePurge(second.ref.store, failed, "connection refused");
    expect(await waits()).toEqual([false, ["3 claimed until", "2 writer until"], ["2 due", "1 failing until"]]);

    await ledger.advanceClock(61_000);
    expect(await waits()).toEqual([false, ["5 due"], ["3 due"]]);
    await purge(ledger, index);
    await purge(ledger, second);
    expect(await waits()).toEqual([false, [], []]);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE" });
  });

  test("a lifted revocation says whether anything is still to be reopened (P2)", async () => {
    const { source } = await activeSource(ledger, URIS);
    const { revocationId } = await ledger.revoke({ source, subject: "svc:rag", reason: "r" });
    await ledger.sql("select fenceline.lift_revocation($1)", [revocationId]);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "LIFTED", batchesLeft: true });
    while ((await ledger.advanceRevocation(revocationId)) === "more");
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "LIFTED", batchesLeft: false });
  });

  test("by policy a 403 becomes a revocation of that URI for that reader, once, and a late one becomes none (P7)", async () => {
    const { session, source } = await activeSource(ledger, URIS);
    const read = async (as: "forbidden" | "failed") => {
      const reads = await ledger.issueReads(session, { uris: URIS.slice(0, 1), reason: "demand", leaseMs: 60_000 });
      await ledger.settleReads(
        session,
        reads.map((each) => ({ ...each, as })),
      );
      return reads;
    };
    expect(await ledger.revokeForbidden(session, await read("failed"))).toEqual([]);
    const forbidden = await read("forbidden");
    const [revoked] = await ledger.revokeForbidden(session, forbidden);
    expect(revoked).toMatchObject({
      source,
      subject: "svc:rag",
      role: "reader",
      scope: { uri: URIS[0] },
      nothingCovered: false,
    });
    const [again] = await ledger.revokeForbidden(session, forbidden);
    expect(again?.revocationId).toBe(revoked?.revocationId);
    expect(await ledger.issueReads(session, { uris: URIS, reason: "demand", leaseMs: 60_000 })).toHaveLength(2);
  });
});
