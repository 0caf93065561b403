import { createHash } from "node:crypto";
import type { Ledger, Session, UriScope } from "@fenceline/ledger";
import type { Trials } from "../ordeal.js";
import { answerReads, settleReads } from "./answers.js";
import type { ClientLog } from "./client-log.js";
import type { AskedRevocation, Fire, ScopeUnderFire } from "./scope-under-fire.js";

/** What all connections of an ordeal share. */
export interface Battlefield {
  readonly schema: string;
  readonly trials: Trials;
  readonly log: ClientLog;
  /** Every revocation that was ever given. */
  readonly revocations: AskedRevocation[];
}

/** Does one thing to a scope. The answer is how many notifications, answers and closes that were. */
type Step = (fire: Fire, scope: ScopeUnderFire, field: Battlefield) => Promise<number>;

/** Of sessions: no jump of the clock ends them all, each is ended by itself. */
const SESSION_LEASE_MS = 86_400_000;
const SHARDS = [0, 1];
const STANDING_AT_MOST = 2;

/** What the ordeal does, and how often each beside the others. */
export const weights = {
  notify: 30,
  issue: 26,
  answer: 24,
  settle: 9,
  unsubscribe: 2.5,
  settleUnsubscribe: 4,
  open: 6,
  list: 2,
  breakStream: 1,
  takeOver: 0.6,
  revoke: 1,
  advance: 2,
  lift: 1,
  passTime: 3,
  heartbeat: 1,
  resume: 1,
} as const;

export const steps: Readonly<Record<keyof typeof weights, Step>> = {
  async notify({ ledger, random }, scope, { trials }) {
    const old = scope.pastSessions.length > 0 && random.chance(0.06);
    const session = old ? random.pick(scope.pastSessions) : (scope.session as Session);
    const uris = random.some(scope.uris, random.between(1, 10));
    if (random.chance(0.1)) uris.push(`${random.pick(scope.uris)}/below`);
    if (random.chance(0.05)) uris.push(`${scope.source}://elsewhere`);
    const windowMs = random.pick([0, 100, 60_000]);
    for (const { outcome } of await ledger.recordNotifications(session, uris, { windowMs })) {
      trials.note(old ? "notify, old_session" : "notify", outcome);
    }
    return uris.length;
  },

  async issue({ ledger, random }, scope, { trials }) {
    const session = scope.session as Session;
    // Short leases, so that a second read goes out beside the first (F4).
    const leaseMs = random.pick([1_000, 30_000]);
    const reads = random.chance(0.5)
      ? await ledger.issueDueReads(session, { limit: random.between(1, 20), leaseMs })
      : await ledger.issueReads(session, {
          uris: random.some(scope.uris, random.between(1, 12)),
          reason: "demand",
          leaseMs,
        });
    scope.sent(random, session, reads);
    for (const { reason } of reads) trials.note("issue", reason);
    return 0;
  },

  answer: (fire, scope, { trials, log }) => answerReads(fire, scope, trials, log),
  settle: (fire, scope, { trials, log }) => settleReads(fire, scope, trials, log),

  async unsubscribe({ ledger, random }, scope, { trials }) {
    const uris = random.some(scope.uris, random.between(1, 4));
    const begun = await ledger.beginUnsubscribe(scope.session as Session, uris);
    if (begun.length > 0) trials.note("unsubscribe", "begun", begun.length);
    if (begun.length < uris.length) trials.note("unsubscribe", "refused", uris.length - begun.length);
    return uris.length;
  },

  async settleUnsubscribe({ ledger, random }, scope, field) {
    const session = scope.session as Session;
    const rows = await ledger.database.query<{ id: number }>(
      `select subscription_id as id from ${field.schema}.subscription
       where scope_id = $1 and lifecycle in ('UNSUBSCRIBING', 'UNSUBSCRIBE_UNKNOWN')`,
      [session.scopeId],
    );
    const ids = random.some(rows, random.between(1, 6)).map(({ id }) => id);
    if (ids.length === 0) return 0;
    const answer = random.chance(0.6) ? "acknowledged" : "unknown";
    await ledger.settleUnsubscribe(session, ids, answer);
    field.trials.note("settle unsubscribe", answer, ids.length);
    return ids.length;
  },

  async open({ ledger, random }, scope, { trials }) {
    const session = scope.session as Session;
    const refs = await ledger.subscriptionsToOpen(session, { limit: 100 });
    if (refs.length === 0) return 0;
    const shard = random.pick(SHARDS);
    const acknowledged = refs.map((ref) => ({ ...ref, pushed: random.chance(0.7) }));
    for (const { subscriptionId, generation } of acknowledged) scope.knowGeneration(subscriptionId, generation);
    const pushed = acknowledged.filter((ref) => ref.pushed).map(({ subscriptionId }) => subscriptionId);
    const polled = acknowledged.filter((ref) => !ref.pushed).map(({ subscriptionId }) => subscriptionId);
    await ledger.activateSubscriptions(session, { shard, pushed, polled });
    const members = scope.pushed.get(shard) ?? new Set();
    for (const id of pushed) members.add(id);
    scope.pushed.set(shard, members);
    trials.note("open", "pushed", pushed.length);
    trials.note("open", "polled", polled.length);
    return 0;
  },

  async list({ ledger, random }, scope, { trials }) {
    const session = scope.session as Session;
    // What is left out vanishes; when it is listed again later, what was closed opens with a new generation.
    const listed = random.chance(0.5) ? scope.uris : random.some(scope.uris, Math.ceil(scope.uris.length * 0.7));
    const first = await scan(ledger, session, listed);
    if (random.chance(0.1)) await ledger.recordListChanged(session);
    const second = first === undefined ? undefined : await scan(ledger, session, listed);
    if (first === undefined || second === undefined) {
      trials.note("list", "interrupted");
      return 0;
    }
    const { outcome } = await ledger.publishCatalog(session, { first, second });
    trials.note("list", outcome);
    return 0;
  },

  async breakStream({ ledger, random }, scope, { trials }) {
    const session = scope.session as Session;
    const shard = random.pick(SHARDS);
    await ledger.breakStream(session, shard);
    trials.note("stream", "broken");
    if (random.chance(0.3)) return 0;
    const opened = await ledger.openStream(session, shard);
    if (opened === "session_lost") return 0;
    await ledger.activateSubscriptions(session, { shard, pushed: [...(scope.pushed.get(shard) ?? [])], polled: [] });
    trials.note("stream", "acknowledged anew");
    return 0;
  },

  async takeOver({ ledger, random, owner }, scope, field) {
    const ended = scope.session !== undefined && random.chance(0.4);
    if (ended) await ledger.endSession(scope.session as Session);
    else await endLease(ledger, field.schema, scope);
    const { source, reader } = scope;
    const opened = await ledger.openSession({ source, reader, owner, leaseMs: SESSION_LEASE_MS });
    field.trials.note(ended ? "session after an end" : "session after a lease", opened.outcome);
    if (opened.outcome === "opened") scope.take(opened.session);
    return 0;
  },

  async revoke({ ledger, random }, scope, field) {
    if (scope.standing.length >= STANDING_AT_MOST) return 0;
    const uri = random.pick(scope.uris);
    const range: UriScope = random.chance(0.5) ? { uri } : { prefix: uri.slice(0, uri.lastIndexOf("/")) };
    const { source, reader } = scope;
    const { revocationId } = await ledger.revoke({ source, subject: reader, scope: range, reason: "ordeal" });
    const asked = { revocationId, source, reader, scope: range };
    scope.standing.push(asked);
    field.revocations.push(asked);
    field.trials.note("revoke", "uri" in range ? "uri" : "prefix");
    return 0;
  },

  async advance({ ledger, random }, _scope, { trials }) {
    const open = await ledger.revocationsToAdvance();
    if (open.length === 0) return 0;
    trials.note("advance", await ledger.advanceRevocation(random.pick(open), { limit: random.between(1, 5) }));
    return 0;
  },

  async lift({ ledger, random }, scope, { trials }) {
    if (scope.standing.length === 0) return 0;
    const [asked] = random.some(scope.standing, 1) as [AskedRevocation];
    scope.standing.splice(scope.standing.indexOf(asked), 1);
    await ledger.lift(asked.revocationId);
    trials.note("lift", "lifted");
    return 0;
  },

  async passTime({ ledger, random }, _scope, { schema }) {
    await passTime(ledger, schema, random.pick([200, 1_500, 31_000, 61_000]));
    return 0;
  },

  async heartbeat({ ledger }, scope, { trials }) {
    trials.note("heartbeat", await ledger.heartbeat(scope.session as Session));
    return 0;
  },

  async resume({ ledger }, scope) {
    await ledger.resumeScope(scope.session as Session);
    return 0;
  },
};

