import { expect } from "vitest";
import type { IssuedRead } from "#src/reads.js";
import type { PurgeClaim } from "#src/revocations.js";
import type { Session } from "#src/sessions.js";
import { answer, publish, READ_LEASE_MS, scan } from "./ledger-under-test.js";
import type { Areas } from "./overlapping.js";
import {
  activeSource,
  createIndex,
  type IndexUnderTest,
  indexDue,
  type PlannedVersion,
  readNow,
  type WholeLedger,
  writeVersion,
} from "./whole-ledger.js";

/**
 * A ledger in which every operation that takes a lock finds something to do, and the operations: for each what it locks, so
 * that the pairs that meet in a lock can be told.
 */
export interface World {
  readonly session: Session;
  readonly other: Session;
  readonly index: IndexUnderTest;
  readonly ids: Readonly<Record<string, number>>;
  /** Sent and not answered: of A, B and the directory. */
  readonly reads: readonly IssuedRead[];
  /** Written and not confirmed, of C. */
  readonly planned: PlannedVersion;
  readonly claims: readonly PurgeClaim[];
  readonly scans: { readonly first: number; readonly second: number };
  readonly standing: number;
  readonly exportId: number;
}

export interface Operation {
  readonly name: string;
  /** `x` exclusive, `s` shared, by what is locked. */
  readonly locks: Readonly<Record<string, "x" | "s">>;
  /** Claims pass over what is locked and find it the next time: it is done once more before states are compared. */
  readonly again?: true;
  run(areas: Areas, world: World): Promise<unknown>;
}

const A = "catalog://a/1";
const B = "catalog://a/2";
const C = "catalog://b/1";
const D = "catalog://b/2";
const E = "catalog://c/1";
const URIS = [A, B, C, D, E];
const READER = "svc:rag";
const OTHER = "svc:two";
const AUDIENCE = "group:sales";

const shared = { scope: "s" } as const;
const exclusive = { scope: "x", subscriptions: "x", groups: "x" } as const;

