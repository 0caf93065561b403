import { expect, test } from "vitest";
import type { ScanPageRecord } from "#src/scans.js";
import type { NegotiatedCapabilities, Session } from "#src/sessions.js";
import { describeLedger, digest, openSession, publish, scan } from "./ledger-under-test.js";

const NEGOTIATED: NegotiatedCapabilities = {
  era: "modern",
  protocolVersion: "2026-07-28",
  resources: true,
  subscribe: false,
  listChanged: false,
};

function page(cursor: string, uris: readonly string[], more: Partial<ScanPageRecord> = {}): ScanPageRecord {
  const entries = uris.map((uri) => ({ uri, descriptorDigest: digest(`descriptor ${uri}`) }));
  return { cursorDigest: digest(cursor), entries, ...more };
}

describeLedger("the bounds of a scan", (ledger) => {
  async function begin(session: Session, options?: Parameters<typeof ledger.beginScan>[1]): Promise<number> {
    const begun = await ledger.beginScan(session, options);
    return typeof begun === "string" ? expect.fail(begun) : begun.scanId;
  }

  async function scanRow(scanId: number) {
    const [row] = await ledger.sql<{ verdict: string; reason: string; entries: number }>(
      "select verdict, reason, entries from fenceline.scan where scan_id = $1",
      [scanId],
    );
    return row;
  }

  const finish = (session: Session, scanId: number) => ledger.finishScan(session, scanId, { complete: true });

  test("S2: a cursor that comes back with the same page ends the scan, though the caller goes on and calls it complete", async () => {
    const session = await openSession(ledger);
    const scanId = await begin(session);
    expect(await ledger.recordScanPage(session, scanId, page("", ["catalog://a"]))).toBe("recorded");
    expect(await ledger.recordScanPage(session, scanId, page("1", ["catalog://b"]))).toBe("recorded");
    expect(await ledger.recordScanPage(session, scanId, page("2", ["catalog://c"]))).toBe("recorded");
    expect(await ledger.recordScanPage(session, scanId, page("1", ["catalog://b"]))).toBe("cursor_loop");
    expect(await scanRow(scanId)).toMatchObject({ verdict: "INCOMPLETE", reason: "cursor_loop" });
    expect(await ledger.recordScanPage(session, scanId, page("3", ["catalog://d"]))).toBe("scan_ended");
    expect(await finish(session, scanId)).toBe("scan_ended");
    const second = await scan(ledger, session, ["catalog://a"]);
    expect(await ledger.publishCatalog(session, { first: scanId, second })).toEqual({ outcome: "incomplete" });
  });

  test("S2: one cursor for every page is no loop while the pages differ, in what they list or in what follows", async () => {
    const session = await openSession(ledger);
    const scanId = await begin(session);
    for (const uri of ["catalog://a", "catalog://b", "catalog://c"]) {
      expect(await ledger.recordScanPage(session, scanId, page("", [uri]))).toBe("recorded");
    }
    const again = { nextCursorDigest: digest("") };
    expect(await ledger.recordScanPage(session, scanId, page("", [], again))).toBe("recorded");
    expect(await ledger.recordScanPage(session, scanId, page("", [], { nextCursorDigest: null }))).toBe("recorded");
    expect(await finish(session, scanId)).toBe("complete");
    expect(await scanRow(scanId)).toMatchObject({ entries: 3 });
  });

  test.each([
    { budgets: { pages: 2 }, stop: "page_budget" },
    { budgets: { entries: 5 }, stop: "entry_budget" },
    { budgets: { bytes: 200 }, stop: "byte_budget" },
  ] as const)("S2: a list that never ends is cut at its budget: $stop", async ({ budgets, stop }) => {
    const session = await openSession(ledger);
    const scanId = await begin(session, { budgets });
    const next = (number: number) => page(`${number}`, [`catalog://${number}/a`, `catalog://${number}/b`]);
    expect(await ledger.recordScanPage(session, scanId, next(1))).toBe("recorded");
    expect(await ledger.recordScanPage(session, scanId, next(2))).toBe("recorded");
    expect(await ledger.recordScanPage(session, scanId, next(3))).toBe(stop);
    expect(await scanRow(scanId)).toMatchObject({ verdict: "INCOMPLETE", reason: stop });
    expect(await finish(session, scanId)).toBe("scan_ended");
  });

  test("S2: a page of more entries than a statement takes counts against the budget before all of it is written", async () => {
    const session = await openSession(ledger);
    const scanId = await begin(session, { budgets: { entries: 1_500 } });
    const uris = Array.from({ length: 2_500 }, (_, number) => `catalog://long/${number}`);
    expect(await ledger.recordScanPage(session, scanId, page("", uris))).toBe("entry_budget");
    expect(await scanRow(scanId)).toMatchObject({ verdict: "INCOMPLETE", entries: 1_000 });
  });

  test("S1: only an absent next cursor ends a list: the empty string goes on, and a list never asked for is not empty", async () => {
    const session = await openSession(ledger);
    const empty = await begin(session);
    expect(await finish(session, empty)).toBe("incomplete");
    expect(await scanRow(empty)).toMatchObject({ verdict: "INCOMPLETE", reason: "list_not_ended" });
    const cut = await begin(session);
    await ledger.recordScanPage(session, cut, page("first", ["catalog://a"], { nextCursorDigest: digest("") }));
    expect(await finish(session, cut)).toBe("incomplete");
    const whole = await begin(session);
    await ledger.recordScanPage(session, whole, page("first", ["catalog://a"], { nextCursorDigest: digest("") }));
    await ledger.recordScanPage(session, whole, page("", ["catalog://b"], { nextCursorDigest: null }));
    expect(await finish(session, whole)).toBe("complete");
  });

  test("S1: no cursor is kept, only digests", async () => {
    const session = await openSession(ledger);
    const scanId = await begin(session);
    await ledger.recordScanPage(session, scanId, page("secret-cursor", ["catalog://a"]));
    const [row] = await ledger.sql<{ page: string }>(
      "select p::text as page from fenceline.scan_page p where scan_id = $1",
      [scanId],
    );
    expect(row?.page).not.toContain("secret-cursor");
    expect(row?.page).toContain(digest("secret-cursor").toString("hex"));
  });

  test("S1: templates are listed like resources: both lists have to end, and two scans have to agree on both", async () => {
    const session = await openSession(ledger);
    const listed = async (templates: readonly string[]) => {
      const scanId = await begin(session, { templates: true });
      await ledger.recordScanPage(session, scanId, page("", ["catalog://a"], { nextCursorDigest: null }));
      await ledger.recordScanPage(session, scanId, page("", templates, { list: "templates", nextCursorDigest: null }));
      return { scanId, outcome: await finish(session, scanId) };
    };
    const half = await begin(session, { templates: true });
    await ledger.recordScanPage(session, half, page("", ["catalog://a"], { nextCursorDigest: null }));
    expect(await finish(session, half)).toBe("incomplete");

    const [one, two] = ["catalog://plans/{id}", "catalog://plans/{id}/{year}"] as [string, string];
    const first = await listed([one]);
    const second = await listed([one, two]);
    expect([first.outcome, second.outcome]).toEqual(["complete", "complete"]);
    expect(await ledger.publishCatalog(session, { first: first.scanId, second: second.scanId })).toEqual({
      outcome: "differing",
    });
    const third = await listed([two, one]);
    expect(await ledger.publishCatalog(session, { first: second.scanId, second: third.scanId })).toMatchObject({
      outcome: "published",
      resources: 1,
    });
    const named = { source: session.source, reader: session.reader };
    const templates = await ledger.listedTemplates({ ...named, limit: 1 });
    expect(templates).toEqual([{ uriTemplate: one, name: undefined, title: undefined, mimeType: undefined }]);
    expect(await ledger.listedTemplates({ ...named, limit: 10, after: one })).toMatchObject([{ uriTemplate: two }]);
    // A scan without templates is another set than one that found none.
    const without = await scan(ledger, session, ["catalog://a"]);
    const none = await listed([]);
    expect(await ledger.publishCatalog(session, { first: without, second: none.scanId })).toEqual({
      outcome: "differing",
    });
  });

  test("S1: a snapshot id has to be bound by the pages of both lists", async () => {
    const session = await openSession(ledger);
    await ledger.recordCapabilities(session, { ...NEGOTIATED, snapshotId: true });
    for (const [id, outcome] of [
      ["s1", "proven"],
      ["s2", "void"],
    ] as const) {
      const scanId = await begin(session, { templates: true });
      await ledger.recordScanPage(session, scanId, page("", ["catalog://a"], { snapshotIdDigest: digest("s1") }));
      const templates = { list: "templates", snapshotIdDigest: digest(id) } as const;
      await ledger.recordScanPage(session, scanId, page("", ["catalog://{id}"], templates));
      expect(await finish(session, scanId)).toBe(outcome);
    }
  });

  test("S9: without a resources capability nothing is asked for, and the source is unknown, never empty", async () => {
    const session = await openSession(ledger);
    await publish(ledger, session, ["catalog://a"]);
    await ledger.recordCapabilities(session, { ...NEGOTIATED, resources: false });
    expect(await ledger.beginScan(session)).toBe("no_resources_capability");
    const [refused] = await ledger.sql<{ scan_id: number; verdict: string; reason: string }>(
      "select scan_id, verdict, reason from fenceline.scan where scope_id = $1 order by scan_id desc limit 1",
      [session.scopeId],
    );
    expect(refused).toMatchObject({ verdict: "INCOMPLETE", reason: "no_resources_capability" });
    const first = refused?.scan_id as number;
    expect(await ledger.recordScanPage(session, first, page("", []))).toBe("scan_ended");
    const [row] = await ledger.sql<{ vanished: number }>(
      "select count(*) filter (where vanished_scan_id is not null) as vanished from fenceline.subscription where scope_id = $1",
      [session.scopeId],
    );
    expect(row).toEqual({ vanished: 0 });
    await ledger.recordCapabilities(session, NEGOTIATED);
    expect(await publish(ledger, session, ["catalog://a"])).toMatchObject({ outcome: "published" });
  });
});
