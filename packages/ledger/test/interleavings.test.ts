import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { activate, READ_LEASE_MS } from "./ledger-under-test.js";
import { overlapping } from "./overlapping.js";
import {
  activeSource,
  advance,
  brokenInvariants,
  claimWork,
  createIndex,
  describeWholeLedgerOnPostgres,
  type IndexUnderTest,
  indexDue,
  type PlannedVersion,
  purge,
  readNow,
  seen,
  unsubscribeClosed,
  type WholeLedger,
  writeVersion,
} from "./whole-ledger.js";

const URI = "catalog://plans/basic";
const READER = ["svc:rag"];

describeWholeLedgerOnPostgres("interleavings", (ledger) => {
  test("an acceptance that overlaps a revocation waits for it and is refused (P2)", async () => {
    const { session, source } = await activeSource(ledger, [URI]);
    const answer = await readOf(session, "late");
    const [, [accepted], waited] = await overlapping(
      ledger,
      (first) => first.revoke(revocationOf(source)),
      () => ledger.acceptResourceVersions(session, [answer]),
    );
    expect(waited).toBe(true);
    expect(accepted?.outcome).toBe("revoked");
    expect(
      await ledger.sql("select 1 from fenceline.body where subscription_id = $1", [answer.subscriptionId]),
    ).toEqual([]);
  });

  test("a revocation that overlaps an acceptance waits for it, and takes what it kept (P2, P3)", async () => {
    const { session, source } = await activeSource(ledger, [URI]);
    const answer = await readOf(session, "early");
    const [[accepted], revoked, waited] = await overlapping(
      ledger,
      (first) => first.acceptResourceVersions(session, [answer]),
      () => ledger.revoke(revocationOf(source)),
    );
    expect(waited).toBe(true);
    expect(accepted?.outcome).toBe("accepted");
    await advance(ledger, revoked.revocationId);
    expect(
      await ledger.sql("select 1 from fenceline.body where subscription_id = $1", [answer.subscriptionId]),
    ).toEqual([]);
    expect(await ledger.revocation(revoked.revocationId)).toMatchObject({ state: "COMPLETE" });
  });

  test("a confirm that overlaps a revocation waits for it and is refused; nothing of it was ever shown (P2, P4)", async () => {
    const { source, index, planned } = await written();
    const [revoked, [answer], waited] = await overlapping(
      ledger,
      (first) => first.revoke(revocationOf(source)),
      () => ledger.confirmVersions(index.ref, [planned]),
    );
    expect(waited).toBe(true);
    expect(answer?.outcome).toBe("revoked");
    expect(await seen(ledger, index, READER)).toEqual([]);
    await purgeAfterLease(index);
    await advance(ledger, revoked.revocationId);
    expect(await ledger.revocation(revoked.revocationId)).toMatchObject({ state: "COMPLETE" });
  });

  test("a revocation that overlaps a confirm waits for it, hides and purges what it made visible (P2, P3)", async () => {
    const { source, index, planned } = await written();
    const [[answer], revoked, waited] = await overlapping(
      ledger,
      (first) => first.confirmVersions(index.ref, [planned]),
      () => ledger.revoke(revocationOf(source)),
    );
    expect(waited).toBe(true);
    expect(answer?.outcome).toBe("confirmed");
    expect(await seen(ledger, index, READER)).toEqual([]);
    await advance(ledger, revoked.revocationId);
    expect(await purge(ledger, index)).toBe(1);
    expect(await ledger.revocation(revoked.revocationId)).toMatchObject({ state: "COMPLETE" });
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a revocation that overlaps an intent waits for it, and waits for its purge as well (P3, P4)", async () => {
    const { session, source } = await activeSource(ledger, [URI]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [URI], () => "text");
    const work = await onlyWork(index, source);
    const [, revoked, waited] = await overlapping(
      ledger,
      (first) => writeVersion(first, index, work),
      () => ledger.revoke(revocationOf(source)),
    );
    expect(waited).toBe(true);
    await advance(ledger, revoked.revocationId);
    expect(await ledger.revocation(revoked.revocationId)).toMatchObject({
      state: "EFFECTIVE",
      covered: { entries: 1 },
    });
    await purgeAfterLease(index);
    expect(await ledger.revocation(revoked.revocationId)).toMatchObject({ state: "COMPLETE" });
  });

  test("a reader that attaches to a group while it is claimed for purge is refused whole (L5, P3)", async () => {
    const { index, planned } = await sharedAfterFirstReaderLeft();
    const [claims, [answer], waited] = await overlapping(
      ledger,
      (first) => first.claimPurge({ store: index.ref.store, limit: 100, leaseMs: 10_000 }),
      () => ledger.confirmVersions(index.ref, [planned]),
    );
    expect(waited).toBe(true);
    expect(claims).toHaveLength(1);
    expect(answer?.outcome).toBe("group_gone");
    expect(await seen(ledger, index, ["svc:two"])).toEqual([]);
    await ledger.releaseIndexWork(index.ref, planned.work);
    expect(Object.values(await indexDue(ledger, index, planned.work.source))).toEqual(["confirmed"]);
    for (const { entryId } of claims.flatMap((claim) => claim.entries)) index.entries.delete(entryId);
    await ledger.confirmPurge(index.ref.store, claims, { claim: "absent" });
    expect(await seen(ledger, index, ["svc:two"])).toEqual(["shared"]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a purge that overlaps an attach passes the group over, and then finds it held (L5, P3)", async () => {
    const { index, planned } = await sharedAfterFirstReaderLeft();
    const [[answer], claims] = await overlapping(
      ledger,
      (first) => first.confirmVersions(index.ref, [planned]),
      () => ledger.claimPurge({ store: index.ref.store, limit: 100, leaseMs: 10_000 }),
    );
    expect(claims).toEqual([]);
    expect(answer?.outcome).toBe("confirmed");
    expect(await purge(ledger, index)).toBe(0);
    expect(await seen(ledger, index, ["svc:two"])).toEqual(["shared"]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("two readers that split one group at once both end with exactly their entries (L3, L5)", async () => {
    const { index, planned } = await twoReadersOfHalves();
    const [mine, theirs] = planned as [PlannedVersion, PlannedVersion];
    const [one, two, waited] = await overlapping(
      ledger,
      (first) => first.confirmVersions(index.ref, [mine]),
      () => ledger.confirmVersions(index.ref, [theirs]),
    );
    expect(waited).toBe(true);
    expect([one[0]?.outcome, two[0]?.outcome]).toEqual(["confirmed", "confirmed"]);
    expect(await seen(ledger, index, READER)).toEqual(["a", "b", "c"]);
    expect(await seen(ledger, index, ["svc:two"])).toEqual(["b", "c", "d"]);
    expect(await purge(ledger, index)).toBe(0);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a batch of a revocation that overlaps a split of its group leaves no edge of the reader standing (P2, L5)", async () => {
    const { source, index, planned } = await twoReadersOfHalves();
    const [mine, theirs] = planned as [PlannedVersion, PlannedVersion];
    const { revocationId } = await ledger.revoke(revocationOf(source));
    const [[answer], , waited] = await overlapping(
      ledger,
      (first) => first.confirmVersions(index.ref, [theirs]),
      () => advance(ledger, revocationId),
    );
    expect(waited).toBe(true);
    expect(answer?.outcome).toBe("confirmed");
    expect(await ledger.confirmVersions(index.ref, [mine])).toMatchObject([{ outcome: "revoked" }]);
    expect(await seen(ledger, index, ["svc:two"])).toEqual(["b", "c", "d"]);
    expect(await purge(ledger, index)).toBe(1);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE" });
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("one version is confirmed once by two workers at once (L3)", async () => {
    const { index, planned } = await written();
    const [[one], [two], waited] = await overlapping(
      ledger,
      (first) => first.confirmVersions(index.ref, [planned]),
      () => ledger.confirmVersions(index.ref, [planned]),
    );
    expect(waited).toBe(true);
    expect([one?.outcome, two?.outcome]).toEqual(["confirmed", "confirmed"]);
    expect(
      await ledger.sql("select count(*)::int as edges from fenceline.group_root where index_id = $1", [
        index.ref.indexId,
      ]),
    ).toEqual([{ edges: 1 }]);
  });

  test("a grant that overlaps a revocation of its audience waits for it, and shows nothing (P2, G2)", async () => {
    const { source, index } = await indexed();
    const grant = { source, reader: "svc:rag", audience: "user:alice", scope: { everything: true as const } };
    await ledger.grant({ ...grant, scope: { uri: "catalog://elsewhere" } });
    const [, , waited] = await overlapping(
      ledger,
      (first) => first.revoke({ ...revocationOf(source), subject: "user:alice" }),
      () => ledger.grant(grant),
    );
    expect(waited).toBe(true);
    expect(await seen(ledger, index, ["user:alice"])).toEqual([]);
  });

  test("a revocation that overlaps a grant waits for it, and covers it (P2, G2)", async () => {
    const { source, index } = await indexed();
    const grant = { source, reader: "svc:rag", audience: "user:bea", scope: { everything: true as const } };
    await ledger.grant({ ...grant, scope: { uri: "catalog://elsewhere" } });
    const [, revoked, waited] = await overlapping(
      ledger,
      (first) => first.grant(grant),
      () => ledger.revoke({ ...revocationOf(source), subject: "user:bea" }),
    );
    expect(waited).toBe(true);
    expect(revoked.nothingCovered).toBe(false);
    expect(await seen(ledger, index, ["user:bea"])).toEqual([]);
  });

  test("a source first read while its subject is revoked everywhere is covered, whoever comes first (P1, P2)", async () => {
    for (const revokeFirst of [true, false]) {
      const source = `source-${randomUUID()}`;
      const reader = `svc:${randomUUID()}`;
      await ledger.registerSource({ name: source });
      await ledger.revoke({ subject: reader, scope: { uri: "catalog://elsewhere" }, reason: "so that it is known" });
      const open = (areas: Pick<WholeLedger, "openSession">) =>
        areas.openSession({ source, reader, owner: "w", leaseMs: 86_400_000 });
      const revoke = (areas: Pick<WholeLedger, "revoke">) => areas.revoke({ subject: reader, reason: "r" });
      const [, , waited] = revokeFirst
        ? await overlapping(ledger, revoke, () => open(ledger))
        : await overlapping(ledger, open, () => revoke(ledger));
      expect(waited).toBe(true);
      expect(
        await ledger.sql(
          `select standing_revocations as standing from fenceline.policy_scope p join fenceline.source s using (source_id)
           join fenceline.subject u using (subject_id) where s.name = $1 and u.name = $2`,
          [source, reader],
        ),
      ).toEqual([{ standing: 2 }]);
    }
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a batch that overlaps a lift does nothing; a lift that overlaps a batch reopens what it closed (P2)", async () => {
    const { source, id } = await indexed();
    const lifecycle = async () =>
      (
        await ledger.sql<{ lifecycle: string }>(
          "select lifecycle from fenceline.subscription where subscription_id = $1",
          [id],
        )
      )[0]?.lifecycle;
    const first = await ledger.revoke(revocationOf(source));
    const [, , batchWaited] = await overlapping(
      ledger,
      (areas) => areas.lift(first.revocationId),
      () => ledger.advanceRevocation(first.revocationId),
    );
    expect([batchWaited, await lifecycle()]).toEqual([true, "ACTIVE"]);
    const second = await ledger.revoke(revocationOf(source));
    const [, , liftWaited] = await overlapping(
      ledger,
      (areas) => areas.advanceRevocation(second.revocationId),
      () => ledger.lift(second.revocationId),
    );
    // What it closed is opened again when the server has been told (U9).
    expect([liftWaited, await lifecycle()]).toEqual([true, "UNSUBSCRIBING"]);
    await unsubscribeClosed(ledger);
    expect(await lifecycle()).toBe("SUBSCRIBING");
  });

  test("one request id used for two subjects at once revokes one of them (P1)", async () => {
    const { source } = await activeSource(ledger, [URI]);
    const request = { ...revocationOf(source), requestId: randomUUID() };
    const [first, second, waited] = await overlapping(
      ledger,
      (areas) => areas.revoke(request),
      () => ledger.revoke({ ...request, subject: "svc:other" }).catch((error: unknown) => error),
    );
    expect(waited).toBe(true);
    expect(first.state).toBe("EFFECTIVE");
    expect(second).toMatchObject({ code: "request_id_reused" });
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("readers that confirm, revoke, lift and purge all at once end without a deadlock and without a broken invariant (P2)", async () => {
    const uris = Array.from({ length: 12 }, (_, number) => `catalog://storm/${number % 3}/${number}`);
    const { session, source } = await activeSource(ledger, uris);
    const index = await createIndex(ledger);
    const opened = await ledger.openSession({ source, reader: "svc:two", owner: "w", leaseMs: 86_400_000 });
    if (opened.outcome !== "opened") return expect.fail(opened.outcome);
    await activate(ledger, opened.session, uris);
    const reading = async (holder: typeof session, rounds: number) => {
      for (let round = 0; round < rounds; round += 1) {
        const reads = await ledger.issueReads(holder, { uris, reason: "demand", leaseMs: READ_LEASE_MS });
        await ledger.acceptResourceVersions(
          holder,
          reads.map((read) => answerOf(read, `${read.uri}\nround ${round % 4}\nshared`)),
        );
        await indexDue(ledger, index, source);
      }
    };
    const revoking = async (subject: string) => {
      for (let round = 0; round < 6; round += 1) {
        const scope = { prefix: `catalog://storm/${round % 3}` };
        const { revocationId } = await ledger.revoke({ source, subject, scope, reason: "storm" });
        if (round % 2 === 0) await advance(ledger, revocationId);
        await purge(ledger, index);
        await ledger.lift(revocationId);
        await activate(ledger, subject === "svc:two" ? opened.session : session, uris);
      }
    };
    await Promise.all([reading(session, 8), reading(opened.session, 8), revoking("svc:rag"), revoking("svc:two")]);
    await ledger.advanceClock(60_000);
    for (const holder of [session, opened.session]) await reading(holder, 2);
    await ledger.advanceClock(60_000);
    await purge(ledger, index);
    expect(await brokenInvariants(ledger)).toEqual([]);
    const recorded = await ledger.recordedEntries(index.ref.name, { limit: 10_000 });
    expect([...index.entries.keys()].sort()).toEqual(recorded);
    expect(await seen(ledger, index, READER)).toHaveLength(36);
    expect(await seen(ledger, index, ["svc:two"])).toHaveLength(36);
  });

  const revocationOf = (source: string) => ({ source, subject: "svc:rag", reason: "r" });

  /** A read that was sent, with its answer. */
  async function readOf(session: Parameters<typeof readNow>[1], text: string) {
    const [read] = await ledger.issueReads(session, { uris: [URI], reason: "demand", leaseMs: READ_LEASE_MS });
    return answerOf(read as NonNullable<typeof read>, text);
  }

  function answerOf(read: { subscriptionId: number; ordinal: number; requestId: string; uri: string }, text: string) {
    const { subscriptionId, ordinal, requestId, uri } = read;
    return { subscriptionId, ordinal, requestId, digest: Buffer.from(text.padEnd(32)), parts: [{ uri, text }] };
  }

  async function onlyWork(index: IndexUnderTest, source: string) {
    const [work, ...others] = await claimWork(ledger, index, source);
    expect(others).toEqual([]);
    return work as NonNullable<typeof work>;
  }

  /** A version that is written and waits for its confirm. */
  async function written() {
    const { session, source } = await activeSource(ledger, [URI]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [URI], () => "text");
    return { source, index, planned: await writeVersion(ledger, index, await onlyWork(index, source)) };
  }

  async function indexed() {
    const { source, index, planned } = await written();
    await ledger.confirmVersions(index.ref, [planned]);
    return { source, index, id: planned.work.subscriptionId };
  }

  async function secondReader(source: string) {
    const opened = await ledger.openSession({ source, reader: "svc:two", owner: "w", leaseMs: 86_400_000 });
    if (opened.outcome !== "opened") return expect.fail(opened.outcome);
    await activate(ledger, opened.session, [URI]);
    return opened.session;
  }

  /** The first reader's content changed, so that nobody holds its group; a second reader is about to attach to it. */
  async function sharedAfterFirstReaderLeft() {
    const { session, source } = await activeSource(ledger, [URI]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [URI], () => "shared");
    await indexDue(ledger, index, source);
    const two = await secondReader(source);
    await readNow(ledger, session, [URI], () => "");
    await indexDue(ledger, index, source);
    await readNow(ledger, two, [URI], () => "shared");
    const planned = await writeVersion(ledger, index, await onlyWork(index, source));
    expect(planned.reused).toHaveLength(1);
    return { source, index, planned };
  }

  /** A group of four lines; the first reader is about to keep a, b, c of it, a second one b, c, d. */
  async function twoReadersOfHalves() {
    const { session, source } = await activeSource(ledger, [URI]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [URI], () => "a\nb\nc\nd");
    await indexDue(ledger, index, source);
    const two = await secondReader(source);
    await readNow(ledger, session, [URI], () => "a\nb\nc");
    await readNow(ledger, two, [URI], () => "b\nc\nd");
    const planned: PlannedVersion[] = [];
    for (const work of await claimWork(ledger, index, source)) planned.push(await writeVersion(ledger, index, work));
    planned.sort((one, other) => one.work.subscriptionId - other.work.subscriptionId);
    expect(planned.map(({ reused }) => reused.length)).toEqual([3, 3]);
    return { source, index, planned };
  }

  async function purgeAfterLease(index: IndexUnderTest) {
    await ledger.advanceClock(10_000);
    expect(await purge(ledger, index)).toBe(1);
  }
});