const operations: readonly Operation[] = [
  {
    name: "publish",
    locks: { ...shared, catalog: "x", subscriptions: "x" },
    run: (areas, { session, scans }) => areas.publishCatalog(session, scans),
  },
  {
    name: "record list_changed",
    locks: { ...shared, catalog: "x" },
    run: (areas, { session }) => areas.recordListChanged(session),
  },
  {
    name: "open subscriptions",
    locks: { ...shared, subscriptions: "x" },
    run: (areas, { session }) => areas.subscriptionsToOpen(session, { limit: 10 }),
  },
  {
    name: "activate",
    locks: { ...shared, subscriptions: "x" },
    run: (areas, { session, ids }) =>
      areas.activateSubscriptions(session, { shard: 0, pushed: [ids[B] as number], polled: [ids[A] as number] }),
  },
  {
    name: "issue",
    locks: { ...shared, subscriptions: "x" },
    run: (areas, { session }) => areas.issueReads(session, { uris: URIS, reason: "demand", leaseMs: READ_LEASE_MS }),
  },
  {
    name: "accept",
    locks: { ...shared, subscriptions: "x", outbox: "x" },
    run: (areas, { session, reads }) =>
      areas.acceptResourceVersions(
        session,
        reads.map((read) => answer(read, `new ${read.uri}`)),
      ),
  },
  {
    name: "settle as not found",
    locks: { ...shared, subscriptions: "x" },
    run: (areas, { session, reads }) =>
      areas.settleReads(
        session,
        reads.map((read) => ({ ...read, as: "not_found" as const })),
      ),
  },
  {
    name: "notify",
    locks: { ...shared, subscriptions: "x" },
    run: (areas, { session }) => areas.recordNotifications(session, URIS),
  },
  {
    name: "begin unsubscribe",
    locks: { ...shared, subscriptions: "x" },
    run: (areas, { session }) => areas.beginUnsubscribe(session, [A, C]),
  },
  {
    name: "settle unsubscribe",
    locks: { ...shared, subscriptions: "x" },
    run: (areas, { session, ids }) => areas.settleUnsubscribe(session, [ids[E] as number], "acknowledged"),
  },
  { name: "break stream", locks: exclusive, run: (areas, { session }) => areas.breakStream(session, 0) },
  { name: "end session", locks: exclusive, run: (areas, { session }) => areas.endSession(session) },
  {
    name: "open session",
    locks: exclusive,
    run: (areas, { session }) =>
      areas.openSession({ source: session.source, reader: READER, owner: "another", leaseMs: 86_400_000 }),
  },
  { name: "heartbeat", locks: { ...shared, session: "x" }, run: (areas, { session }) => areas.heartbeat(session) },
  {
    name: "suspend",
    locks: { ...shared, catalog: "x" },
    run: (areas, { session }) => areas.suspendScope(session, "401"),
  },
  {
    name: "grant",
    locks: { ...shared, grants: "x" },
    run: (areas, { session: { source } }) =>
      areas.grant({ source, reader: READER, audience: AUDIENCE, scope: { prefix: "catalog://a" } }),
  },
  {
    name: "withdraw",
    locks: { ...shared, grants: "x" },
    run: (areas, { session: { source } }) =>
      areas.withdrawGrant({ source, reader: READER, audience: AUDIENCE, scope: { everything: true } }),
  },
  {
    name: "revoke",
    locks: exclusive,
    run: (areas, { session: { source } }) =>
      areas.revoke({
        requestId: "serial",
        source,
        subject: READER,
        scope: { prefix: "catalog://a" },
        reason: "serial",
      }),
  },
  {
    name: "advance revocation",
    locks: { revocation: "x", subscriptions: "x", groups: "x", outbox: "x" },
    run: (areas, { standing }) => areas.advanceRevocation(standing),
  },
  { name: "lift", locks: { ...exclusive, revocation: "x" }, run: (areas, { standing }) => areas.lift(standing) },
  {
    name: "claim index work",
    locks: { outbox: "x" },
    again: true,
    run: (areas, { index }) => areas.claimIndexWork(index.ref, { limit: 100, leaseMs: 10_000 }),
  },
  {
    name: "confirm",
    locks: { ...shared, subscriptions: "x", groups: "x", outbox: "x" },
    run: (areas, { index, planned }) => areas.confirmVersions(index.ref, [planned]),
  },
  {
    name: "abandon",
    locks: { groups: "x" },
    run: (areas, { planned }) => areas.abandonIntents(planned.written.map(({ groupId }) => groupId)),
  },
  {
    name: "claim purge",
    locks: { groups: "x" },
    again: true,
    run: (areas, { index }) => areas.claimPurge({ store: index.ref.store, limit: 100, leaseMs: 10_000 }),
  },
  {
    name: "confirm purge",
    locks: { revocation: "x", groups: "x" },
    run: (areas, { index, claims }) => areas.confirmPurge(index.ref.store, claims, { claim: "absent" }),
  },
  {
    name: "export",
    locks: { ...shared, subscriptions: "s" },
    run: (areas, { session: { source } }) =>
      areas.exportVersions({ source, reader: READER, destination: "elsewhere", limit: 10 }),
  },
  {
    name: "acknowledge export",
    locks: { revocation: "x" },
    run: (areas, { exportId }) => areas.acknowledgeExport(exportId),
  },
];

/**
 * Pairs that are no one after the other, and need not be: a publication is many transactions. What it has published when
 * list_changed comes stays discovered, and the catalogue is not named (S4, S7); "purge-interleavings" tests that.
 */
const manyTransactions = new Set(["publish record list_changed"]);

/** The pairs that meet in a lock one of them holds alone; an operation also meets itself. */
export function pairsThatMeet(): [Operation, Operation][] {
  return operations.flatMap((one, place) =>
    operations.slice(place).flatMap((other): [Operation, Operation][] => {
      const meet = Object.entries(one.locks).some(
        ([lock, mode]) => other.locks[lock] !== undefined && (mode === "x" || other.locks[lock] === "x"),
      );
      return meet && !manyTransactions.has(`${one.name} ${other.name}`) ? [[one, other]] : [];
    }),
  );
}

