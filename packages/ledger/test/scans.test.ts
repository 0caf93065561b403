import { expect, test } from "vitest";
import type { PublishResult } from "#src/catalog-publication.js";
import type { Session } from "#src/sessions.js";
import {
  accept,
  activate,
  describeLedger,
  digest,
  exactTiming,
  issueOne,
  openSession,
  publish,
  READ_LEASE_MS,
  readDue,
  receipts,
  scan,
  subscriptionRow,
} from "./ledger-under-test.js";

function plans(count: number): string[] {
  return Array.from({ length: count }, (_, number) => `catalog://plans/${String(number).padStart(4, "0")}`);
}

describeLedger("scans and the catalogue", (ledger) => {
  async function lifecycles(session: Session): Promise<Record<string, string>> {
    const rows = await ledger.sql<{ uri: string; lifecycle: string }>(
      "select uri, lifecycle from fenceline.subscription where scope_id = $1 order by uri",
      [session.scopeId],
    );
    return Object.fromEntries(rows.map((row) => [row.uri, row.lifecycle]));
  }

  async function idOf(session: Session, uri: string): Promise<number> {
    const [row] = await ledger.sql<{ subscription_id: number }>(
      "select subscription_id from fenceline.subscription where scope_id = $1 and uri = $2",
      [session.scopeId, uri],
    );
    return row?.subscription_id as number;
  }

  async function now(): Promise<Date> {
    const [row] = await ledger.sql<{ now: Date }>("select fenceline.now() as now");
    return row?.now as Date;
  }

  async function catalogue(session: Session) {
    const [row] = await ledger.sql(
      "select catalog_scan_id, catalog_verdict from fenceline.policy_scope where scope_id = $1",
      [session.scopeId],
    );
    return row;
  }

  test("two equal complete scans are published, unproven (S4, S5)", async () => {
    const session = await openSession(ledger);
    const uris = plans(250);
    const first = await scan(ledger, session, uris);
    const second = await scan(ledger, session, [...uris].reverse());
    expect(await ledger.publishCatalog(session, { first, second })).toEqual({
      outcome: "published",
      verdict: "SNAPSHOT_UNPROVEN",
      resources: 250,
      discovered: 250,
      vanished: 0,
      held: false,
      measuredAt: await now(),
      stalenessMs: 900_000,
      nextReviewAt: new Date((await now()).getTime() + exactTiming.catalogReviewMs),
    } satisfies PublishResult);
    expect(new Set(Object.values(await lifecycles(session)))).toEqual(new Set(["DISCOVERED"]));
    expect(await catalogue(session)).toEqual({ catalog_scan_id: second, catalog_verdict: "SNAPSHOT_UNPROVEN" });
    expect(await publish(ledger, session, uris)).toMatchObject({ outcome: "published", discovered: 0 });
  });

  test("a single scan is never a catalogue, nor are scans that differ, did not end, or are of another session (S4, S7)", async () => {
    const session = await openSession(ledger);
    const first = await scan(ledger, session, plans(3));
    expect(await ledger.publishCatalog(session, { first, second: first })).toEqual({ outcome: "incomplete" });
    const second = await scan(ledger, session, plans(4));
    expect(await ledger.publishCatalog(session, { first, second })).toEqual({ outcome: "differing" });
    const begun = await ledger.beginScan(session);
    const third = typeof begun === "string" ? expect.fail(begun) : begun.scanId;
    expect(await ledger.publishCatalog(session, { first: second, second: third })).toEqual({ outcome: "incomplete" });
    expect(
      await ledger.finishScan(session, third, { complete: false, verdict: "INCOMPLETE", reason: "cursor_loop" }),
    ).toBe("incomplete");
    expect(await ledger.publishCatalog(session, { first: second, second: third })).toEqual({ outcome: "incomplete" });
    const fourth = await scan(ledger, session, plans(4));
    await ledger.endSession(session);
    const next = await openSession(ledger, { source: session.source });
    expect(await ledger.publishCatalog(next, { first: second, second: fourth })).toEqual({ outcome: "incomplete" });
    expect(await ledger.publishCatalog(session, { first: second, second: fourth })).toEqual({
      outcome: "session_lost",
    });
    expect(await lifecycles(next)).toEqual({});
  });

  test("scans of another reader or source, given in the wrong order, or with another one between them are no pair (S4, S7)", async () => {
    const session = await openSession(ledger);
    const otherReader = await openSession(ledger, { source: session.source, reader: "svc:other" });
    const otherSource = await openSession(ledger);
    const mine = await scan(ledger, session, plans(3));
    for (const other of [otherReader, otherSource]) {
      const theirs = await scan(ledger, other, plans(3));
      for (const pair of [
        { first: mine, second: theirs },
        { first: theirs, second: mine },
      ]) {
        expect(await ledger.publishCatalog(session, pair)).toEqual({ outcome: "incomplete" });
        expect(await ledger.publishUnsettled(session, pair)).toMatchObject({ outcome: "incomplete" });
      }
    }
    const next = await scan(ledger, session, plans(3));
    const last = await scan(ledger, session, plans(3));
    for (const pair of [
      { first: next, second: mine },
      { first: mine, second: last },
      { first: last, second: last + 1_000 },
    ]) {
      expect(await ledger.publishCatalog(session, pair)).toEqual({ outcome: "incomplete" });
    }
    expect(await lifecycles(session)).toEqual({});
    expect(await ledger.publishCatalog(session, { first: next, second: last })).toMatchObject({ outcome: "published" });
  });

  test("a scan that began before the other ended is no second one (S4)", async () => {
    const session = await openSession(ledger);
    const begun = [await ledger.beginScan(session), await ledger.beginScan(session)];
    const [first, second] = begun.map((each) => (typeof each === "string" ? expect.fail(each) : each.scanId)) as [
      number,
      number,
    ];
    const entries = plans(3).map((uri) => ({ uri, descriptorDigest: digest(uri) }));
    for (const scanId of [first, second]) {
      await ledger.recordScanPage(session, scanId, { cursorDigest: digest(""), entries });
      await ledger.advanceClock(1);
      expect(await ledger.finishScan(session, scanId, { complete: true })).toBe("complete");
    }
    expect(await ledger.publishCatalog(session, { first, second })).toEqual({ outcome: "incomplete" });
  });

  test("an invalid cursor between two scans starts over: the one before it counts no more (S4)", async () => {
    const session = await openSession(ledger);
    const first = await scan(ledger, session, plans(3));
    const begun = await ledger.beginScan(session);
    const failed = typeof begun === "string" ? expect.fail(begun) : begun.scanId;
    const end = { complete: false, verdict: "INCOMPLETE", reason: "cursor_invalid" } as const;
    await ledger.finishScan(session, failed, end);
    const second = await scan(ledger, session, plans(3));
    expect(await ledger.publishCatalog(session, { first, second })).toEqual({ outcome: "incomplete" });
    const third = await scan(ledger, session, plans(3));
    expect(await ledger.publishCatalog(session, { first: second, second: third })).toMatchObject({
      outcome: "published",
    });
  });

  test("equal URIs with another description are a differing set (S4)", async () => {
    const session = await openSession(ledger);
    const scans: number[] = [];
    for (const title of ["Basic", "Basic plan"]) {
      const begun = await ledger.beginScan(session);
      if (typeof begun === "string") return expect.fail(begun);
      await ledger.recordScanPage(session, begun.scanId, {
        cursorDigest: digest(""),
        entries: [{ uri: "catalog://a", title, descriptorDigest: digest(title) }],
      });
      await ledger.finishScan(session, begun.scanId, { complete: true });
      scans.push(begun.scanId);
    }
    const [first, second] = scans as [number, number];
    expect(await ledger.publishCatalog(session, { first, second })).toEqual({ outcome: "differing" });
  });

  test("a list_changed between the first request and publication starts over (S4)", async () => {
    const session = await openSession(ledger);
    const first = await scan(ledger, session, plans(3));
    await ledger.recordListChanged(session);
    const second = await scan(ledger, session, plans(3));
    expect(await ledger.publishCatalog(session, { first, second })).toEqual({ outcome: "list_changed" });
    const third = await scan(ledger, session, plans(3));
    expect(await ledger.publishCatalog(session, { first: second, second: third })).toMatchObject({
      outcome: "published",
    });
  });

  test("unsettled scans serve what both list, remove nothing and name no catalogue (S4, S7)", async () => {
    const session = await openSession(ledger);
    await publish(ledger, session, ["catalog://a", "catalog://b"]);
    const before = await catalogue(session);
    const first = await scan(ledger, session, ["catalog://b", "catalog://c", "catalog://d"]);
    const second = await scan(ledger, session, ["catalog://c", "catalog://d", "catalog://e"]);
    expect(await ledger.publishUnsettled(session, { first, second })).toEqual({
      outcome: "published",
      resources: 2,
      discovered: 2,
    });
    expect(Object.keys(await lifecycles(session))).toEqual([
      "catalog://a",
      "catalog://b",
      "catalog://c",
      "catalog://d",
    ]);
    expect(await catalogue(session)).toEqual({ ...before, catalog_verdict: "UNSETTLED" });
    expect(await receipts(ledger, session)).not.toContain("vanished");
  });

  test("what vanished gets a fenced read before anything is removed, and one that is found again stays (F7)", async () => {
    const session = await openSession(ledger);
    await activate(ledger, session, ["catalog://a", "catalog://b"], "polled");
    await readDue(ledger, session, () => "v1");
    expect(await publish(ledger, session, ["catalog://a"])).toMatchObject({ vanished: 1, held: false });
    const read = await issueOne(ledger, session);
    expect(read).toMatchObject({ uri: "catalog://b", reason: "vanished" });
    expect(await accept(ledger, session, read, "v1")).toBe("unchanged");
    expect(await subscriptionRow(ledger, read.subscriptionId)).toMatchObject({
      lifecycle: "ACTIVE",
      hidden_because: null,
    });
    expect(await publish(ledger, session, ["catalog://a"])).toMatchObject({ vanished: 0 });
  });

  test.each([
    { known: 40, listed: 15, held: false, because: "25 of 40 is the count of the floor" },
    { known: 40, listed: 14, held: true, because: "26 of 40 is above both" },
    { known: 200, listed: 150, held: false, because: "50 of 200 is the share of the floor" },
    { known: 200, listed: 149, held: true, because: "51 of 200 is above both" },
    { known: 2, listed: 0, held: false, because: "an empty list of two is small" },
    { known: 3, listed: 0, held: true, because: "an empty list where three were known is suspect" },
  ])("the floor: $because ($known known, $listed listed, held back: $held) (S8)", async ({ known, listed, held }) => {
    const session = await openSession(ledger);
    await activate(ledger, session, plans(known), "polled");
    await readDue(ledger, session, () => "v1");
    expect(await publish(ledger, session, plans(listed))).toMatchObject({ vanished: known - listed, held });
    const reads = await ledger.issueDueReads(session, { limit: 1_000, leaseMs: READ_LEASE_MS });
    expect(reads).toHaveLength(held ? 0 : known - listed);
    expect((await receipts(ledger, session)).includes("removal_held")).toBe(held);
    expect((await ledger.heldRemovals()).some((removal) => removal.source === session.source)).toBe(held);
  });

  test("a held removal is carried out by the settled scan that agrees after a person confirmed it (S8)", async () => {
    const session = await openSession(ledger);
    await activate(ledger, session, plans(3), "polled");
    await readDue(ledger, session, () => "v1");
    expect(await publish(ledger, session, [])).toMatchObject({ held: true });
    expect(await publish(ledger, session, [])).toMatchObject({ held: true });
    const [removal] = (await ledger.heldRemovals()).filter(({ source }) => source === session.source);
    expect(removal).toMatchObject({ known: 3, vanished: 3, agreed: true, confirmedAt: undefined });
    expect(await ledger.confirmRemoval(removal?.heldRemovalId as number, "operator")).toBe("confirmed");
    expect(await publish(ledger, session, [])).toMatchObject({ held: false, vanished: 3 });
    expect(await ledger.issueDueReads(session, { limit: 10, leaseMs: READ_LEASE_MS })).toHaveLength(3);
    expect(await ledger.confirmRemoval(removal?.heldRemovalId as number, "operator")).toBe("unknown");
  });

  test("an emptied list that is not above the share goes on when a second full scan agrees, without a person (S8)", async () => {
    const session = await openSession(ledger);
    await activate(ledger, session, plans(3), "polled");
    const floor = { count: 25, share: 1 };
    const emptied = async () => {
      const first = await scan(ledger, session, []);
      return ledger.publishCatalog(session, { first, second: await scan(ledger, session, []), floor });
    };
    expect(await emptied()).toMatchObject({ held: true, vanished: 3 });
    expect(await emptied()).toMatchObject({ held: false, vanished: 3 });
  });

  test("the scans that found a removal do not agree with themselves, however often they are published (S8)", async () => {
    const session = await openSession(ledger);
    await activate(ledger, session, plans(3), "polled");
    const first = await scan(ledger, session, []);
    const second = await scan(ledger, session, []);
    expect(await ledger.publishCatalog(session, { first, second })).toMatchObject({ held: true });
    const [removal] = (await ledger.heldRemovals()).filter(({ source }) => source === session.source);
    await ledger.confirmRemoval(removal?.heldRemovalId as number, "operator");
    expect(await ledger.publishCatalog(session, { first, second })).toMatchObject({ held: true });
    expect(await publish(ledger, session, [])).toMatchObject({ held: false, vanished: 3 });
  });

  test("a confirmation is about the resources that were reported: another finding is held anew (S8)", async () => {
    const session = await openSession(ledger);
    await activate(ledger, session, plans(60), "polled");
    await publish(ledger, session, plans(30));
    const [removal] = (await ledger.heldRemovals()).filter(({ source }) => source === session.source);
    await ledger.confirmRemoval(removal?.heldRemovalId as number, "operator");
    expect(await publish(ledger, session, plans(29))).toMatchObject({ held: true, vanished: 31 });
    expect(await publish(ledger, session, plans(60))).toMatchObject({ held: false, vanished: 0 });
    expect((await ledger.heldRemovals()).filter(({ source }) => source === session.source)).toEqual([]);
  });

  test("two spellings of one key that are described alike are one resource (F10)", async () => {
    const session = await openSession(ledger);
    const uris = ["catalog://a%7eb", "catalog://a~b"];
    expect(await publish(ledger, session, uris)).toMatchObject({ resources: 1, discovered: 1 });
    expect(await lifecycles(session)).toEqual({ "catalog://a%7eb": "DISCOVERED" });
  });

  test("two spellings of one key with different descriptions are not served until a settled scan clears them (F10)", async () => {
    const session = await openSession(ledger);
    const spelled = async (entries: readonly [uri: string, title: string][]) => {
      const scans: number[] = [];
      for (let time = 0; time < 2; time++) {
        const begun = await ledger.beginScan(session);
        if (typeof begun === "string") return expect.fail(begun);
        for (const [uri, title] of entries) {
          await ledger.recordScanPage(session, begun.scanId, {
            cursorDigest: digest(uri),
            entries: [{ uri, title, descriptorDigest: digest(title) }],
          });
        }
        await ledger.finishScan(session, begun.scanId, { complete: true });
        scans.push(begun.scanId);
      }
      return ledger.publishCatalog(session, { first: scans[0] as number, second: scans[1] as number });
    };
    await spelled([
      ["catalog://a%7eb", "one"],
      ["catalog://a~b", "two"],
    ]);
    expect(await lifecycles(session)).toEqual({ "catalog://a%7eb": "RECONCILIATION_REQUIRED" });
    expect(await ledger.subscriptionsToOpen(session, { limit: 10 })).toEqual([]);
    await spelled([["catalog://a~b", "two"]]);
    const id = await idOf(session, "catalog://a~b");
    expect(await subscriptionRow(ledger, id)).toMatchObject({
      lifecycle: "ACTIVE",
      generation: 2,
      hidden_because: "unreconciled",
    });
    expect(await accept(ledger, session, await issueOne(ledger, session), "v1")).toBe("accepted");
    expect(await subscriptionRow(ledger, id)).toMatchObject({ hidden_because: null });
  });

  test("a closed subscription is reopened with a new generation only by a listing after an absence (§3)", async () => {
    const session = await openSession(ledger);
    await activate(ledger, session, ["catalog://a", "catalog://b"]);
    const id = await idOf(session, "catalog://a");
    await readDue(ledger, session, () => "v1");
    await ledger.beginUnsubscribe(session, ["catalog://a"]);
    await ledger.settleUnsubscribe(session, [id], "acknowledged");
    // Spelled in another way, so that the listing is news; it is no return.
    await publish(ledger, session, ["catalog://%61", "catalog://b"]);
    expect(await subscriptionRow(ledger, id)).toMatchObject({
      lifecycle: "CLOSED",
      generation: 1,
      uri: "catalog://%61",
    });
    await publish(ledger, session, ["catalog://b"]);
    await publish(ledger, session, ["catalog://a", "catalog://b"]);
    expect(await subscriptionRow(ledger, id)).toMatchObject({
      lifecycle: "SUBSCRIBING",
      generation: 2,
      close_ordinal: null,
    });
    expect(await ledger.subscriptionsToOpen(session, { limit: 10 })).toMatchObject([
      { subscriptionId: id, generation: 2 },
    ]);
    await ledger.activateSubscriptions(session, { shard: 0, pushed: [id], polled: [] });
    const [read] = (await ledger.issueDueReads(session, { limit: 10, leaseMs: READ_LEASE_MS })).filter(
      ({ subscriptionId }) => subscriptionId === id,
    );
    expect(read).toMatchObject({ generation: 2, reason: "reopened" });
    expect(await accept(ledger, session, read as never, "v1")).toBe("accepted");
  });

  test("the entries of old scans are forgotten, but not those of the last two and of the catalogue (S6, S8)", async () => {
    const session = await openSession(ledger);
    await publish(ledger, session, plans(5));
    const { catalog_scan_id: catalog } = (await catalogue(session)) as { catalog_scan_id: number };
    const later: number[] = [];
    for (let time = 0; time < 4; time++) later.push(await scan(ledger, session, plans(5)));
    const kept = await ledger.sql<{ scan_id: number }>(
      `select distinct scan_id from fenceline.scan_entry join fenceline.scan using (scan_id) where scope_id = $1 order by 1`,
      [session.scopeId],
    );
    // Forgetting comes before a scan begins: the last two then, and the one since.
    expect(kept.map(({ scan_id }) => scan_id)).toEqual([catalog, ...later.slice(-3)]);
  });

  test("an unproven catalogue says when it is to be measured again, and list_changed makes that now (S5, S9)", async () => {
    const session = await openSession(ledger);
    await publish(ledger, session, plans(1));
    expect(await reviewIn(session)).toBe(exactTiming.catalogReviewMs);
    await ledger.recordListChanged(session);
    expect(await reviewIn(session)).toBe(0);
  });

  test("list_changed is coalesced until a scan follows: one receipt, and every scan begun before is called off (S9)", async () => {
    const session = await openSession(ledger);
    const said: string[] = [];
    for (let time = 0; time < 500; time++) said.push(await ledger.recordListChanged(session));
    expect(said.filter((each) => each === "recorded")).toHaveLength(1);
    expect(said[0]).toBe("recorded");
    const first = await scan(ledger, session, plans(1));
    expect(await ledger.recordListChanged(session)).toBe("recorded");
    expect(await ledger.recordListChanged(session)).toBe("coalesced");
    const second = await scan(ledger, session, plans(1));
    expect(await ledger.publishCatalog(session, { first, second })).toEqual({ outcome: "list_changed" });
    const third = await scan(ledger, session, plans(1));
    expect(await ledger.publishCatalog(session, { first: second, second: third })).toMatchObject({
      outcome: "published",
    });
    expect((await receipts(ledger, session)).filter((kind) => kind === "list_changed")).toHaveLength(2);
    await ledger.endSession(session);
    expect(await ledger.recordListChanged(session)).toBe("session_lost");
  });

  test("the ledger tells which catalogues are due for review, and when the next one is (S5)", async () => {
    const session = await openSession(ledger);
    const isDue = async () => (await ledger.scansDue()).some(({ source }) => source === session.source);
    expect(await ledger.millisecondsToNextReview(session)).toBeUndefined();
    await publish(ledger, session, plans(1));
    expect(await ledger.millisecondsToNextReview(session)).toBe(exactTiming.catalogReviewMs);
    expect(await isDue()).toBe(false);
    await ledger.advanceClock(exactTiming.catalogReviewMs);
    expect(await ledger.millisecondsToNextReview(session)).toBe(0);
    expect(await isDue()).toBe(true);
    await publish(ledger, session, plans(1));
    expect(await isDue()).toBe(false);
  });

  async function reviewIn(session: Session): Promise<number | undefined> {
    const [row] = await ledger.sql<{ ms: number }>(
      "select (extract(epoch from next_review_at - fenceline.now()) * 1000)::int as ms from fenceline.policy_scope where scope_id = $1",
      [session.scopeId],
    );
    return row?.ms;
  }
});
