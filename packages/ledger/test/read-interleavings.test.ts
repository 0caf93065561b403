import { expect, test } from "vitest";
import type { Queryable } from "#src/database/database.js";
import { queryableInSchema } from "#src/ledger-schema.js";
import type { IssuedRead } from "#src/reads.js";
import type { Session } from "#src/sessions.js";
import {
  accept,
  activate,
  answer,
  areasOver,
  describeLedgerOnPostgres,
  exactTiming,
  insertRevocation,
  issueOne,
  LEASE_MS,
  openSession,
  READ_LEASE_MS,
  receipts,
  subscriptionRow,
} from "./ledger-under-test.js";

const URI = "catalog://plans/basic";

/** PGlite has one connection: it is no evidence about locks and snapshots. */
describeLedgerOnPostgres("interleavings of reads on real connections", (ledger) => {
  async function oneRead(): Promise<{ session: Session; id: number; read: IssuedRead }> {
    const session = await openSession(ledger);
    const [id] = (await activate(ledger, session, [URI])) as [number];
    return { session, id, read: await issueOne(ledger, session) };
  }

  /**
   * Runs `first` inside a transaction, starts `second` on another connection, waits until it waits for the first, then
   * commits: the second has to decide on what the first left.
   */
  async function secondWaitsForFirst<A, B>(
    first: (connection: Queryable) => Promise<A>,
    second: () => Promise<B>,
  ): Promise<[A, B]> {
    let waiting: Promise<B> | undefined;
    const before = await ledger.database.transaction(async (transaction) => {
      const connection = queryableInSchema(transaction, ledger.schema);
      const [{ pid } = { pid: 0 }] = await connection.query<{ pid: number }>("select pg_backend_pid() as pid");
      const value = await first(connection);
      waiting = second();
      await expect
        .poll(() => ledger.sql("select 1 from pg_stat_activity where $1 = any (pg_blocking_pids(pid))", [pid]), {
          timeout: 5_000,
          interval: 5,
        })
        .toHaveLength(1);
      return value;
    });
    return [before, await (waiting as Promise<B>)];
  }

  test("an acceptance that waits for a revocation is refused by it (P2, F3)", async () => {
    const { session, id, read } = await oneRead();
    const [, outcome] = await secondWaitsForFirst(
      async (connection) => {
        await connection.query("select fenceline.fence_exclusive($1)", [session.scopeId]);
        await insertRevocation((text, values) => connection.query(text, values), session, { uri: URI });
      },
      () => accept(ledger, session, read, "v1"),
    );
    expect(outcome).toBe("revoked");
    expect(await subscriptionRow(ledger, id)).toMatchObject({ accepted_ordinal: 0, version_ordinal: null });
    expect(await ledger.sql("select 1 from fenceline.outbox where subscription_id = $1", [id])).toEqual([]);
  });

  test("a claim that found what is due and then waits for a revocation issues nothing that it covers (P2)", async () => {
    const session = await openSession(ledger);
    const other = "catalog://prices/basic";
    await activate(ledger, session, [URI, other]);
    const [, reads] = await secondWaitsForFirst(
      async (connection) => {
        await connection.query("select fenceline.fence_exclusive($1)", [session.scopeId]);
        await insertRevocation((text, values) => connection.query(text, values), session, { uri: URI });
      },
      () => ledger.issueDueReads(session, { limit: 10, leaseMs: READ_LEASE_MS }),
    );
    expect(reads.map(({ uri }) => uri)).toEqual([other]);
  });

  test("a revocation waits for the acceptance that came first, which stands before it (P2)", async () => {
    const { session, id, read } = await oneRead();
    const [outcome, seen] = await secondWaitsForFirst(
      (connection) => accept(areasOver(connection, ledger.schema), session, read, "v1"),
      () =>
        ledger.database.transaction(async (transaction) => {
          const connection = queryableInSchema(transaction, ledger.schema);
          await connection.query("select fenceline.fence_exclusive($1)", [session.scopeId]);
          return connection.query("select version_ordinal from fenceline.subscription where subscription_id = $1", [
            id,
          ]);
        }),
    );
    expect(outcome).toBe("accepted");
    expect(seen).toEqual([{ version_ordinal: 1 }]);
  });

  test("of two acceptances of one ordinal one makes the version, the other a stale receipt (F3)", async () => {
    const { session, id, read } = await oneRead();
    const [first, second] = await secondWaitsForFirst(
      (connection) => accept(areasOver(connection, ledger.schema), session, read, "one"),
      () => accept(ledger, session, read, "two"),
    );
    expect([first, second]).toEqual(["accepted", "stale"]);
    expect((await receipts(ledger, session, id)).filter((kind) => kind === "version" || kind === "stale")).toEqual([
      "version",
      "stale",
    ]);
    expect(await ledger.sql("select text from fenceline.body where subscription_id = $1", [id])).toEqual([
      { text: "one" },
    ]);
  });

  test("an acceptance that waits for a close is stale_after_close (U8)", async () => {
    const { session, read } = await oneRead();
    const [closed, outcome] = await secondWaitsForFirst(
      (connection) => areasOver(connection, ledger.schema).beginUnsubscribe(session, [URI]),
      () => accept(ledger, session, read, "late"),
    );
    expect(closed).toHaveLength(1);
    expect(outcome).toBe("stale_after_close");
  });

  test("an acceptance that waits for a notification is not current (F3)", async () => {
    const { session, read } = await oneRead();
    const [, outcome] = await secondWaitsForFirst(
      (connection) => areasOver(connection, ledger.schema).recordNotifications(session, [URI]),
      () => accept(ledger, session, read, "v1"),
    );
    expect(outcome).toBe("accepted_not_current");
  });

  test("an acceptance that waits for a stream break is not current (U4)", async () => {
    const { session, read } = await oneRead();
    const [, outcome] = await secondWaitsForFirst(
      (connection) =>
        connection.query("select fenceline.raise_stream_epoch($1, $2, 0, true)", [session.scopeId, session.generation]),
      () => accept(ledger, session, read, "v1"),
    );
    expect(outcome).toBe("accepted_not_current");
  });

  test("a takeover waits for the old holder's acceptance, and everything after it is stale (F3)", async () => {
    const { session, id, read } = await oneRead();
    const [outcome, opened] = await secondWaitsForFirst(
      async (connection) => {
        const accepted = await accept(areasOver(connection, ledger.schema), session, read, "v1");
        // The lease ends right after it.
        await connection.query("update fenceline.session set expires_at = fenceline.now() where session_id = $1", [
          session.sessionId,
        ]);
        return accepted;
      },
      () =>
        ledger.openSession({ source: session.source, reader: session.reader, owner: "worker-2", leaseMs: LEASE_MS }),
    );
    expect(outcome).toBe("accepted");
    expect(opened).toMatchObject({ outcome: "opened", session: { generation: session.generation + 1 } });
    expect(await accept(ledger, session, read, "v2")).toBe("stale");
    expect(await subscriptionRow(ledger, id)).toMatchObject({ accepted_ordinal: 1 });
  });

  test("two issues race for one due resource: one read (U5)", async () => {
    const session = await openSession(ledger);
    await activate(ledger, session, [URI]);
    const [first, second] = await secondWaitsForFirst(
      (connection) =>
        areasOver(connection, ledger.schema).issueDueReads(session, { limit: 10, leaseMs: READ_LEASE_MS }),
      () => ledger.issueDueReads(session, { limit: 10, leaseMs: READ_LEASE_MS }),
    );
    expect([first.length, second.length]).toEqual([1, 0]);
  });

  test("batches over the same resources in opposite orders do not deadlock, and each ordinal is accepted once", async () => {
    const session = await openSession(ledger);
    const uris = Array.from({ length: 200 }, (_, number) => `catalog://plans/${number}`);
    await activate(ledger, session, uris);
    for (let round = 1; round <= 10; round++) {
      const reads = [
        ...(await ledger.issueDueReads(session, { limit: 100, leaseMs: READ_LEASE_MS })),
        ...(await ledger.issueDueReads(session, { limit: 100, leaseMs: READ_LEASE_MS })),
      ];
      expect(reads).toHaveLength(200);
      const answers = reads.map((read) => answer(read, `round ${round}`));
      const results = await Promise.all([
        ledger.acceptResourceVersions(session, answers),
        ledger.acceptResourceVersions(session, [...answers].reverse()),
        ledger.recordNotifications(session, uris, { windowMs: 0 }),
        ledger.recordNotifications(session, [...uris].reverse(), { windowMs: 0 }),
        ledger.acceptResourceVersions(session, answers),
      ]);
      const outcomes = [results[0], results[1], results[4]].flat().map(({ outcome }) => outcome);
      expect(outcomes.filter((outcome) => outcome === "stale")).toHaveLength(400);
    }
    const [versions] = await ledger.sql<{ versions: number }>(
      `select count(*) as versions from fenceline.resource_version join fenceline.subscription using (subscription_id)
       where scope_id = $1`,
      [session.scopeId],
    );
    expect(versions).toEqual({ versions: 2_000 });
  });

  test("a new policy scope takes in a revocation of every source that commits meanwhile (P1)", async () => {
    const reader = `svc:${crypto.randomUUID()}`;
    const source = `source-${crypto.randomUUID()}`;
    await ledger.registerSource({ name: source });
    const [{ subject } = { subject: 0 }] = await ledger.sql<{ subject: number }>(
      "select fenceline.ensure_subject($1) as subject",
      [reader],
    );
    const [, opened] = await secondWaitsForFirst(
      async (connection) => {
        await connection.query("select fenceline.fence_subject_exclusive($1)", [subject]);
        await connection.query(
          `insert into fenceline.revocation (request_id, source_id, subject_id, role, scope_text, match_from, match_to, key_from,
             key_to, reason, requested_by, policy_epoch)
           values (gen_random_uuid()::text, null, $1, 'both', '', '', '~', '', '~', 'test', 'test', 7)`,
          [subject],
        );
      },
      () => ledger.openSession({ source, reader, owner: "worker", leaseMs: LEASE_MS }),
    );
    if (opened.outcome !== "opened") expect.fail(opened.outcome);
    expect(
      await ledger.sql("select standing_revocations, policy_epoch from fenceline.policy_scope where scope_id = $1", [
        opened.session.scopeId,
      ]),
    ).toEqual([{ standing_revocations: 1, policy_epoch: 7 }]);
  });

  test("the lease of a read is not the fence: an interval later the next ordinal is issued, and both answers race (F4)", async () => {
    const { session, id, read } = await oneRead();
    await ledger.advanceClock(READ_LEASE_MS);
    const next = await issueOne(ledger, session);
    const [first, second] = await secondWaitsForFirst(
      (connection) => accept(areasOver(connection, ledger.schema), session, next, "new"),
      () => accept(ledger, session, read, "old"),
    );
    expect([first, second]).toEqual(["accepted", "stale"]);
    expect(await subscriptionRow(ledger, id)).toMatchObject({
      accepted_ordinal: 2,
      due_in_ms: exactTiming.pushedIntervalMs,
    });
  });
});