export async function createWorld(ledger: WholeLedger): Promise<World> {
  const { session, source } = await activeSource(ledger, URIS);
  const index = await createIndex(ledger, "serial");
  await readNow(ledger, session, URIS, (uri) => `${uri}\nold`);
  await indexDue(ledger, index, source);
  const other = await openOther(ledger, source);
  await readNow(ledger, other, [C], (uri) => `${uri}\nold`);
  await indexDue(ledger, index, source);
  // Of D an old line waits to be purged, of E one is claimed for it.
  await readNow(ledger, session, [E], () => "changed");
  await indexDue(ledger, index, source);
  const claims = await ledger.claimPurge({ store: index.ref.store, limit: 100, leaseMs: 86_400_000 });
  await readNow(ledger, session, [D], () => "changed");
  await indexDue(ledger, index, source);
  await ledger.exportVersions({ source, reader: READER, destination: "elsewhere", limit: 10 });
  const exports = await ledger.sql<{ id: number }>("select max(export_id) as id from fenceline.export");
  await ledger.beginUnsubscribe(session, [E]);
  const standing = await ledger.revoke({ source, subject: READER, scope: { uri: D }, reason: "standing" });
  await ledger.grant({ source, reader: READER, audience: AUDIENCE, scope: { everything: true } });
  await readNow(ledger, session, [C], (uri) => `${uri}\nnew`);
  const [work] = await ledger.claimIndexWork(index.ref, { limit: 10, leaseMs: 10_000 });
  const planned = await writeVersion(ledger, index, work ?? expect.fail("nothing waits to be indexed"));
  const reads = await ledger.issueReads(session, { uris: [A, B], reason: "demand", leaseMs: READ_LEASE_MS });
  const first = await scan(ledger, session, [A, B, C, "catalog://a/new"]);
  const second = await scan(ledger, session, [A, B, C, "catalog://a/new"]);
  const rows = await ledger.sql<{ uri: string; id: number }>(
    "select uri, subscription_id as id from fenceline.subscription where scope_id = $1",
    [session.scopeId],
  );
  return {
    session,
    other,
    index,
    ids: Object.fromEntries(rows.map(({ uri, id }) => [uri, id])),
    reads,
    planned,
    claims,
    scans: { first, second },
    standing: standing.revocationId,
    exportId: exports[0]?.id as number,
  };
}

async function openOther(ledger: WholeLedger, source: string): Promise<Session> {
  const opened = await ledger.openSession({ source, reader: OTHER, owner: "other", leaseMs: 86_400_000 });
  if (opened.outcome !== "opened") return expect.fail(opened.outcome);
  await publish(ledger, opened.session, [C]);
  const refs = await ledger.subscriptionsToOpen(opened.session, { limit: 10 });
  const polled = refs.map(({ subscriptionId }) => subscriptionId);
  await ledger.activateSubscriptions(opened.session, { shard: 0, pushed: [], polled });
  return opened.session;
}

/** Keeps what the tables hold; the answer brings them back to it. */
export async function keepTables(ledger: WholeLedger): Promise<() => Promise<void>> {
  const tables = await ledger.sql<{ name: string }>(
    "select tablename as name from pg_tables where schemaname = $1 and tablename <> all ($2)",
    [ledger.schema, ["migration", "function_set"]],
  );
  const names = tables.map(({ name }) => name);
  for (const name of names) await ledger.sql(`create table fenceline.kept_${name} as table fenceline.${name}`);
  // Only what changed: rows put back in vain would leave their dead behind, and make every later test slower.
  const restore = names.map(
    (name) =>
      `if exists (table fenceline.${name} except all table fenceline.kept_${name})
         or (select count(*) from fenceline.${name}) <> (select count(*) from fenceline.kept_${name}) then
         delete from fenceline.${name}; insert into fenceline.${name} overriding system value table fenceline.kept_${name};
       end if;`,
  );
  // Without triggers: what is put back has happened before.
  await ledger.sql(
    `create function fenceline.bring_back() returns void language plpgsql set session_replication_role = replica
     as $$ begin ${restore.join(" ")} end $$`,
  );
  return async () => {
    await ledger.sql("select fenceline.bring_back()");
  };
}

/**
 * Everything two orders of operations may differ in, without what identifies rows: ids, tokens, positions. Each part is a set.
 */
export async function footprint(ledger: WholeLedger): Promise<Record<string, unknown>> {
  const parts = await Promise.all(
    Object.entries(footprints).map(async ([name, text]) => {
      const rows = await ledger.sql(text);
      return [name, rows.map((row) => JSON.stringify(row)).sort()] as const;
    }),
  );
  return Object.fromEntries(parts);
}

