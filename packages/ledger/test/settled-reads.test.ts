import { expect, test } from "vitest";
import type { IssuedRead, SettledAs } from "#src/reads.js";
import type { Session } from "#src/sessions.js";
import {
  accept,
  activate,
  describeLedger,
  exactTiming,
  issueOne,
  type LedgerUnderTest,
  openSession,
  publish,
  READ_LEASE_MS,
  readDue,
  receipts,
  subscriptionRow,
} from "./ledger-under-test.js";

const URI = "catalog://plans/basic";
const SPACING_MS = exactTiming.notFoundSpacingMs;

describeLedger("reads that bring no content", (ledger) => {
  async function served(): Promise<{ session: Session; id: number }> {
    const session = await openSession(ledger);
    const [id] = (await activate(ledger, session, [URI], "polled")) as [number];
    await readDue(ledger, session, () => "v1");
    return { session, id };
  }

  async function nextReadEnds(session: Session, as: SettledAs, afterMs: number = exactTiming.polledIntervalMs) {
    await ledger.advanceClock(afterMs);
    const read = await issueOne(ledger, session);
    const [settled] = await ledger.settleReads(session, [{ ...read, as, message: "-32602" }]);
    return settled?.outcome;
  }

  /** An entry group with one current edge to the newest version, as a confirm leaves it. */
  async function indexed(id: number): Promise<number> {
    const [group] = await ledger.sql<{ group_id: number }>(
      `insert into fenceline.entry_group (index_id, store_id, resource_id, part_id, state, entries)
       select x.index_id, x.store_id, s.resource_id, s.resource_id, 'PRESENT', 1
       from fenceline.subscription s, fenceline.index x where s.subscription_id = $1 and x.name = 'main' returning group_id`,
      [id],
    );
    await ledger.sql(
      `insert into fenceline.group_root (group_id, subscription_id, ordinal, part_id, scope_id, resource_id, index_id, state)
       select $2, s.subscription_id, s.version_ordinal, s.resource_id, s.scope_id, s.resource_id, x.index_id, 'CURRENT'
       from fenceline.subscription s, fenceline.index x where s.subscription_id = $1 and x.name = 'main'`,
      [id, group?.group_id],
    );
    return group?.group_id as number;
  }

  test("a first 'not found' hides at once, and a second one, spaced, confirms the deletion (F7)", async () => {
    const { session, id } = await served();
    const group = await indexed(id);
    expect(await nextReadEnds(session, "not_found")).toBe("tombstone_pending");
    expect(await subscriptionRow(ledger, id)).toMatchObject({
      hidden_because: "tombstone_pending",
      due_in_ms: SPACING_MS,
    });
    expect(await edges(ledger, group)).toEqual([{ state: "CURRENT", purge_due: false }]);
    expect(await nextReadEnds(session, "not_found", SPACING_MS)).toBe("tombstoned");
    expect(await subscriptionRow(ledger, id)).toMatchObject({
      lifecycle: "ACTIVE",
      hidden_because: "tombstoned",
      version_ordinal: null,
      due_in_ms: null,
    });
    expect(await edges(ledger, group)).toEqual([{ state: "TOMBSTONED", purge_due: true }]);
    expect(await ledger.sql("select 1 from fenceline.body where subscription_id = $1", [id])).toEqual([]);
    expect(
      await ledger.sql("select pending, confirmed_ordinal from fenceline.outbox where subscription_id = $1", [id]),
    ).toEqual([
      { pending: false, confirmed_ordinal: 3 },
      { pending: false, confirmed_ordinal: 3 },
    ]);
    expect((await receipts(ledger, session, id)).slice(-2)).toEqual(["tombstone_pending", "tombstone"]);
  });

  test("a second 'not found' too soon after the first confirms nothing (F7)", async () => {
    const { session, id } = await served();
    await nextReadEnds(session, "not_found");
    const [read] = await ledger.issueReads(session, { uris: [URI], reason: "demand", leaseMs: READ_LEASE_MS });
    expect(await ledger.settleReads(session, [{ ...(read as IssuedRead), as: "not_found" }])).toMatchObject([
      { outcome: "tombstone_pending" },
    ]);
    expect(await subscriptionRow(ledger, id)).toMatchObject({
      hidden_because: "tombstone_pending",
      due_in_ms: SPACING_MS,
    });
  });

  test("a successful read shows a hidden resource again, unchanged while it was only pending (F7, F6)", async () => {
    const { session, id } = await served();
    await nextReadEnds(session, "not_found");
    await ledger.advanceClock(SPACING_MS);
    expect(await accept(ledger, session, await issueOne(ledger, session), "v1")).toBe("unchanged");
    expect(await subscriptionRow(ledger, id)).toMatchObject({ hidden_because: null });
    expect(await nextReadEnds(session, "not_found")).toBe("tombstone_pending");
    expect(await nextReadEnds(session, "not_found", SPACING_MS)).toBe("tombstoned");
    await ledger.recordNotifications(session, [URI]);
    await ledger.advanceClock(exactTiming.notificationWindowMs);
    expect(await accept(ledger, session, await issueOne(ledger, session), "v1")).toBe("accepted");
    expect(await subscriptionRow(ledger, id)).toMatchObject({ hidden_because: null, version_ordinal: 6 });
  });

  test("absence from a later settled scan confirms the deletion of what was listed and not found (F7)", async () => {
    const { session, id } = await served();
    await nextReadEnds(session, "not_found");
    await ledger.advanceClock(1);
    expect(await publish(ledger, session, [])).toMatchObject({ vanished: 1, held: false });
    expect(await subscriptionRow(ledger, id)).toMatchObject({ hidden_because: "tombstoned" });
  });

  test("a settled scan that began before the 'not found' confirms nothing (F7)", async () => {
    const { session, id } = await served();
    await nextReadEnds(session, "not_found");
    expect(await publish(ledger, session, [])).toMatchObject({ vanished: 1 });
    expect(await subscriptionRow(ledger, id)).toMatchObject({ hidden_because: "tombstone_pending" });
  });

  test("what was deleted and is listed again is read and served as a new version (F7)", async () => {
    const { session, id } = await served();
    await nextReadEnds(session, "not_found");
    await nextReadEnds(session, "not_found", SPACING_MS);
    expect(await ledger.millisecondsToNextRead(session)).toBeUndefined();
    await publish(ledger, session, [URI]);
    expect(await accept(ledger, session, await issueOne(ledger, session), "v1")).toBe("accepted");
    expect(await subscriptionRow(ledger, id)).toMatchObject({ hidden_because: null });
  });

  test("a late 'not found' after newer content is stale, and late content after a newer 'not found' as well (F4, F7)", async () => {
    const { session, id } = await served();
    await ledger.advanceClock(exactTiming.polledIntervalMs);
    const slow = await issueOne(ledger, session);
    await ledger.advanceClock(READ_LEASE_MS);
    const next = await issueOne(ledger, session);
    expect(await ledger.settleReads(session, [{ ...next, as: "not_found" }])).toMatchObject([
      { outcome: "tombstone_pending" },
    ]);
    expect(await accept(ledger, session, slow, "v0")).toBe("stale");
    expect(await subscriptionRow(ledger, id)).toMatchObject({ hidden_because: "tombstone_pending" });

    await ledger.advanceClock(SPACING_MS);
    const slow2 = await issueOne(ledger, session);
    await ledger.advanceClock(READ_LEASE_MS);
    expect(await accept(ledger, session, await issueOne(ledger, session), "v1")).toBe("unchanged");
    expect(await ledger.settleReads(session, [{ ...slow2, as: "not_found" }])).toMatchObject([{ outcome: "stale" }]);
    expect(await subscriptionRow(ledger, id)).toMatchObject({ hidden_because: null });
  });

  test("403 hides the resource at once, until a read succeeds (P7)", async () => {
    const { session, id } = await served();
    expect(await nextReadEnds(session, "forbidden")).toBe("hidden");
    expect(await subscriptionRow(ledger, id)).toMatchObject({ hidden_because: "forbidden", version_ordinal: 1 });
    await ledger.advanceClock(exactTiming.retryMs);
    expect(await accept(ledger, session, await issueOne(ledger, session), "v1")).toBe("unchanged");
    expect(await subscriptionRow(ledger, id)).toMatchObject({ hidden_because: null });
  });

  test.each(["failed", "empty", "too_large"] as const)(
    "'%s' is unknown: neither version nor deletion, and backs off (F7)",
    async (as) => {
      const { session, id } = await served();
      const before = await subscriptionRow(ledger, id);
      expect(await nextReadEnds(session, as)).toBe("settled");
      expect(await subscriptionRow(ledger, id)).toMatchObject({
        hidden_because: null,
        accepted_ordinal: 1,
        version_ordinal: 1,
        verified_at: before.verified_at,
        due_in_ms: exactTiming.retryMs,
      });
      expect(await nextReadEnds(session, as, exactTiming.retryMs)).toBe("settled");
      expect(await subscriptionRow(ledger, id)).toMatchObject({ failures: 2, due_in_ms: 2 * exactTiming.retryMs });
    },
  );

  test("more 'not found' at once than the floor allows are held back, not hidden (F7, S8)", async () => {
    const session = await openSession(ledger);
    const count = exactTiming.removalFloorCount + 5;
    await activate(
      ledger,
      session,
      Array.from({ length: count }, (_, number) => `catalog://${number}`),
      "polled",
    );
    await readDue(ledger, session, () => "v1");
    await ledger.advanceClock(exactTiming.polledIntervalMs);
    const reads = await ledger.issueDueReads(session, { limit: 100, leaseMs: READ_LEASE_MS });
    const settled = await ledger.settleReads(
      session,
      reads.map((read) => ({ ...read, as: "not_found" as const })),
    );
    expect(new Set(settled.map(({ outcome }) => outcome))).toEqual(new Set(["settled"]));
    expect(await hidden(session)).toEqual([{ hidden: 0 }]);
    expect((await receipts(ledger, session)).filter((kind) => kind === "removal_held")).toHaveLength(count);
  });

  function hidden(session: Session) {
    return ledger.sql("select count(hidden_because) as hidden from fenceline.subscription where scope_id = $1", [
      session.scopeId,
    ]);
  }
});

function edges(ledger: LedgerUnderTest, group: number) {
  return ledger.sql(
    "select r.state, g.purge_due from fenceline.group_root r join fenceline.entry_group g using (group_id) where group_id = $1",
    [group],
  );
}
