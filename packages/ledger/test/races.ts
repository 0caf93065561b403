import { expect } from "vitest";
import type { IssuedRead } from "#src/reads.js";
import type { Session } from "#src/sessions.js";
import { activate, answer, openSession, publish, READ_LEASE_MS } from "./ledger-under-test.js";
import { overlapping } from "./overlapping.js";
import type { Twin } from "./twins/twin.js";
import {
  activeSource,
  advance,
  claimWork,
  createIndex,
  type IndexUnderTest,
  indexDue,
  purge,
  readNow,
  seen,
  type WholeLedger,
  writeVersion,
} from "./whole-ledger.js";

/** A race that a first draft of the design lost, and a bug with which it is lost again. */
export interface Race {
  /** The promise, as a test's name. */
  readonly name: string;
  run(ledger: WholeLedger): Promise<void>;
  readonly twin: Twin;
}

const URI = "catalog://plans/basic";
const DIRECTORY = "catalog://plans";
const READER = "svc:rag";
const OTHER = "svc:two";

export const races: readonly Race[] = [
  {
    name: "a reader that attaches to a shared group while the purge claims it is refused, and served when it wrote anew (L5, P3)",
    async run(ledger) {
      const { index, planned, source } = await sharedGroupNobodyHolds(ledger);
      const [claims, [confirmed]] = await overlapping(
        ledger,
        (first) => first.claimPurge({ store: index.ref.store, limit: 100, leaseMs: 10_000 }),
        () => ledger.confirmVersions(index.ref, [planned]),
      );
      expect(claims).toHaveLength(1);
      for (const { entryId } of claims.flatMap(({ entries }) => entries)) index.entries.delete(entryId);
      await ledger.confirmPurge(index.ref.store, claims, { claim: "absent" });
      expect(confirmed?.outcome).toBe("group_gone");
      await ledger.releaseIndexWork(index.ref, planned.work);
      expect(Object.values(await indexDue(ledger, index, source))).toEqual(["confirmed"]);
      expect(await seen(ledger, index, [OTHER])).toEqual(["shared"]);
    },
    twin: {
      bug: "a confirm that does not lock the groups it attaches to",
      file: "confirm",
      place:
        "perform 1 from fenceline.entry_group g where g.group_id = any (v_needed) order by g.group_id for no key update;",
      instead: "null;",
    },
  },
  {
    name: "an acceptance of a resource just discovered, while a revocation of its prefix commits, is refused (P2, F3)",
    async run(ledger) {
      const session = await openSession(ledger);
      await activate(ledger, session, [URI]);
      const read = await onlyRead(ledger, session);
      const scope = { prefix: DIRECTORY };
      const [{ revocationId }, [accepted]] = await overlapping(
        ledger,
        (first) => first.revoke({ source: session.source, subject: READER, scope, reason: "race" }),
        () => ledger.acceptResourceVersions(session, [answer(read, "late")]),
      );
      expect(accepted?.outcome).toBe("revoked");
      await advance(ledger, revocationId);
      expect(
        await ledger.sql("select 1 from fenceline.body where subscription_id = $1", [read.subscriptionId]),
      ).toEqual([]);
    },
    twin: {
      bug: "fence read without lock",
      file: "fence",
      place: "perform pg_advisory_xact_lock_shared(hashtext('fenceline.policy_scope'), p_scope);",
      instead: "null;",
    },
  },
  {
    name: "a resource discovered while a revocation of its prefix commits is neither opened nor read (P2)",
    async run(ledger) {
      const session = await openSession(ledger);
      const scope = { prefix: DIRECTORY };
      const [{ revocationId }, ids] = await overlapping(
        ledger,
        (first) => first.revoke({ source: session.source, subject: READER, scope, reason: "race" }),
        () => activate(ledger, session, [URI], "polled"),
      );
      expect(ids).toEqual([]);
      await advance(ledger, revocationId);
      expect(await ledger.issueReads(session, { uris: [URI], reason: "demand", leaseMs: READ_LEASE_MS })).toEqual([]);
    },
    twin: {
      bug: "what opens subscriptions does not ask for standing revocations",
      file: "subscriptions",
      place:
        "and (c.standing_revocations = 0 or not fenceline.is_revoked(c.subject_id, r.deny_hashes, 'reader'))\n    order by s.subscription_id limit p_limit);",
      instead: "order by s.subscription_id limit p_limit);",
    },
  },
  {
    name: "the first read after a lift brings unchanged bytes as a new version, which is served again (F6, P2)",
    async run(ledger) {
      const { session, source } = await activeSource(ledger, [DIRECTORY]);
      const index = await createIndex(ledger);
      const parts = { [`${DIRECTORY}/basic`]: "basic", [`${DIRECTORY}/pro`]: "pro" };
      await readNow(ledger, session, [DIRECTORY], () => parts);
      await indexDue(ledger, index, source);
      const scope = { uri: `${DIRECTORY}/pro` };
      const { revocationId } = await ledger.revoke({ source, subject: READER, scope, reason: "race" });
      await advance(ledger, revocationId);
      await purge(ledger, index);
      expect(await seen(ledger, index, [READER])).toEqual(["basic"]);
      await ledger.lift(revocationId);
      expect(await readNow(ledger, session, [DIRECTORY], () => parts)).toEqual(["accepted"]);
      await indexDue(ledger, index, source);
      expect(await seen(ledger, index, [READER])).toEqual(["basic", "pro"]);
    },
    twin: {
      bug: "the digest outlives what a revocation took",
      file: "revocation-batches",
      place:
        "  update fenceline.subscription set digest = null\n  where subscription_id = any (v_whole || v_partly) and digest is not null;\n",
      instead: "",
    },
  },
  {
    name: "a writer stopped past its lease, that writes after the purge's probe, leaves nothing behind the next sweep (P3, P4)",
    async run(ledger) {
      const { session, source } = await activeSource(ledger, [URI]);
      const index = await createIndex(ledger);
      await readNow(ledger, session, [URI], () => "late");
      const planned = await writeVersion(ledger, index, await onlyWork(ledger, index, source));
      const late = [...index.entries] as [string, string][];
      index.entries.clear();
      const { revocationId } = await ledger.revoke({ source, subject: READER, reason: "race" });
      await advance(ledger, revocationId);
      await ledger.advanceClock(10_000);
      await purge(ledger, index);
      expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE" });
      for (const [id, text] of late) index.entries.set(id, text);
      expect(await ledger.confirmVersions(index.ref, [planned])).toMatchObject([{ outcome: "revoked" }]);
      expect(await seen(ledger, index, [READER])).toEqual([]);
      await ledger.advanceClock(60_000);
      expect(await purge(ledger, index)).toBe(late.length);
    },
    twin: {
      bug: "receipt before probe: what never settled counts as gone for good",
      file: "purge",
      place: "select g.settled or g.state = 'PURGED' and g.attempts >= 8",
      instead: "select true",
    },
  },
  {
    name: "two overlapping batches in opposite order do not deadlock, and each read is settled once (design §1)",
    async run(ledger) {
      const uris = ["catalog://a", "catalog://b", "catalog://c"];
      const { session, ids } = await activeSource(ledger, uris);
      const reads = await ledger.issueReads(session, { uris, reason: "demand", leaseMs: READ_LEASE_MS });
      const lost = reads.map(({ subscriptionId, ordinal, requestId }) => ({
        subscriptionId,
        ordinal,
        requestId,
        as: "lost" as const,
      }));
      let batches: Promise<{ outcome: string }[]>[] = [];
      await ledger.database.transaction(async (transaction) => {
        // The middle one is held until both batches wait: each has what comes before it in its own order.
        const middle = `select 1 from ${ledger.schema}.subscription where subscription_id = $1 for no key update`;
        await transaction.query(middle, [ids[1]]);
        batches = [ledger.settleReads(session, lost), ledger.settleReads(session, [...lost].reverse())];
        await waitingFor(ledger, 2);
      });
      const outcomes = (await Promise.all(batches)).flat().map(({ outcome }) => outcome);
      expect(outcomes.sort()).toEqual([...Array(3).fill("not_issued"), ...Array(3).fill("settled")]);
    },
    twin: {
      bug: "a batch locks its rows in the order they were given",
      file: "settled-reads",
      place: "where s.subscription_id = any (p_subscriptions) order by s.subscription_id for no key update;",
      instead:
        "where s.subscription_id = any (p_subscriptions) order by array_position(p_subscriptions, s.subscription_id) for no key update;",
    },
  },
  {
    name: "a response to a read issued before a stream break, arriving after the new acknowledgement, is not current (U4, F3)",
    async run(ledger) {
      const { session, ids } = await activeSource(ledger, [URI]);
      const read = await onlyRead(ledger, session);
      await ledger.breakStream(session, 0);
      await ledger.openStream(session, 0);
      const [, [accepted]] = await overlapping(
        ledger,
        (first) => first.activateSubscriptions(session, { shard: 0, pushed: ids, polled: [] }),
        () => ledger.acceptResourceVersions(session, [answer(read, "before the break")]),
      );
      expect(accepted?.outcome).toBe("accepted_not_current");
      const again = await ledger.issueDueReads(session, { limit: 1, leaseMs: READ_LEASE_MS });
      expect(again).toHaveLength(1);
    },
    twin: {
      bug: "a read counts for whatever stream stands when its answer arrives",
      file: "reads",
      place: `(not s.pushed or coalesce(r.stream_epoch = (
          select t.epoch from fenceline.stream t where t.scope_id = s.scope_id and t.shard = s.shard), false)) as current`,
      instead: "true as current",
    },
  },
  {
    name: "a directory's part whose own URI is revoked is shown to nobody, from the reply on (P2, F5, G2)",
    async run(ledger) {
      const { source, index } = await indexedDirectory(ledger);
      const scope = { uri: `${DIRECTORY}/pro` };
      await ledger.revoke({ source, subject: READER, role: "reader", scope, reason: "race" });
      expect(await seen(ledger, index, [READER])).toEqual(["basic"]);
    },
    twin: {
      bug: "retrieval that trusts the index: the revocation of a part is not asked for",
      file: "visibility",
      place: "any (q.deny_hashes || part.deny_hashes) and c.subject_id = p.subject_id and c.as_reader",
      instead: "any (q.deny_hashes) and c.subject_id = p.subject_id and c.as_reader",
    },
  },
  {
    name: "a directory's part whose own URI is revoked while it is accepted is dropped before its body is kept (F3, F5)",
    async run(ledger) {
      const { session, source } = await activeSource(ledger, [DIRECTORY]);
      const parts = [
        { uri: `${DIRECTORY}/basic`, text: "basic" },
        { uri: `${DIRECTORY}/pro`, text: "pro" },
      ];
      await readNow(ledger, session, [DIRECTORY], () => ({ [`${DIRECTORY}/basic`]: "", [`${DIRECTORY}/pro`]: "" }));
      const [read] = await ledger.issueReads(session, { uris: [DIRECTORY], reason: "demand", leaseMs: READ_LEASE_MS });
      const scope = { uri: `${DIRECTORY}/pro` };
      const [, [accepted]] = await overlapping(
        ledger,
        (first) => first.revoke({ source, subject: READER, scope, reason: "race" }),
        () => ledger.acceptResourceVersions(session, [{ ...answer(read as IssuedRead, "both"), parts }]),
      );
      expect(accepted?.outcome).toBe("accepted");
      expect(
        await ledger.sql("select part_uri from fenceline.body where subscription_id = $1", [read?.subscriptionId]),
      ).toEqual([{ part_uri: `${DIRECTORY}/basic` }]);
    },
    twin: {
      bug: "fence read without lock",
      file: "fence",
      place: "perform pg_advisory_xact_lock_shared(hashtext('fenceline.policy_scope'), p_scope);",
      instead: "null;",
    },
  },
  {
    name: "an answer to a read issued before a revocation that was lifted meanwhile is stale in the new generation (F3, §3)",
    async run(ledger) {
      const { session, source, ids } = await activeSource(ledger, [URI], { mode: "polled" });
      const read = await onlyRead(ledger, session);
      const { revocationId } = await ledger.revoke({ source, subject: READER, scope: { uri: URI }, reason: "race" });
      await advance(ledger, revocationId);
      await ledger.lift(revocationId);
      expect(await ledger.subscriptionsToOpen(session, { limit: 10 })).toMatchObject([{ generation: 2 }]);
      await ledger.activateSubscriptions(session, { shard: 0, pushed: [], polled: ids });
      expect(await ledger.acceptResourceVersions(session, [answer(read, "before")])).toMatchObject([
        { outcome: "stale" },
      ]);
    },
    twin: {
      bug: "no fence check: an answer of an earlier generation is accepted",
      file: "reads",
      place: "r.session_generation <> p_generation or r.generation <> s.generation",
      instead: "r.session_generation <> p_generation",
    },
  },
  {
    name: "what a worker has recorded is not purged while its claim stands, however long the write takes (L2, P4)",
    async run(ledger) {
      const { session, source } = await activeSource(ledger, [URI]);
      const index = await createIndex(ledger);
      await readNow(ledger, session, [URI], () => "slow");
      const planned = await writeVersion(ledger, index, await onlyWork(ledger, index, source));
      await ledger.advanceClock(6_000);
      expect(await purge(ledger, index)).toBe(0);
      expect(await ledger.confirmVersions(index.ref, [planned])).toMatchObject([{ outcome: "confirmed" }]);
      expect(await seen(ledger, index, [READER])).toEqual(["slow"]);
    },
    twin: {
      bug: "delete before record: the purge takes what a worker has recorded and not confirmed yet",
      file: "purge",
      place: "and o.claim_token = g.claim_token and o.claim_until > v_now)))",
      instead: "and o.claim_token = g.claim_token and o.claim_until > v_now and false)))",
    },
  },
  {
    name: "a feed of receipts read while a slower transaction is open skips nothing of it (reliability 11)",
    async run(ledger) {
      const { session } = await activeSource(ledger, [`${DIRECTORY}/slow`, `${DIRECTORY}/quick`]);
      const reads = await ledger.issueDueReads(session, { limit: 2, leaseMs: READ_LEASE_MS });
      const [slow, quick] = reads as [IssuedRead, IssuedRead];
      const { next } = await wholeFeed(ledger);
      const [, page] = await overlapping(
        ledger,
        (first) => first.acceptResourceVersions(session, [answer(slow, "slow")]),
        async () => {
          await ledger.acceptResourceVersions(session, [answer(quick, "quick")]);
          return wholeFeed(ledger, next);
        },
      );
      const versions = [...page.receipts];
      let after = page.next;
      // Other transactions of the server, however foreign, hold the feed back as well.
      await expect
        .poll(
          async () => {
            const rest = await wholeFeed(ledger, after);
            after = rest.next;
            versions.push(...rest.receipts);
            return reads.map(({ uri }) => versions.filter((receipt) => JSON.stringify(receipt).includes(uri)).length);
          },
          { timeout: 5_000, interval: 20 },
        )
        .toEqual([1, 1]);
    },
    twin: {
      bug: "checkpoint by highest id",
      file: "records",
      place: "r.xid < pg_snapshot_xmin(v_snapshot) and (p_restored",
      instead: "(p_restored",
    },
  },
];