const subscriptionName =
  "(select u.name || ' ' || s.uri from fenceline.subscription s join fenceline.policy_scope p using (scope_id) join fenceline.subject u using (subject_id) where s.subscription_id = t.subscription_id)";
const scopeName =
  "(select u.name from fenceline.policy_scope p join fenceline.subject u using (subject_id) where p.scope_id = t.scope_id)";

const footprints: Readonly<Record<string, string>> = {
  subscriptions: `select ${subscriptionName} as subscription, t.lifecycle, t.generation, t.pushed, t.shard, t.notification_number,
    t.issued_ordinal, t.accepted_ordinal, t.settled_ordinal, t.version_ordinal, encode(t.digest, 'hex') as digest,
    t.seen_notification, t.seen_stream_epoch, t.verified_at, t.due_at, t.claim_until, t.failures, t.hidden_because,
    t.not_found_at, t.close_ordinal, t.closed_by is not null as closed_by, t.session_generation, t.acknowledged_epoch,
    t.listed_scan_id is not null as listed, t.vanished_scan_id is not null as vanished from fenceline.subscription t`,
  reads: `select ${subscriptionName} as subscription, t.ordinal, t.generation, t.session_generation, t.stream_epoch,
    t.notification_number, t.policy_epoch, t.settled_as from fenceline.read t`,
  versions: `select ${subscriptionName} as subscription, t.ordinal, t.generation, t.policy_epoch, encode(t.digest, 'hex') as digest
    from fenceline.resource_version t`,
  bodies: `select ${subscriptionName} as subscription, t.ordinal, t.part_uri, t.text from fenceline.body t`,
  outbox: `select ${subscriptionName} as subscription, t.ordinal, t.confirmed_ordinal, t.pending,
    t.claim_token is not null as claimed from fenceline.outbox t`,
  groups: `select q.resource_key as part, g.state, g.settled, g.entries, g.purge_due, g.claim_token is not null as claimed,
      (select string_agg(encode(e.chunk_digest, 'hex'), ' ' order by e.chunk_digest) from fenceline.entry e where e.group_id = g.group_id) as chunks,
      (select string_agg(concat(${subscriptionName}, ' ', t.ordinal, ' ', t.state), ', ' order by t.subscription_id, t.ordinal)
       from fenceline.group_root t where t.group_id = g.group_id) as edges
    from fenceline.entry_group g join fenceline.resource q on q.resource_id = g.part_id`,
  scopes: `select ${scopeName} as scope, t.policy_epoch, t.standing_revocations, t.session_generation, t.list_changed_number,
    t.suspended_at, t.catalog_verdict, t.next_review_at from fenceline.policy_scope t`,
  sessions: `select ${scopeName} as scope, t.generation, t.owner, t.expires_at, t.ended_at from fenceline.session t`,
  streams: `select ${scopeName} as scope, t.shard, t.epoch, t.broken_at from fenceline.stream t`,
  grants: "select scope_text, origin from fenceline.access_grant",
  revocations: `select v.scope_text, v.state, v.closed_all, v.marked_all, v.covered_resources, v.policy_epoch,
      (select count(*) from fenceline.revocation_group x where x.revocation_id = v.revocation_id) as groups,
      (select count(*) from fenceline.revocation_export x where x.revocation_id = v.revocation_id) as exports
    from fenceline.revocation v`,
  exports: `select ${subscriptionName} as subscription, t.ordinal, t.acknowledged_at from fenceline.export t`,
  purges: "select cause, entries, revocation_id is not null as of_revocation from fenceline.purge_receipt",
  receipts: `select ${scopeName} as scope, ${subscriptionName} as subscription, t.ordinal, t.kind, t.from_state, t.to_state
    from fenceline.receipt t`,
};

/** An answer without what identifies rows, and without claims, which pass over what is locked. */
export function answerOf(operation: Operation, value: unknown): unknown {
  if (operation.again) return "claims";
  const identifying = new Set(["requestId", "claimToken", "revocationId", "sessionId", "exportId", "lineageId"]);
  return JSON.parse(
    JSON.stringify(value ?? null, (key, member: unknown) => (identifying.has(key) ? undefined : member)),
  );
}
