import { expect } from "vitest";
import type { IssuedRead } from "#src/reads.js";
import type { PurgeClaim } from "#src/revocations.js";
import type { Session } from "#src/sessions.js";
import type { LockingOperation } from "./held-locks.js";
import {
  activate,
  answer,
  negotiateSnapshots,
  openSession,
  publishProven,
  READ_LEASE_MS,
  scan,
} from "./ledger-under-test.js";
import {
  advance,
  claimWork,
  createDerivedIndex,
  createIndex,
  derive,
  type IndexUnderTest,
  indexDue,
  type PlannedVersion,
  readNow,
  type WholeLedger,
  writeVersion,
} from "./whole-ledger.js";

/** A ledger in which every operation that locks rows has several to lock, which do not lie in the order of their ids. */
interface LockWorld {
  readonly source: string;
  /** Three readers of the same resources: the first has revocations that stand, the second a proven catalogue, the third a lift. */
  readonly sessions: readonly [Session, Session, Session];
  readonly index: IndexUnderTest;
  readonly cache: IndexUnderTest;
  /** Sent and not answered. */
  readonly reads: readonly (readonly IssuedRead[])[];
  readonly planned: readonly PlannedVersion[];
  readonly claims: readonly PurgeClaim[];
  /** Of the first: two equal scans that wait to be published; of the third: one that has not ended. */
  readonly scans: { readonly first: number; readonly second: number; readonly open: number };
  readonly recorded: readonly number[];
  readonly revocations: { readonly reader: number; readonly audience: number; readonly lifted: number };
  readonly exports: readonly number[];
}

const READERS = ["svc:one", "svc:two", "svc:three"] as const;
const DIRECTORY = "catalog://d";
const URIS = ["catalog://a/1", "catalog://a/2", "catalog://a/3", "catalog://b/1", "catalog://b/2", DIRECTORY];

/** What a server says in a round: lines that stay, lines that come, and parts of a directory. */
const contentsOf = (round: number) => (uri: string) =>
  uri === DIRECTORY
    ? { [`${DIRECTORY}/1`]: `${round}\nstays`, [`${DIRECTORY}/2`]: `${round} too\nstays too` }
    : `${round} ${uri}\n${uri} stays`;

export async function createLockWorld(ledger: WholeLedger): Promise<LockWorld> {
  const [derived, cache] = [await createDerivedIndex(ledger), await createDerivedIndex(ledger)];
  const sessions: Session[] = [];
  const first = await openSession(ledger, { reader: READERS[0] });
  const { source } = first;
  for (const reader of READERS) {
    const session = reader === READERS[0] ? first : await openSession(ledger, { source, reader });
    await activate(ledger, session, URIS, reader === READERS[1] ? "polled" : "pushed");
    sessions.push(session);
    // What was read before there was an index is in none, and may be pruned.
    for (const round of [-1, 0]) await readAll(ledger, session, round);
    const failing = await ledger.issueReads(session, { uris: URIS, reason: "demand", leaseMs: READ_LEASE_MS });
    await ledger.settleReads(
      session,
      failing.map((read) => ({ ...read, as: "failed" })),
    );
  }
  const index = await createIndex(ledger);
  const [one, two, three] = sessions as [Session, Session, Session];
  for (const round of [1, 2, 3]) {
    for (const session of sessions.toReversed()) await readAll(ledger, session, round);
    await indexDue(ledger, index, source);
    if (round < 3) for (const _ of URIS) await purgeOne(ledger, index);
  }
  for (const audience of ["group:all", "user:alice", "user:bob"]) {
    await ledger.grant({ source, reader: READERS[1], audience, scope: { everything: true } });
  }
  await ledger.replaceConfiguredGrants(
    [source],
    READERS.map((reader) => ({ source, reader, audience: "user:carol", scope: { everything: true } })),
  );
  await embed(ledger, cache);
  const parents = [...index.entries.keys()]
    .slice(-6)
    .map((entryId) => ({ as: "ingredient" as const, of: { entryId } }));
  const summary = (text: string, audience?: string) => ({
    kind: "summary" as const,
    parents,
    digests: [ledger.digestChunk(text)],
    ...(audience === undefined ? {} : { audience }),
  });
  for (const audience of [undefined, "user:alice", "user:bob"]) {
    await derive(ledger, derived, summary(`for ${audience}`, audience), "text");
  }
  const recorded = await ledger.recordDerived(
    derived.ref,
    ["1", "2"].map((text) => summary(text)),
    { leaseMs: 5_000 },
  );

  for (const reader of READERS) await ledger.exportVersions({ source, reader, destination: "wiki", limit: 10 });
  const exported = (await ledger.exports()).map(({ exportId }) => exportId);
  for (const exportId of exported.slice(0, 4)) await ledger.acknowledgeExport(exportId);

  // Long enough for everything to be due.
  await ledger.advanceClock(3_600_000);
  const claims = await ledger.claimPurge({ store: index.ref.store, limit: 3, leaseMs: 86_400_000 });
  for (const session of sessions) await readNow(ledger, session, URIS.slice(0, 3), contentsOf(4));
  const planned: PlannedVersion[] = [];
  for (const work of await claimWork(ledger, index, source)) planned.push(await writeVersion(ledger, index, work));
  const reads: IssuedRead[][] = [];
  for (const session of sessions) {
    const uris = session === three ? URIS : URIS.slice(0, 4);
    reads.push(await ledger.issueReads(session, { uris, reason: "demand", leaseMs: READ_LEASE_MS }));
  }
  const revocations = await revoke(ledger, [one, two, three]);
  return {
    source,
    sessions: [one, two, three],
    index,
    cache,
    reads,
    planned,
    claims,
    scans: await scanAll(ledger, [one, two, three]),
    recorded: recorded.flatMap((each) => (each.outcome === "recorded" ? [each.groupId] : [])),
    revocations,
    exports: exported.slice(4),
  };
}