async function onlyRead(ledger: WholeLedger, session: Session): Promise<IssuedRead> {
  const [read] = await ledger.issueReads(session, { uris: [URI], reason: "demand", leaseMs: READ_LEASE_MS });
  return read ?? expect.fail("no read was issued");
}

async function onlyWork(ledger: WholeLedger, index: IndexUnderTest, source: string) {
  const [work] = await claimWork(ledger, index, source);
  return work ?? expect.fail("nothing waits to be indexed");
}

/** Every receipt of the feed behind a cursor. */
async function wholeFeed(ledger: WholeLedger, after?: string) {
  const receipts: unknown[] = [];
  for (let next = after; ; ) {
    const page = await ledger.receipts({ limit: 1_000, ...(next !== undefined && { after: next }) });
    if (page.receipts.length === 0) return { receipts, next };
    receipts.push(...page.receipts);
    next = page.next;
  }
}

/** Until so many connections wait for a lock on something of this ledger. */
async function waitingFor(ledger: WholeLedger, connections: number): Promise<void> {
  await expect
    .poll(
      () =>
        ledger.sql(
          "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%' || $1 || '%' and pid <> pg_backend_pid()",
          [ledger.schema],
        ),
      { timeout: 10_000, interval: 10 },
    )
    .toHaveLength(connections);
}

