import { expect, test } from "vitest";
import type { Ledger } from "#src/ledger.js";
import type { Session } from "#src/sessions.js";
import {
  activate,
  digest,
  negotiateSnapshots,
  openSession,
  publishProven,
  readDue,
  receipts,
  scan,
  scanPages,
} from "./ledger-under-test.js";
import { overlapping } from "./overlapping.js";
import { brokenInvariants, describeWholeLedgerOnPostgres } from "./whole-ledger.js";

const [A, B, C] = ["catalog://a", "catalog://b", "catalog://c"];

describeWholeLedgerOnPostgres("scans that overlap with others", (ledger) => {
  async function readSource(uris: readonly string[]): Promise<Session> {
    const session = await openSession(ledger);
    await activate(ledger, session, uris, "polled");
    await readDue(ledger, session, (uri) => uri);
    await negotiateSnapshots(ledger, session);
    return session;
  }

  test("S4: a list_changed that commits while a catalogue is published calls the publication off", async () => {
    const session = await openSession(ledger);
    const scans = { first: await scan(ledger, session, [A]), second: await scan(ledger, session, [A]) };
    const [recorded, published, waited] = await overlapping(
      ledger,
      (areas) => areas.recordListChanged(session),
      () => ledger.publishCatalog(session, scans),
    );
    expect([recorded, published, waited]).toEqual(["recorded", { outcome: "list_changed" }, true]);
  });

  test("S9: a list_changed that comes while a catalogue is named waits, and makes the next review due", async () => {
    const session = await openSession(ledger);
    const scans = { first: await scan(ledger, session, [A]), second: await scan(ledger, session, [A]) };
    const [published, recorded, waited] = await overlapping(
      ledger,
      (areas) => areas.publishCatalog(session, scans),
      () => ledger.recordListChanged(session),
    );
    expect([published.outcome, recorded, waited]).toEqual(["published", "recorded", true]);
    expect(await ledger.millisecondsToNextReview(session)).toBe(0);
  });

  test("S2: a page that commits while its scan is ended is in no set, and the scan is complete to nobody", async () => {
    const session = await openSession(ledger);
    const begun = await ledger.beginScan(session);
    if (typeof begun === "string") return expect.fail(begun);
    const page = (uri: string) => ({
      cursorDigest: digest(uri),
      entries: [{ uri, descriptorDigest: digest(uri) }],
    });
    await ledger.recordScanPage(session, begun.scanId, page(A));
    const [, finished, waited] = await overlapping(
      ledger,
      (areas) => areas.recordScanPage(session, begun.scanId, page(B)),
      () => ledger.finishScan(session, begun.scanId, { complete: true }),
    );
    expect([finished, waited]).toEqual(["incomplete", true]);
  });

  test("S2: a part of a long page that commits while its scan is ended is in no set either", async () => {
    const session = await openSession(ledger);
    await scan(ledger, session, [A, B]);
    const begun = await ledger.beginScan(session);
    if (typeof begun === "string") return expect.fail(begun);
    const entries = [{ uri: A, descriptorDigest: digest(A) }];
    await ledger.recordScanPage(session, begun.scanId, { cursorDigest: digest("first"), entries });
    const [, finished, waited] = await overlapping(
      ledger,
      ({ sql }) =>
        sql(
          `select fenceline.record_scan_page($1, $2, $3, $4, 'resources', null, null, null, null, array[$5],
             array(select r.key_digest from fenceline.resource r where r.source_id = $3 and r.resource_key = $5),
             array[null], array[null], array[null], array[$6::bytea], array[null])`,
          [session.scopeId, session.generation, session.sourceId, begun.scanId, B, digest(B)],
        ),
      () => ledger.finishScan(session, begun.scanId, { complete: true }),
    );
    expect([finished, waited]).toEqual(["incomplete", true]);
  });

  /** Of what the ledger still knows that a scan listed. */
  async function entriesOf(scanId: number): Promise<number> {
    const [row] = await ledger.sql<{ n: number }>("select count(*) as n from fenceline.scan_entry where scan_id = $1", [
      scanId,
    ]);
    return row?.n ?? -1;
  }

  async function beginScans(session: Session, count: number): Promise<void> {
    for (let n = 0; n < count; n += 1) await ledger.beginScan(session);
  }

  test("S8: scans that begin while a catalogue is named do not forget its entries", async () => {
    const session = await openSession(ledger);
    const scans = { first: await scan(ledger, session, [A, B]), second: await scan(ledger, session, [A, B]) };
    const [published, , waited] = await overlapping(
      ledger,
      (areas) => areas.publishCatalog(session, scans),
      () => beginScans(session, 3),
    );
    expect([published.outcome, waited]).toEqual(["published", false]);
    expect(await entriesOf(scans.second)).toBe(2);
    await beginScans(session, 1);
    expect([await entriesOf(scans.first), await entriesOf(scans.second)]).toEqual([0, 2]);
  });

  test("S8: a catalogue that is superseded amid a batch of what vanished keeps its entries until that has ended", async () => {
    const session = await openSession(ledger);
    const scans = { first: await scan(ledger, session, [A, B]), second: await scan(ledger, session, [A, B]) };
    await ledger.publishCatalog(session, scans);
    const next = { first: await scan(ledger, session, [A]), second: await scan(ledger, session, [A]) };
    const [, kept, waited] = await overlapping(
      ledger,
      ({ sql }) =>
        sql("select fenceline.make_vanished_due($1, $2, $3, 0, 100)", [
          session.scopeId,
          session.generation,
          scans.second,
        ]),
      async () => {
        await ledger.publishCatalog(session, next);
        await beginScans(session, 1);
        return entriesOf(scans.second);
      },
    );
    expect([kept, waited]).toEqual([2, false]);
    await beginScans(session, 1);
    expect(await entriesOf(scans.second)).toBe(0);
  });

  test("S3: a scan that two later ones overtook ends incomplete: what is left of its entries is no set", async () => {
    const session = await openSession(ledger);
    await negotiateSnapshots(ledger, session);
    const slow = await ledger.beginScan(session);
    if (typeof slow === "string") return expect.fail(slow);
    const page = (uri: string) => ({
      cursorDigest: digest(uri),
      entries: [{ uri, descriptorDigest: digest(`descriptor ${uri}`) }],
      snapshotIdDigest: digest("snapshot"),
    });
    await ledger.recordScanPage(session, slow.scanId, page(A));
    await beginScans(session, 3);
    await ledger.recordScanPage(session, slow.scanId, page(B));
    expect(await ledger.finishScan(session, slow.scanId, { complete: true })).toBe("incomplete");
    const pages = [A, B].map((uri) => ({ uris: [uri], id: "snapshot" }));
    expect(await scanPages(ledger, session, pages)).toMatchObject({ outcome: "proven" });
  });

  test("S8: of two scans that begin at once one forgets the entries of old ones, and the other does not wait for it", async () => {
    const session = await openSession(ledger);
    for (let n = 0; n < 4; n += 1) await scan(ledger, session, [A, B, C]);
    const begin = (areas: Pick<Ledger, "beginScan">) => areas.beginScan(session);
    const [first, second, waited] = await overlapping(ledger, begin, () => begin(ledger));
    expect([first, second]).toEqual([{ scanId: expect.any(Number) }, { scanId: expect.any(Number) }]);
    expect(waited).toBe(false);
  });

  test("S6: a list_changed that commits while a snapshot is used takes its proof away", async () => {
    const session = await readSource([A, B, C]);
    const { snapshot } = await publishProven(ledger, session, [A, B]);
    const [, removed, waited] = await overlapping(
      ledger,
      (areas) => areas.recordListChanged(session),
      () => ledger.removeAbsent(session, snapshot).catch((error: { code: string }) => error.code),
    );
    expect([removed, waited]).toEqual(["snapshot_not_proven", true]);
    expect(await receipts(ledger, session)).not.toContain("tombstone");
  });

  test("S6: a list_changed that comes while a snapshot is used waits until what it proved is removed", async () => {
    const session = await readSource([A, B, C]);
    const { snapshot } = await publishProven(ledger, session, [A, B]);
    const [removed, recorded, waited] = await overlapping(
      ledger,
      (areas) => areas.removeAbsent(session, snapshot),
      () => ledger.recordListChanged(session),
    );
    expect([removed, recorded, waited]).toEqual([{ outcome: "removed", removed: 1 }, "recorded", true]);
  });

  test("S6: two that remove by one snapshot at once leave one tombstone each", async () => {
    const session = await readSource([A, B, C]);
    const { snapshot } = await publishProven(ledger, session, [A]);
    const [first, second] = await overlapping(
      ledger,
      (areas) => areas.removeAbsent(session, snapshot),
      () => ledger.removeAbsent(session, snapshot),
    );
    expect([first, second]).toEqual([
      { outcome: "removed", removed: 2 },
      { outcome: "removed", removed: 0 },
    ]);
    expect((await receipts(ledger, session)).filter((kind) => kind === "tombstone")).toHaveLength(2);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("S6: revoking by enumeration while a session is taken over ends with the session, and revokes nothing more", async () => {
    const session = await readSource([A, B, C]);
    const { snapshot } = await publishProven(ledger, session, [A]);
    const [, revoked, waited] = await overlapping(
      ledger,
      (areas) => areas.endSession(session),
      () => ledger.revokeByEnumeration(session, snapshot, { requestId: session.source, reason: "no longer listed" }),
    );
    expect([revoked, waited]).toEqual([{ outcome: "session_lost" }, true]);
    expect((await ledger.listRevocations()).filter(({ source }) => source === session.source)).toEqual([]);
  });

  test("P2: a revocation that commits while absent resources are removed is waited for, and both take effect", async () => {
    const session = await readSource([A, B, C]);
    const { snapshot } = await publishProven(ledger, session, [A]);
    const revocation = { source: session.source, subject: session.reader, scope: { uri: B }, reason: "left" } as const;
    const [, removed, waited] = await overlapping(
      ledger,
      (areas) => areas.revoke(revocation),
      () => ledger.removeAbsent(session, snapshot),
    );
    expect([removed, waited]).toEqual([{ outcome: "removed", removed: 2 }, true]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });
});
