import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { activate, issueOne, LEASE_MS, publish, READ_LEASE_MS } from "./ledger-under-test.js";
import { overlapping } from "./overlapping.js";
import {
  activeSource,
  advance,
  brokenInvariants,
  claimWork,
  createIndex,
  describeWholeLedgerOnPostgres,
  indexDue,
  purge,
  readNow,
  seen,
  type WholeLedger,
  writeVersion,
} from "./whole-ledger.js";

const URI = "catalog://plans/basic";
const NEW = "catalog://plans/new";
const READER = ["svc:rag"];

/** P2 by pairs: whatever overlaps a revocation or a lift waits for it, or is waited for. */
describeWholeLedgerOnPostgres("a revocation or a lift beside everything else", (ledger) => {
  const revocationOf = (source: string) => ({ source, subject: "svc:rag", reason: "r" });
  type Session = Awaited<ReturnType<typeof activeSource>>["session"];

  test("what is discovered while its prefix is revoked is neither subscribed nor read, whoever comes first (P1, P2)", async () => {
    for (const revokeFirst of [true, false]) {
      const { session, source } = await activeSource(ledger, [URI]);
      const revoke = (areas: Pick<WholeLedger, "revoke">) =>
        areas.revoke({ ...revocationOf(source), scope: { prefix: "catalog://plans/" } });
      const discover = (areas: Parameters<typeof publish>[0]) => publish(areas, session, [URI, NEW]);
      const [, , waited] = revokeFirst
        ? await overlapping(ledger, revoke, () => discover(ledger))
        : await overlapping(ledger, discover, () => revoke(ledger));
      expect(waited).toBe(true);
      expect(await ledger.subscriptionsToOpen(session, { limit: 10 })).toEqual([]);
      expect(await ledger.issueReads(session, { uris: [NEW], reason: "demand", leaseMs: READ_LEASE_MS })).toEqual([]);
      const [open] = await ledger.listRevocations({ open: true });
      await advance(ledger, open?.revocationId as number);
      expect(await lifecycles(session)).toEqual(["CLOSED", "CLOSED"]);
      await ledger.lift(open?.revocationId as number);
      expect(await activate(ledger, session, [URI, NEW])).toHaveLength(2);
    }
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a read issued while its resource is revoked is refused an ordinal, or its answer is refused (P2, F3)", async () => {
    const revokedFirst = await activeSource(ledger, [URI]);
    const [, issued, waited] = await overlapping(
      ledger,
      (first) => first.revoke(revocationOf(revokedFirst.source)),
      () => ledger.issueReads(revokedFirst.session, { uris: [URI], reason: "demand", leaseMs: READ_LEASE_MS }),
    );
    expect([waited, issued]).toEqual([true, []]);
    const issuedFirst = await activeSource(ledger, [URI]);
    const [read, , revocationWaited] = await overlapping(
      ledger,
      (first) => issueOne(first, issuedFirst.session),
      () => ledger.revoke(revocationOf(issuedFirst.source)),
    );
    expect(revocationWaited).toBe(true);
    expect(await ledger.acceptResourceVersions(issuedFirst.session, [answerTo(read)])).toMatchObject([
      { outcome: "revoked" },
    ]);
  });

  test("an intent that overlaps a revocation is dead when it is recorded, and leaves with the next sweep (P4, L2)", async () => {
    const { session, source } = await activeSource(ledger, [URI]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [URI], () => "text");
    const [work] = await claimWork(ledger, index, source);
    const [revoked, planned, waited] = await overlapping(
      ledger,
      (first) => first.revoke(revocationOf(source)),
      () => writeVersion(ledger, index, work as NonNullable<typeof work>),
    );
    expect(waited).toBe(true);
    expect(await ledger.confirmVersions(index.ref, [planned])).toMatchObject([{ outcome: "revoked" }]);
    expect(await seen(ledger, index, READER)).toEqual([]);
    await advance(ledger, revoked.revocationId);
    await ledger.advanceClock(10_000);
    await purge(ledger, index);
    expect([...index.entries]).toEqual([]);
    expect(await ledger.revocation(revoked.revocationId)).toMatchObject({ state: "COMPLETE" });
  });

  test("an answer that overlaps a lift is accepted if the lift comes first, and refused if not (P2, F3)", async () => {
    for (const liftFirst of [true, false]) {
      const { session, source } = await activeSource(ledger, [URI]);
      const read = await issueOne(ledger, session);
      const { revocationId } = await ledger.revoke(revocationOf(source));
      const lift = (areas: Pick<WholeLedger, "lift">) => areas.lift(revocationId);
      const accept = async (areas: Pick<WholeLedger, "acceptResourceVersions">) =>
        (await areas.acceptResourceVersions(session, [answerTo(read)]))[0]?.outcome;
      const outcome = liftFirst
        ? (await overlapping(ledger, lift, () => accept(ledger)))[1]
        : (await overlapping(ledger, accept, () => lift(ledger)))[0];
      expect(outcome).toBe(liftFirst ? "accepted" : "revoked");
    }
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a takeover waits for a revocation's batches, and neither waits for the other in a circle (P2, U9)", async () => {
    const { session, source } = await activeSource(ledger, [URI, NEW]);
    await ledger.beginUnsubscribe(session, [URI]);
    const { revocationId } = await ledger.revoke(revocationOf(source));
    await ledger.advanceClock(LEASE_MS + 1);
    // A batch that covers nothing shares the session; the next one closes what the takeover settles first.
    const elsewhere = await ledger.revoke({ ...revocationOf(source), scope: { uri: "catalog://elsewhere" } });
    const [, taken, waited] = await overlapping(
      ledger,
      (batch) => batch.advanceRevocation(elsewhere.revocationId, { limit: 10 }),
      () => ledger.openSession({ source, reader: session.reader, owner: "worker-2", leaseMs: LEASE_MS }),
      (batch) => batch.advanceRevocation(revocationId, { limit: 10 }),
    );
    expect([waited, taken.outcome]).toEqual([true, "opened"]);
    await advance(ledger, revocationId);
    expect(await lifecycles(session)).toEqual(["CLOSED", "CLOSED"]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a lift that overlaps another revocation of the same scope leaves everything closed, whoever comes first (P2)", async () => {
    for (const liftFirst of [true, false]) {
      const { session, source } = await activeSource(ledger, [URI, NEW]);
      const first = await ledger.revoke(revocationOf(source));
      await advance(ledger, first.revocationId);
      const lift = (areas: Pick<WholeLedger, "lift">) => areas.lift(first.revocationId);
      const revoke = (areas: Pick<WholeLedger, "revoke">) => areas.revoke(revocationOf(source));
      const [waited, second] = liftFirst
        ? await overlapping(ledger, lift, () => revoke(ledger)).then(([, answer, waits]) => [waits, answer] as const)
        : await overlapping(ledger, revoke, () => lift(ledger)).then(([answer, , waits]) => [waits, answer] as const);
      expect(waited).toBe(true);
      await advance(ledger, second.revocationId);
      expect(await lifecycles(session)).toEqual(["CLOSED", "CLOSED"]);
      expect(await standing(session)).toBe(1);
      await ledger.lift(second.revocationId);
      expect(await lifecycles(session)).toEqual(["SUBSCRIBING", "SUBSCRIBING"]);
      expect(await standing(session)).toBe(0);
    }
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a batch of reopening that overlaps another revocation closes again what it opened (P2)", async () => {
    for (const batchFirst of [true, false]) {
      const { session, source } = await activeSource(ledger, [URI, NEW]);
      const first = await ledger.revoke(revocationOf(source));
      await advance(ledger, first.revocationId);
      await ledger.sql("select fenceline.lift_revocation($1)", [first.revocationId]);
      const batch = (areas: Pick<WholeLedger, "advanceRevocation">) =>
        areas.advanceRevocation(first.revocationId, { limit: 1 });
      const revoke = (areas: Pick<WholeLedger, "revoke">) => areas.revoke(revocationOf(source));
      const [waited, second] = batchFirst
        ? await overlapping(ledger, batch, () => revoke(ledger)).then(([, answer, waits]) => [waits, answer] as const)
        : await overlapping(ledger, revoke, () => batch(ledger)).then(([answer, , waits]) => [waits, answer] as const);
      expect(waited).toBe(true);
      await advance(ledger, first.revocationId);
      await advance(ledger, second.revocationId);
      expect(await lifecycles(session)).toEqual(["CLOSED", "CLOSED"]);
      await ledger.lift(second.revocationId);
      expect(await lifecycles(session)).toEqual(["SUBSCRIBING", "SUBSCRIBING"]);
    }
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a lift whose worker died between two batches goes on, also with two others at once, and reopens each once (P2)", async () => {
    const uris = Array.from({ length: 7 }, (_, number) => `catalog://plans/${number}`);
    const { session, source } = await activeSource(ledger, uris);
    const { revocationId } = await ledger.revoke(revocationOf(source));
    await advance(ledger, revocationId);
    await ledger.sql("select fenceline.lift_revocation($1)", [revocationId]);
    expect(await ledger.advanceRevocation(revocationId, { limit: 3 })).toBe("more");
    expect((await lifecycles(session)).filter((state) => state === "SUBSCRIBING")).toHaveLength(3);
    expect(await ledger.revocationsToAdvance()).toContain(revocationId);
    const [, , waited] = await overlapping(
      ledger,
      (other) => other.advanceRevocation(revocationId, { limit: 3 }),
      () => advance(ledger, revocationId),
    );
    expect(waited).toBe(true);
    expect(new Set(await lifecycles(session))).toEqual(new Set(["SUBSCRIBING"]));
    expect(await ledger.revocationsToAdvance()).not.toContain(revocationId);
    const generations = await ledger.sql("select distinct generation from fenceline.subscription where scope_id = $1", [
      session.scopeId,
    ]);
    expect(generations).toEqual([{ generation: 2 }]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a revocation in SQL inside a longer transaction takes effect with its commit, and holds the fence until then (P2)", async () => {
    const { session, source } = await activeSource(ledger, [URI]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [URI], () => "text");
    await indexDue(ledger, index, source);
    const [read] = await ledger.issueReads(session, { uris: [URI], reason: "demand", leaseMs: READ_LEASE_MS });
    const seenMeanwhile: string[][] = [];
    const [, outcome, waited] = await overlapping(
      ledger,
      async (areas) => {
        await areas.sql(
          "select fenceline.fenceline_revoke(request_id => $1, subject => 'svc:rag', reason => 'r', source => $2)",
          [randomUUID(), source],
        );
        seenMeanwhile.push(await seen(ledger, index, READER));
      },
      async () =>
        (await ledger.acceptResourceVersions(session, [answerTo(read as NonNullable<typeof read>)]))[0]?.outcome,
    );
    expect([waited, outcome, seenMeanwhile]).toEqual([true, "revoked", [["text"]]]);
    expect(await seen(ledger, index, READER)).toEqual([]);
  });

  function answerTo({ subscriptionId, ordinal, requestId, uri }: Awaited<ReturnType<typeof issueOne>>) {
    return { subscriptionId, ordinal, requestId, digest: Buffer.alloc(32, 1), parts: [{ uri, text: "text" }] };
  }

  async function lifecycles(session: Session): Promise<string[]> {
    const rows = await ledger.sql<{ lifecycle: string }>(
      "select lifecycle from fenceline.subscription where scope_id = $1 order by subscription_id",
      [session.scopeId],
    );
    return rows.map(({ lifecycle }) => lifecycle);
  }

  async function standing(session: Session): Promise<number | undefined> {
    const [row] = await ledger.sql<{ standing: number }>(
      "select standing_revocations as standing from fenceline.policy_scope where scope_id = $1",
      [session.scopeId],
    );
    return row?.standing;
  }
});