/** Puts the ledger's clock into the ordeal's hands: it runs as before, and may be put ahead. */
export async function takeClock(ledger: Ledger, schema: string): Promise<void> {
  await ledger.database.query(`create table ${schema}.ordeal_clock (ahead interval not null)`);
  await ledger.database.query(`insert into ${schema}.ordeal_clock values ('0')`);
  await ledger.database.query(
    `create or replace function ${schema}.now() returns timestamptz language sql volatile
     as 'select clock_timestamp() + ahead from ${schema}.ordeal_clock'`,
  );
}

async function passTime(ledger: Ledger, schema: string, ms: number): Promise<void> {
  await ledger.database.query(`update ${schema}.ordeal_clock set ahead = ahead + make_interval(secs => $1 / 1000.0)`, [
    ms,
  ]);
}

/** What a holder that was stopped for too long finds: its lease ran out. */
async function endLease(ledger: Ledger, schema: string, { session }: ScopeUnderFire): Promise<void> {
  if (session === undefined) return;
  await ledger.database.query(`update ${schema}.session set expires_at = ${schema}.now() where session_id = $1`, [
    session.sessionId,
  ]);
}

/** One complete scan; `undefined` where the session was lost or another scan ended it. */
async function scan(ledger: Ledger, session: Session, uris: readonly string[]): Promise<number | undefined> {
  const begun = await ledger.beginScan(session);
  if (typeof begun === "string") return undefined;
  const entries = uris.map((uri) => ({ uri, descriptorDigest: digestOf(uri) }));
  await ledger.recordScanPage(session, begun.scanId, { cursorDigest: digestOf("first"), entries });
  const finished = await ledger.finishScan(session, begun.scanId, { complete: true });
  return finished === "complete" ? begun.scanId : undefined;
}

function digestOf(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
