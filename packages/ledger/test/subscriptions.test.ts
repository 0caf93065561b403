import { expect, test } from "vitest";
import type { Session } from "#src/sessions.js";
import {
  accept,
  activate,
  describeLedger,
  exactTiming,
  issueOne,
  openSession,
  publish,
  READ_LEASE_MS,
  readDue,
  receipts,
  subscriptionRow,
} from "./ledger-under-test.js";

const URI = "catalog://plans/basic";
const WINDOW_MS = exactTiming.notificationWindowMs;

describeLedger("subscriptions", (ledger) => {
  async function pushed(uris: readonly string[] = [URI]): Promise<{ session: Session; ids: Record<string, number> }> {
    const session = await openSession(ledger);
    await activate(ledger, session, uris);
    await readDue(ledger, session, () => "v1");
    return { session, ids: await idsOf(session) };
  }

  async function idsOf(session: Session): Promise<Record<string, number>> {
    const rows = await ledger.sql<{ uri: string; subscription_id: number }>(
      "select uri, subscription_id from fenceline.subscription where scope_id = $1",
      [session.scopeId],
    );
    return Object.fromEntries(rows.map((row) => [row.uri, row.subscription_id]));
  }

  function dueUris(session: Session): Promise<string[]> {
    return ledger
      .issueDueReads(session, { limit: 1_000, leaseMs: READ_LEASE_MS })
      .then((reads) => reads.map((read) => read.uri).sort());
  }

  test("nothing is read before it was acknowledged or put on the timer (F3, U3)", async () => {
    const session = await openSession(ledger);
    await publish(ledger, session, [URI]);
    expect(await dueUris(session)).toEqual([]);
    const [ref] = await ledger.subscriptionsToOpen(session, { limit: 10 });
    const id = ref?.subscriptionId as number;
    expect(await subscriptionRow(ledger, id)).toMatchObject({ lifecycle: "SUBSCRIBING" });
    expect(await dueUris(session)).toEqual([]);
    await ledger.activateSubscriptions(session, { shard: 0, pushed: [], polled: [id] });
    expect(await subscriptionRow(ledger, id)).toMatchObject({ lifecycle: "ACTIVE", pushed: false });
    expect(await issueOne(ledger, session)).toMatchObject({ uri: URI, reason: "first" });
  });

  test("all notifications within the window from the first cause one read, due when that window ends (U5)", async () => {
    const { session, ids } = await pushed();
    for (let time = 0; time < 5; time++) {
      await ledger.recordNotifications(session, [URI, URI]);
      await ledger.advanceClock(10);
    }
    expect(await subscriptionRow(ledger, ids[URI] as number)).toMatchObject({
      notification_number: 5,
      due_in_ms: WINDOW_MS - 50,
    });
    expect(await dueUris(session)).toEqual([]);
    await ledger.advanceClock(WINDOW_MS - 50);
    expect(await readDue(ledger, session, () => "v2")).toBe(1);
    await ledger.advanceClock(10_000);
    expect(await dueUris(session)).toEqual([]);
  });

  test("whatever arrives after the read was sent causes one more, one window after the first of it (U5)", async () => {
    const { session, ids } = await pushed();
    await ledger.recordNotifications(session, [URI]);
    await ledger.advanceClock(WINDOW_MS);
    const read = await issueOne(ledger, session);
    await ledger.recordNotifications(session, [URI]);
    await ledger.advanceClock(60);
    await ledger.recordNotifications(session, [URI]);
    await ledger.advanceClock(WINDOW_MS);
    expect(await dueUris(session)).toEqual([]);
    expect(await accept(ledger, session, read, "v2")).toBe("accepted_not_current");
    expect(await subscriptionRow(ledger, ids[URI] as number)).toMatchObject({ due_in_ms: -60 });
    expect(await readDue(ledger, session, () => "v3")).toBe(1);
    await ledger.advanceClock(10_000);
    expect(await dueUris(session)).toEqual([]);
  });

  test("what is due and in flight takes no place from what else is due (U5)", async () => {
    const { session } = await pushed([URI, "catalog://plans/pro"]);
    await ledger.recordNotifications(session, [URI]);
    await ledger.advanceClock(WINDOW_MS);
    await issueOne(ledger, session);
    await ledger.recordNotifications(session, [URI]);
    await ledger.advanceClock(1);
    await ledger.recordNotifications(session, ["catalog://plans/pro"]);
    await ledger.advanceClock(WINDOW_MS);
    expect(await ledger.issueDueReads(session, { limit: 1, leaseMs: READ_LEASE_MS })).toMatchObject([
      { uri: "catalog://plans/pro" },
    ]);
  });

  test("a notification below a subscribed URI invalidates the longest one above it, and no other (U11)", async () => {
    const { session } = await pushed(["catalog://plans", "catalog://plans/basic", "catalog://plans/basic-2"]);
    const below = "catalog://plans/basic/prices?currency=EUR";
    expect(await ledger.recordNotifications(session, [below, "catalog://other", "catalog://plan"])).toEqual([
      { uri: below, outcome: "invalidated" },
      { uri: "catalog://other", outcome: "not_subscribed" },
      { uri: "catalog://plan", outcome: "not_subscribed" },
    ]);
    await ledger.advanceClock(WINDOW_MS);
    expect(await dueUris(session)).toEqual(["catalog://plans/basic"]);
    expect((await receipts(ledger, session)).at(-1)).toBe("notification_ignored");
  });

  test("a notification in another spelling finds its resource, an exact one before any it lies below (U11, F10)", async () => {
    const { session } = await pushed(["catalog://plans/a b", "catalog://plans"]);
    expect(await ledger.recordNotifications(session, ["CATALOG://plans/x/../a%20b"])).toMatchObject([
      { outcome: "invalidated" },
    ]);
    await ledger.advanceClock(WINDOW_MS);
    expect(await dueUris(session)).toEqual(["catalog://plans/a b"]);
  });

  test("URIs longer than an index entry are resources like any other", async () => {
    const long = `catalog://${"x".repeat(3_000)}`;
    const { session } = await pushed([`${long}1`, `${long}2`]);
    expect(await ledger.recordNotifications(session, [`${long}1`])).toMatchObject([{ outcome: "invalidated" }]);
    await ledger.advanceClock(WINDOW_MS);
    expect(await dueUris(session)).toEqual([`${long}1`]);
  });

  test("a broken stream makes its shard unverified and due, and no other (U4)", async () => {
    const session = await openSession(ledger);
    await publish(ledger, session, ["catalog://a", "catalog://b"]);
    const refs = await ledger.subscriptionsToOpen(session, { limit: 10 });
    await ledger.openStream(session, 0);
    await ledger.openStream(session, 1);
    for (const [shard, ref] of refs.entries()) {
      await ledger.activateSubscriptions(session, { shard, pushed: [ref.subscriptionId], polled: [] });
    }
    await readDue(ledger, session, () => "v1");
    await ledger.breakStream(session, 1);
    expect(await ledger.millisecondsToNextRead(session)).toBe(0);
    const read = await issueOne(ledger, session);
    expect(read).toMatchObject({ uri: refs[1]?.uri, reason: "stream_opened" });
    // Nothing was acknowledged in the new epoch, so this read cannot vouch for what was lost meanwhile.
    expect(await accept(ledger, session, read, "v1")).toBe("unchanged_not_current");
    expect(await dueUris(session)).toEqual([]);
  });

  test("after a break: acknowledgement first, then every URI of the stream is read again; the source changed meanwhile (U4, §9)", async () => {
    const { session, ids } = await pushed();
    await ledger.breakStream(session, 0);
    await readDue(ledger, session, () => "v1");
    await ledger.openStream(session, 0);
    const early = await issueOne(ledger, session);
    await ledger.activateSubscriptions(session, { shard: 0, pushed: Object.values(ids), polled: [] });
    expect(await accept(ledger, session, early, "v1")).toBe("unchanged_not_current");
    expect(await accept(ledger, session, await issueOne(ledger, session), "v2")).toBe("accepted");
    await ledger.advanceClock(10_000);
    expect(await dueUris(session)).toEqual([]);
  });

  test("adding URIs to a stream reads the new ones, not the rest (U4)", async () => {
    const { session, ids } = await pushed();
    await publish(ledger, session, [URI, "catalog://plans/pro"]);
    const [added] = await ledger.subscriptionsToOpen(session, { limit: 10 });
    await ledger.activateSubscriptions(session, {
      shard: 0,
      pushed: [ids[URI] as number, added?.subscriptionId as number],
      polled: [],
    });
    expect(await dueUris(session)).toEqual(["catalog://plans/pro"]);
  });

  test("subscribed URIs are read again at a low rate without any notification (U6)", async () => {
    const { session } = await pushed();
    expect(await ledger.millisecondsToNextRead(session)).toBe(exactTiming.pushedIntervalMs);
    await ledger.advanceClock(exactTiming.pushedIntervalMs);
    expect(await issueOne(ledger, session)).toMatchObject({ reason: "timer" });
  });

  test("a close freezes the close ordinal, and an acknowledgement closes what unsubscribes, once (U7, U9)", async () => {
    const { session, ids } = await pushed();
    const id = ids[URI] as number;
    expect(await ledger.beginUnsubscribe(session, [URI, "catalog://unknown"])).toEqual([
      { subscriptionId: id, uri: URI, generation: 1 },
    ]);
    expect(await ledger.beginUnsubscribe(session, [URI])).toEqual([]);
    expect(await ledger.recordNotifications(session, [URI])).toEqual([{ uri: URI, outcome: "not_subscribed" }]);
    expect(await ledger.subscriptionsToOpen(session, { limit: 10 })).toEqual([]);
    await ledger.settleUnsubscribe(session, [id], "unknown");
    expect(await subscriptionRow(ledger, id)).toMatchObject({ lifecycle: "UNSUBSCRIBE_UNKNOWN" });
    await ledger.settleUnsubscribe(session, [id], "acknowledged");
    await ledger.settleUnsubscribe(session, [id], "unknown");
    expect(await subscriptionRow(ledger, id)).toMatchObject({
      lifecycle: "CLOSED",
      issued_ordinal: 1,
      close_ordinal: 1,
      version_ordinal: 1,
    });
    expect(await ledger.sql("select text from fenceline.body where subscription_id = $1", [id])).toEqual([
      { text: "v1" },
    ]);
  });

  test("subscriptions to open come in pages, each once per session", async () => {
    const session = await openSession(ledger);
    await publish(
      ledger,
      session,
      Array.from({ length: 25 }, (_, number) => `catalog://${number}`),
    );
    const seen: number[] = [];
    for (let page = 0; page < 4; page++) {
      const refs = await ledger.subscriptionsToOpen(session, { limit: 10, afterId: seen.at(-1) ?? 0 });
      seen.push(...refs.map((ref) => ref.subscriptionId));
    }
    expect(new Set(seen).size).toBe(25);
    expect(seen).toEqual([...seen].sort((one, other) => one - other));
  });
});