async function indexedDirectory(ledger: WholeLedger) {
  const { session, source } = await activeSource(ledger, [DIRECTORY]);
  const index = await createIndex(ledger);
  await readNow(ledger, session, [DIRECTORY], () => ({ [`${DIRECTORY}/basic`]: "basic", [`${DIRECTORY}/pro`]: "pro" }));
  await indexDue(ledger, index, source);
  return { session, source, index };
}

/** The first reader's content changed, so that nobody holds its group; a second reader is about to attach to it. */
async function sharedGroupNobodyHolds(ledger: WholeLedger) {
  const { session, source } = await activeSource(ledger, [URI]);
  const index = await createIndex(ledger);
  await readNow(ledger, session, [URI], () => "shared");
  await indexDue(ledger, index, source);
  const opened = await ledger.openSession({ source, reader: OTHER, owner: "other", leaseMs: 86_400_000 });
  if (opened.outcome !== "opened") return expect.fail(opened.outcome);
  await publish(ledger, opened.session, [URI]);
  await activate(ledger, opened.session, [URI]);
  await readNow(ledger, session, [URI], () => "");
  await indexDue(ledger, index, source);
  await readNow(ledger, opened.session, [URI], () => "shared");
  const planned = await writeVersion(ledger, index, await onlyWork(ledger, index, source));
  expect(planned.reused).toHaveLength(1);
  return { source, index, planned };
}
