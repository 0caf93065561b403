import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import type { Session } from "#src/sessions.js";
import {
  accept,
  activate,
  describeLedger,
  exactTiming,
  issueOne,
  openSession,
  READ_LEASE_MS,
  receipts,
  subscriptionRow,
} from "./ledger-under-test.js";

const URI = "catalog://plans/basic";
const LEASE_MS = 5_000;

describeLedger("sessions", (ledger) => {
  async function newSource(): Promise<string> {
    const source = `source-${randomUUID()}`;
    await ledger.registerSource({ name: source });
    return source;
  }

  function open(source: string, owner: string) {
    return ledger.openSession({ source, reader: "svc:rag", owner, leaseMs: LEASE_MS });
  }

  async function opened(source: string, owner: string): Promise<Session> {
    const result = await open(source, owner);
    if (result.outcome !== "opened") return expect.fail(`${owner} got ${result.outcome}`);
    return result.session;
  }

  test("of openers that race for one source and reader exactly one wins, and the others learn by whom it is held", async () => {
    const source = await newSource();
    const results = await Promise.all(["a", "b", "c", "d"].map((owner) => open(source, owner)));
    const winners = results.filter((result) => result.outcome === "opened");
    expect(winners).toHaveLength(1);
    const holders = new Set(results.flatMap((result) => (result.outcome === "held" ? [result.owner] : [])));
    expect(holders.size).toBe(1);
    expect(winners[0]).toMatchObject({ session: { generation: 1, source, reader: "svc:rag" } });
  });

  test("an unregistered source is refused by name", async () => {
    await expect(open("nowhere", "a")).rejects.toMatchObject({ code: "source_unknown" });
  });

  test("a heartbeat prolongs the lease from now, and is lost once the lease has ended", async () => {
    const session = await opened(await newSource(), "a");
    await ledger.advanceClock(LEASE_MS - 1);
    expect(await ledger.heartbeat(session)).toBe("held");
    await ledger.advanceClock(LEASE_MS - 1);
    expect(await ledger.heartbeat(session)).toBe("held");
    await ledger.advanceClock(LEASE_MS);
    expect(await ledger.heartbeat(session)).toBe("lost");
    expect(await ledger.heartbeat(session)).toBe("lost");
  });

  test("after a takeover the old holder's answer leaves a stale receipt and nothing else (F3, U11)", async () => {
    const source = await newSource();
    const old = await opened(source, "a");
    const [id] = (await activate(ledger, old, [URI])) as [number];
    const read = await issueOne(ledger, old);
    await ledger.advanceClock(LEASE_MS);
    const session = await opened(source, "b");
    expect(session.generation).toBe(old.generation + 1);
    const before = await subscriptionRow(ledger, id);
    expect(await accept(ledger, old, read, "late")).toBe("stale");
    expect(await ledger.settleReads(old, [{ ...read, as: "not_found" }])).toMatchObject([{ outcome: "stale" }]);
    expect(await ledger.issueDueReads(old, { limit: 10, leaseMs: READ_LEASE_MS })).toEqual([]);
    expect(await ledger.heartbeat(old)).toBe("lost");
    expect(await ledger.beginScan(old)).toBe("session_lost");
    expect(await ledger.openStream(old, 0)).toBe("session_lost");
    expect(await ledger.recordNotifications(old, [URI])).toEqual([{ uri: URI, outcome: "session_lost" }]);
    expect(await ledger.beginUnsubscribe(old, [URI])).toEqual([]);
    await ledger.activateSubscriptions(old, { shard: 0, pushed: [], polled: [id] });
    await ledger.endSession(old);
    expect(await subscriptionRow(ledger, id)).toEqual(before);
    expect((await receipts(ledger, session, id)).slice(-2)).toEqual(["stale", "stale"]);
    expect(await ledger.sql("select 1 from fenceline.resource_version where subscription_id = $1", [id])).toEqual([]);
    expect(await ledger.heartbeat(session)).toBe("held");
  });

  test("what an earlier session left in flight is read again at once by the next one (F9)", async () => {
    const source = await newSource();
    const old = await opened(source, "a");
    const [id] = (await activate(ledger, old, [URI], "polled")) as [number];
    await issueOne(ledger, old);
    await ledger.endSession(old);
    const session = await opened(source, "b");
    await ledger.activateSubscriptions(session, { shard: 0, pushed: [], polled: [id] });
    expect(await ledger.millisecondsToNextRead(session)).toBe(0);
    expect(await issueOne(ledger, session)).toMatchObject({ ordinal: 2 });
    expect((await receipts(ledger, session, id)).at(-1)).toBe("lost");
  });

  test("the end of a session ends no subscription, and its pushed content is unverified until read again (F6, U4)", async () => {
    const source = await newSource();
    const first = await opened(source, "a");
    const [id] = (await activate(ledger, first, [URI])) as [number];
    await accept(ledger, first, await issueOne(ledger, first), "v1");
    expect(await isVerified(id)).toBe(true);
    await ledger.endSession(first);
    expect(await isVerified(id)).toBe(false);
    const second = await opened(source, "b");
    expect(await ledger.subscriptionsToOpen(second, { limit: 10 })).toEqual([
      { subscriptionId: id, uri: URI, generation: 1 },
    ]);
    await ledger.openStream(second, 0);
    await ledger.activateSubscriptions(second, { shard: 0, pushed: [id], polled: [] });
    expect(await ledger.subscriptionsToOpen(second, { limit: 10 })).toEqual([]);
    const read = await issueOne(ledger, second);
    expect(read.reason).toBe("stream_opened");
    expect(await accept(ledger, second, read, "v1")).toBe("unchanged");
    expect(await isVerified(id)).toBe(true);
  });

  async function isVerified(id: number): Promise<boolean> {
    const [row] = await ledger.sql<{ verified: boolean }>(
      `select s.seen_stream_epoch is not distinct from t.epoch as verified
       from fenceline.subscription s join fenceline.stream t using (scope_id, shard) where s.subscription_id = $1`,
      [id],
    );
    return row?.verified as boolean;
  }

  test("an unsubscription whose answer is unknown is settled by the end of its session (U9)", async () => {
    const session = await opened(await newSource(), "a");
    const [id] = (await activate(ledger, session, [URI])) as [number];
    await ledger.beginUnsubscribe(session, [URI]);
    await ledger.settleUnsubscribe(session, [id], "unknown");
    expect(await subscriptionRow(ledger, id)).toMatchObject({ lifecycle: "UNSUBSCRIBE_UNKNOWN", close_ordinal: 0 });
    await ledger.endSession(session);
    expect(await subscriptionRow(ledger, id)).toMatchObject({ lifecycle: "CLOSED", close_ordinal: 0 });
  });

  test("a 401 suspends the scope: one read per interval, until one is accepted (P7)", async () => {
    const session = await openSession(ledger);
    await activate(ledger, session, [URI, "catalog://plans/pro"], "polled");
    const reads = await ledger.issueDueReads(session, { limit: 10, leaseMs: READ_LEASE_MS });
    await ledger.settleReads(
      session,
      reads.map((read) => ({ ...read, as: "unauthorized" as const })),
    );
    await ledger.advanceClock(exactTiming.retryMs);
    expect(await ledger.issueDueReads(session, { limit: 10, leaseMs: READ_LEASE_MS })).toEqual([]);
    expect(await ledger.millisecondsToNextRead(session)).toBe(exactTiming.polledIntervalMs - exactTiming.retryMs);
    await ledger.advanceClock(exactTiming.polledIntervalMs - exactTiming.retryMs);
    const probe = await issueOne(ledger, session);
    expect(await ledger.issueDueReads(session, { limit: 10, leaseMs: READ_LEASE_MS })).toEqual([]);
    expect(await ledger.millisecondsToNextRead(session)).toBe(exactTiming.polledIntervalMs);
    expect(await suspended(session)).toBe(true);
    expect(await accept(ledger, session, probe, "v1")).toBe("accepted");
    expect(await suspended(session)).toBe(false);
    await issueOne(ledger, session);
    await ledger.suspendScope(session, "401 on connect");
    expect(await suspended(session)).toBe(true);
    await ledger.resumeScope(session);
    expect(await suspended(session)).toBe(false);
    const [first, ...rest] = (await receipts(ledger, session)).filter(
      (kind) => kind === "suspended" || kind === "resumed",
    );
    expect([first, ...rest]).toEqual(["suspended", "resumed", "suspended", "resumed"]);
  });

  async function suspended(session: Session): Promise<boolean> {
    const [row] = await ledger.sql<{ suspended: boolean }>(
      "select suspended_at is not null as suspended from fenceline.policy_scope where scope_id = $1",
      [session.scopeId],
    );
    return row?.suspended as boolean;
  }

  test("what was negotiated is kept as a capability receipt, with the server's name in the session (U1)", async () => {
    const session = await openSession(ledger);
    const negotiated = {
      era: "modern",
      protocolVersion: "2026-07-28",
      server: { name: "catalog", version: "3" },
      resources: true,
      subscribe: true,
      listChanged: false,
    } as const;
    await ledger.recordCapabilities(session, negotiated);
    expect(
      await ledger.sql(
        `select r.negotiated, x.server_name, x.server_version, x.protocol_version
         from fenceline.capability_receipt r join fenceline.session x using (session_id) where session_id = $1`,
        [session.sessionId],
      ),
    ).toEqual([{ negotiated, server_name: "catalog", server_version: "3", protocol_version: "2026-07-28" }]);
  });

  test("a source that points elsewhere than before is noticed, and what is not said of it stays", async () => {
    const name = await newSource();
    await ledger.registerSource({ name, endpointDigest: Buffer.from("a"), stalenessMs: 1_000 });
    await ledger.registerSource({ name });
    await ledger.registerSource({ name, endpointDigest: Buffer.from("b") });
    expect(
      await ledger.sql("select endpoint_digest, staleness_ms from fenceline.source where name = $1", [name]),
    ).toEqual([{ endpoint_digest: Buffer.from("b"), staleness_ms: 1_000 }]);
    expect(await ledger.sql("select kind from fenceline.receipt where detail ->> 'source' = $1", [name])).toEqual([
      { kind: "source_endpoint_changed" },
    ]);
  });
});
