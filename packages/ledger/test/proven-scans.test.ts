import { expect, test } from "vitest";
import type { Session } from "#src/sessions.js";
import {
  describeLedger,
  digest,
  negotiateSnapshots,
  openSession,
  publish,
  publishProven,
  scan,
  scanPages,
} from "./ledger-under-test.js";

const [A, B, C] = ["catalog://a", "catalog://b", "catalog://c"];

describeLedger("snapshot ids", (ledger) => {
  async function provingSession(names: { source?: string; reader?: string } = {}): Promise<Session> {
    const session = await openSession(ledger, names);
    await negotiateSnapshots(ledger, session);
    return session;
  }

  async function scanRow(scanId: number) {
    const [row] = await ledger.sql("select verdict, reason from fenceline.scan where scan_id = $1", [scanId]);
    return row;
  }

  test("S3: every page bound to one id is proven, and one proven scan is a catalogue", async () => {
    const session = await provingSession();
    const { scanId, outcome } = await scanPages(ledger, session, [
      { uris: [A], id: "s1" },
      { uris: [B], id: "s1" },
    ]);
    expect(outcome).toBe("proven");
    expect(await ledger.publishCatalog(session, { first: scanId, second: scanId })).toMatchObject({
      outcome: "published",
      verdict: "SNAPSHOT_PROVEN",
      resources: 2,
    });
  });

  test.each([
    { what: "a page without an id", ids: ["s1", undefined, "s1"], reason: "snapshot_id_missing" },
    { what: "a first page without an id", ids: [undefined, "s1", "s1"], reason: "snapshot_id_missing" },
    { what: "no id on any page", ids: [undefined, undefined, undefined], reason: "snapshot_id_missing" },
    { what: "another id on the second page", ids: ["s1", "s2", "s1"], reason: "snapshot_id_changed" },
    { what: "another id on the last page", ids: ["s1", "s1", "s2"], reason: "snapshot_id_changed" },
  ])("S3: $what voids the scan, and the session's later ones are not proven by an id", async ({ ids, reason }) => {
    const session = await provingSession();
    const broken = await scanPages(
      ledger,
      session,
      ids.map((id, number) => ({ uris: [`catalog://${number}`], id })),
    );
    expect(broken.outcome).toBe("void");
    expect(await scanRow(broken.scanId)).toEqual({ verdict: "VOID", reason });
    const publishing = { first: broken.scanId, second: broken.scanId };
    expect(await ledger.publishCatalog(session, publishing)).toEqual({ outcome: "incomplete" });
    const later = await scanPages(ledger, session, [{ uris: [A], id: "s9" }]);
    expect(later.outcome).toBe("complete");
    expect(await ledger.publishCatalog(session, { first: later.scanId, second: later.scanId })).toEqual({
      outcome: "incomplete",
    });
    // Two equal ones count as without the extension.
    expect(await publish(ledger, session, [A])).toMatchObject({ verdict: "SNAPSHOT_UNPROVEN" });
  });

  test("S3: a contradiction voids a scan that ends before its list does as well", async () => {
    const session = await provingSession();
    const begun = await ledger.beginScan(session);
    if (typeof begun === "string") return expect.fail(begun);
    for (const id of ["s1", "s2"]) {
      const page = { cursorDigest: digest(id), entries: [], snapshotIdDigest: digest(id) };
      await ledger.recordScanPage(session, begun.scanId, page);
    }
    const end = { complete: false, verdict: "INCOMPLETE", reason: "timeout" } as const;
    expect(await ledger.finishScan(session, begun.scanId, end)).toBe("void");
  });

  test("S3: a known id with another set is forged, also in a later session, which distrusts it for itself alone", async () => {
    const session = await provingSession();
    expect((await scanPages(ledger, session, [{ uris: [A, B], id: "s1" }])).outcome).toBe("proven");
    expect((await scanPages(ledger, session, [{ uris: [B, A], id: "s1" }])).outcome).toBe("proven");
    await ledger.endSession(session);

    const next = await provingSession({ source: session.source });
    const forged = await scanPages(ledger, next, [{ uris: [A, C], id: "s1" }]);
    expect(forged.outcome).toBe("void");
    expect(await scanRow(forged.scanId)).toEqual({ verdict: "VOID", reason: "snapshot_id_forged" });
    expect((await scanPages(ledger, next, [{ uris: [A, B], id: "s1" }])).outcome).toBe("complete");
    await ledger.endSession(next);

    const third = await provingSession({ source: session.source });
    expect((await scanPages(ledger, third, [{ uris: [A, B], id: "s1" }])).outcome).toBe("proven");
    // What the distrusted session listed under a new id is not known of it.
    expect((await scanPages(ledger, third, [{ uris: [A, C], id: "s1" }])).outcome).toBe("void");
  });

  test("S3: a known id is known when its scans are long forgotten", async () => {
    const session = await provingSession();
    await publishProven(ledger, session, [A]);
    expect((await scanPages(ledger, session, [{ uris: [A], id: "old" }])).outcome).toBe("proven");
    await ledger.sql("delete from fenceline.scan where scope_id = $1", [session.scopeId]);
    expect((await scanPages(ledger, session, [{ uris: [B], id: "old" }])).outcome).toBe("void");
  });

  test("S3: an id means nothing under another reader or source", async () => {
    const session = await provingSession();
    expect((await scanPages(ledger, session, [{ uris: [A], id: "s1" }])).outcome).toBe("proven");
    const otherReader = await provingSession({ source: session.source, reader: "svc:other" });
    expect((await scanPages(ledger, otherReader, [{ uris: [A, B], id: "s1" }])).outcome).toBe("proven");
    const otherSource = await provingSession();
    expect((await scanPages(ledger, otherSource, [{ uris: [C], id: "s1" }])).outcome).toBe("proven");
  });

  test("S3: without the negotiated extension ids on pages prove nothing and contradict nothing", async () => {
    const session = await openSession(ledger);
    const pages = [
      { uris: [A], id: "s1" },
      { uris: [B], id: "s2" },
    ];
    expect((await scanPages(ledger, session, pages)).outcome).toBe("complete");
    expect((await scanPages(ledger, session, [{ uris: [A], id: "s1" }])).outcome).toBe("complete");
  });

  test("S3: what a caller claims proves nothing: the ledger takes no proof but the pages'", async () => {
    const session = await provingSession();
    const begun = await ledger.beginScan(session);
    if (typeof begun === "string") return expect.fail(begun);
    await ledger.recordScanPage(session, begun.scanId, { cursorDigest: digest(""), entries: [] });
    const claimed = { complete: true, snapshotIdDigest: digest("s1"), proven: true } as const;
    expect(await ledger.finishScan(session, begun.scanId, claimed)).toBe("void");
  });

  test("S3: a session that comes to distrust the extension publishes no snapshot it proved before", async () => {
    const session = await provingSession();
    const proven = await scanPages(ledger, session, [{ uris: [A], id: "s1" }]);
    await scanPages(ledger, session, [{ uris: [B], id: "s1" }]);
    expect(await ledger.publishCatalog(session, { first: proven.scanId, second: proven.scanId })).toEqual({
      outcome: "incomplete",
    });
  });

  test("S7: an older proven scan, published late, does not take the place of a newer one", async () => {
    const session = await provingSession();
    const { scanId: older } = await scanPages(ledger, session, [{ uris: [A, B], id: "s1" }]);
    const newer = await publishProven(ledger, session, [A]);
    expect(await ledger.publishCatalog(session, { first: older, second: older })).toEqual({ outcome: "incomplete" });
    expect(await ledger.publishCatalog(session, { first: newer.scanId, second: newer.scanId })).toMatchObject({
      verdict: "SNAPSHOT_PROVEN",
      resources: 1,
    });
  });

  test("S9: a list_changed while a snapshot is proven leaves the next review due", async () => {
    const session = await provingSession();
    const { scanId } = await scanPages(ledger, session, [{ uris: [A], id: "s1" }]);
    await ledger.recordListChanged(session);
    const published = await ledger.publishCatalog(session, { first: scanId, second: scanId });
    expect(published).toMatchObject({ verdict: "SNAPSHOT_PROVEN", snapshot: undefined });
    expect(await ledger.millisecondsToNextReview(session)).toBe(0);
  });

  test("S4: a scan that binds no id is compared with one that does, by what both list", async () => {
    const session = await openSession(ledger);
    const first = await scan(ledger, session, [A]);
    await negotiateSnapshots(ledger, session);
    const { scanId: second } = await scanPages(ledger, session, [{ uris: [A], id: "s1" }]);
    expect(await ledger.publishCatalog(session, { first, second })).toMatchObject({ verdict: "SNAPSHOT_UNPROVEN" });
  });
});