/** One after the other, from the last to the first: what is written of them does not lie in the order of their ids. */
async function readAll(ledger: WholeLedger, session: Session, round: number): Promise<void> {
  for (const uri of URIS.toReversed()) await readNow(ledger, session, [uri], contentsOf(round));
}

/** A batch of its own for each group, so that each has a receipt. */
async function purgeOne(ledger: WholeLedger, { ref, entries }: IndexUnderTest): Promise<void> {
  const claims = await ledger.claimPurge({ store: ref.store, limit: 1, leaseMs: 10_000 });
  for (const { entryId } of claims.flatMap((claim) => claim.entries)) entries.delete(entryId);
  await ledger.confirmPurge(ref.store, claims, { claim: "absent" });
}

async function embed(ledger: WholeLedger, { ref }: IndexUnderTest): Promise<void> {
  const parts = await ledger.sql<{ subscriptionId: number; ordinal: number; partId: number }>(
    'select subscription_id as "subscriptionId", ordinal, part_id as "partId" from fenceline.body order by 1 desc',
  );
  const recorded = await ledger.recordEmbeddings(
    ref,
    parts.map(({ partId, ...work }) => ({
      work: { ...work, claimToken: "00000000-0000-4000-8000-000000000000" } as never,
      partId,
      chunkDigests: ["one", "two", "three"].map((text) => ledger.digestChunk(text)),
    })),
    { leaseMs: 5_000 },
  );
  await ledger.confirmDerived(recorded.flatMap((each) => (each.outcome === "recorded" ? [each.groupId] : [])));
}

async function revoke(ledger: WholeLedger, [one, , three]: LockWorld["sessions"]) {
  const { source } = one;
  const lifted = await ledger.revoke({ source, subject: three.reader, reason: "to be lifted" });
  await advance(ledger, lifted.revocationId);
  await ledger.sql("select fenceline.lift_revocation($1)", [lifted.revocationId]);
  const reader = await ledger.revoke({
    source,
    subject: one.reader,
    scope: { prefix: "catalog://b" },
    reason: "stands",
  });
  const audience = await ledger.revoke({ subject: "user:alice", role: "audience", reason: "stands" });
  return { reader: reader.revocationId, audience: audience.revocationId, lifted: lifted.revocationId };
}

async function scanAll(ledger: WholeLedger, [one, two, three]: LockWorld["sessions"]) {
  await negotiateSnapshots(ledger, two);
  const proven = await publishProven(ledger, two, URIS.slice(2));
  expect(proven.vanished).toBe(2);
  await ledger.sql("update fenceline.scan set absence_allowed = true where scan_id = $1", [proven.scanId]);
  await ledger.suspendScope(two, "401");
  const changed = URIS.map((uri) => (uri === DIRECTORY ? "catalog://new" : uri));
  for (const _ of [1, 2]) await scan(ledger, one, URIS);
  const [first, second] = [await scan(ledger, one, changed), await scan(ledger, one, changed)];
  await ledger.sql("update fenceline.scan_entry set title = 'described anew' where scan_id = $1", [second]);
  const open = await ledger.beginScan(three);
  return typeof open === "string" ? expect.fail(open) : { first, second, open: open.scanId };
}

/** By name; those that are several transactions for users appear as their functions, of which each is one. */
export function lockingOperations(world: LockWorld): Record<string, LockingOperation> {
  const { source, sessions, index, cache, reads, planned, claims, scans, recorded, revocations } = world;
  const [one, two, three] = sessions;
  const store = index.ref.store;
  const ids = Array.from({ length: 30 }, (_, place) => place + 1);
  const entryIds = [...index.entries.keys()];
  const in1 = [one.scopeId, one.generation];
  const in2 = [two.scopeId, two.generation];
  const call =
    (text: string, values: readonly unknown[] = []): LockingOperation =>
    ({ sql }) =>
      sql(`select fenceline.${text}`, values);
  const inSnapshotOf2 = (text: string): LockingOperation =>
    call(
      `${text} from fenceline.scan x, fenceline.identity i where x.scope_id = $1 and x.verdict = 'SNAPSHOT_PROVEN'`,
      in2,
    );
  const settle =
    (as: "not_found" | "unauthorized" | "forbidden" | "lost", ...places: readonly number[]): LockingOperation =>
    async (areas) => {
      for (const place of places) {
        await areas.settleReads(
          sessions[place] as Session,
          (reads[place] ?? []).map((read) => ({ ...read, as })),
        );
      }
    };
  const accept =
    (place: number): LockingOperation =>
    (areas) =>
      areas.acceptResourceVersions(
        sessions[place] as Session,
        (reads[place] ?? []).map((read) => answer(read, "accepted")),
      );
  const prune = (name: string, ...from: readonly number[]): LockingOperation =>
    call(`prune_${name}(${["fenceline.now() + interval '1 year'", 1000, ...from].join(", ")})`);
  return {
    "put off": call("put_off(array(select subscription_id from fenceline.subscription))"),
    "issue what is due": call("issue_due_reads($1, $2, 100, 30000, 60000)", in1),
    "accept under a standing revocation": accept(0),
    "accept in a suspended scope": accept(1),
    "settle as not found": settle("not_found", 0),
    "settle as unauthorized": settle("unauthorized", 1),
    "settle as forbidden": settle("forbidden", 2),
    notify: (areas) => areas.recordNotifications(one, URIS),
    "begin to unsubscribe": (areas) => areas.beginUnsubscribe(one, URIS),
    activate: (areas) => areas.activateSubscriptions(one, { shard: 0, pushed: ids.slice(0, 9), polled: ids.slice(9) }),
    "make a shard due": call("make_shard_due($1, $2, 0, 0, 100)", in1),
    "break a stream": (areas) => areas.breakStream(one, 0),
    "end a session": (areas) => areas.endSession(one),
    heartbeat: (areas) => areas.heartbeat(one),
    "publish entries": call("publish_entries($1, $2, $3, $4, true, 0, 100)", [...in1, scans.first, scans.second]),
    "finish a publication": call("finish_publication($1, $2, $3, $4, 25, 0.25, 600000)", [
      ...in1,
      scans.first,
      scans.second,
    ]),
    "finish one that is unsettled": call("finish_unsettled($1, $2, $3, $4, 5, 600000)", [
      ...in1,
      scans.first,
      scans.second,
    ]),
    "void a scan": (areas) => areas.finishScan(three, scans.open, { complete: false, verdict: "VOID", reason: "test" }),
    "record list_changed": (areas) => areas.recordListChanged(two),
    "forget entries of scans": call("forget_scan_entries($1, $2, 100)", in1),
    "make vanished ones due": call(
      "make_vanished_due($1, $2, (select catalog_scan_id from fenceline.policy_scope where scope_id = $1), 0, 100)",
      in2,
    ),
    "weigh an absence": inSnapshotOf2("weigh_absence($1, $2, x.scan_id, x.set_digest, i.mark, 25, 0.25)"),
    "remove what is absent": inSnapshotOf2("remove_absent($1, $2, x.scan_id, x.set_digest, i.mark, 0, 100)"),
    revoke: (areas) => areas.revoke({ source, subject: two.reader, reason: "now" }),
    "revoke in every source": (areas) => areas.revoke({ subject: one.reader, reason: "now" }),
    "advance a revocation": (areas) => areas.advanceRevocation(revocations.reader),
    "advance one of an audience": (areas) => areas.advanceRevocation(revocations.audience),
    "reopen after a lift": (areas) => areas.advanceRevocation(revocations.lifted),
    lift: call("lift_revocation($1)", [revocations.reader]),
    "prolong claims": (areas) =>
      areas.renewIndexWork(
        index.ref,
        planned.map(({ work }) => work),
        { leaseMs: 10_000 },
      ),
    "confirm versions": (areas) => areas.confirmVersions(index.ref, planned),
    "give up intents": (areas) =>
      areas.abandonIntents(planned.flatMap(({ written }) => written.map(({ groupId }) => groupId))),
    "record keys of a store": (areas) =>
      areas.recordStoreKeys(entryIds.map((entryId) => ({ entryId, storeKey: entryId }))),
    "record findings": call(
      "record_findings(array_agg(subscription_id), array_agg(ordinal), array_agg('[{}]'::text)) from fenceline.resource_version",
    ),
    "read again what was lost": call("requeue_lost_entries($1, array(select entry_number from fenceline.entry))", [
      index.ref.name,
    ]),
    "claim a purge": (areas) => areas.claimPurge({ store, limit: 100, leaseMs: 10_000 }),
    "confirm a purge": (areas) => areas.confirmPurge(store, claims, { claim: "absent" }),
    "give claims back": call("release_purge($1, $2, $3, 'failed')", [
      store,
      claims.map(({ groupId }) => groupId),
      claims.map(({ claimToken }) => claimToken),
    ]),
    "keep groups that are held": call("keep_held_groups(array(select group_id from fenceline.entry_group))"),
    "confirm derived entries": (areas) => areas.confirmDerived(recorded),
    "attach embeddings": call(
      `attach_embeddings($1, s.subscription_id, s.version_ordinal, array(
         select e.entry_number from fenceline.entry e join fenceline.entry_group g using (group_id)
         where g.resource_id = s.resource_id and g.kind = 'embedding' and e.position < 3))
       from fenceline.subscription s where s.scope_id = $2 and s.uri = 'catalog://d'`,
      [cache.ref.indexId, two.scopeId],
    ),
    "fill an index": call("fill_index($1, 0, 100)", [index.ref.indexId]),
    "retire an index": call("retire_index($1, null)", [index.ref.name]),
    "empty a retired index": async ({ sql }) => {
      await sql("update fenceline.index set retired_at = fenceline.now() where index_id = $1", [index.ref.indexId]);
      await sql("select fenceline.empty_retired_index($1, 0, 0, 100)", [index.ref.indexId]);
    },
    "acknowledge an export": (areas) => areas.acknowledgeExport(world.exports[0] as number),
    "configure grants": (areas) => areas.replaceConfiguredGrants([source], []),
    "prune reads": prune("reads", 0, 0),
    "prune versions": prune("versions", 0, 0),
    "prune groups": prune("groups", 0),
    "prune receipts of purges": prune("purge_receipts", 0),
    "prune exports": prune("exports", 0),
    "prune scans": prune("scans"),
    "prune sessions": prune("sessions"),
    "prune receipts": prune("receipts"),
    "begin an incarnation": call("begin_incarnation('operator', null, null, null, 'test')"),
    "register a source": (areas) => areas.registerSource({ name: source, stalenessMs: 1_000 }),
  };
}
