import { subscriptionArguments } from "./arguments/subscriptions.js";
import type { Queryable } from "./database/database.js";
import { call, fenceOf, inBatches } from "./fenced-call.js";
import { checkedCalls } from "./input.js";
import { defaultReadTiming, type ReadTiming } from "./read-timing.js";
import { keyDigest } from "./resource-rows.js";
import { matchKey, resourceKey } from "./resource-uri.js";
import type { Session } from "./sessions.js";
import { segmentPrefixes } from "./uri-scope.js";

export interface SubscriptionRef {
  readonly subscriptionId: number;
  /** The server's own spelling. */
  readonly uri: string;
  readonly generation: number;
}

export interface SubscriptionToOpen extends SubscriptionRef {
  /** As it was listed. */
  readonly mimeType: string | undefined;
  /** The template that stands for it, where no list names it by itself. */
  readonly uriTemplate: string | undefined;
}

export type NotificationOutcome =
  /** The resource is due; what was accepted before is `changed` from now on. */
  | "invalidated"
  /** Neither subscribed nor below a subscribed URI (U11). */
  | "not_subscribed"
  /** From a session that no longer holds the scope (U11). */
  | "session_lost";

export interface SubscriptionLedger {
  /** Subscriptions not yet pushed or polled under this session, in order of id, after `afterId`. */
  subscriptionsToOpen(
    session: Session,
    page: { readonly limit: number; readonly afterId?: number },
  ): Promise<SubscriptionToOpen[]>;
  /** The templates that stand for subscriptions of this session's scope which are not closed. */
  templatesInUse(session: Session): Promise<string[]>;
  /**
   * Which of these are neither closed nor to be reconciled. A revocation closes a polled one at once and tells nobody; what is asked
   * for at the server again must not be among them (U7). `[]` also when the session is lost.
   */
  subscriptionsStillOpen(session: Session, subscriptionIds: readonly number[]): Promise<number[]>;
  /** A new stream of a shard: its epoch rises, so everything pushed through it is unverified until read again (U4). */
  openStream(session: Session, shard: number): Promise<{ readonly epoch: number } | "session_lost">;
  /** The stream broke: an event of its own; its shard is unverified and due (U4). Exclusive under the scope fence. */
  breakStream(session: Session, shard: number): Promise<void>;
  /** The acknowledgement compared with what was asked: `pushed` were acknowledged, `polled` were not (U2, U3). */
  activateSubscriptions(
    session: Session,
    answer: { readonly shard: number; readonly pushed: readonly number[]; readonly polled: readonly number[] },
  ): Promise<void>;
  /**
   * Counts one notification for each URI (or for the subscribed one it lies below) and makes it due after the
   * coalescing window (U5). A URI given several times counts once per call.
   */
  recordNotifications(
    session: Session,
    uris: readonly string[],
    options?: { readonly windowMs?: number },
  ): Promise<{ readonly uri: string; readonly outcome: NotificationOutcome }[]>;
  /** Freezes the close ordinal; no read is issued after it (U7). Returns what has to be unsubscribed at the server. */
  beginUnsubscribe(
    session: Session,
    uris: readonly string[],
    options?: {
      /**
       * The configuration leaves them out. What was accepted of them stays and ages (U10); they are absent for no scan and no
       * completeness task, and the first catalogue that lists them again opens them with a new generation (§3). Default false.
       */
      readonly excluded?: boolean;
    },
  ): Promise<SubscriptionRef[]>;
  /**
   * What is still to be unsubscribed at the server, in order of id, after `afterId`: begun by `beginUnsubscribe` or by a
   * revocation, or of unknown outcome. Tell the server, then `settleUnsubscribe`; the end of the session settles it too. A wake of
   * kind `read` says that a revocation left something here.
   */
  subscriptionsToSettle(
    session: Session,
    page: { readonly limit: number; readonly afterId?: number },
  ): Promise<SubscriptionRef[]>;
  /**
   * How the server answered: acknowledged ones are CLOSED, and opened again at once if what closed them was lifted meanwhile;
   * of `unknown` ones nothing is known until they are settled on the same session or it ends (U9).
   */
  settleUnsubscribe(
    session: Session,
    subscriptionIds: readonly number[],
    answer: "acknowledged" | "unknown",
  ): Promise<void>;
}

/** Held under the fence at a time (P2). */
const BATCH = 500;
/** Looked at in one statement, which holds nothing. */
const LOOKED_AT = 10_000;

/** Subscriptions, streams and notifications; see `SubscriptionLedger`. The rules are in `functions/subscriptions.sql`. */
export function subscriptionLedger(database: Queryable, timing: ReadTiming = defaultReadTiming): SubscriptionLedger {
  return checkedCalls(subscriptionArguments, {
    async subscriptionsToOpen(session, { limit, afterId = 0 }) {
      const rows = await database.query<SubscriptionToOpenRow>(
        "select * from fenceline.subscriptions_to_open($1, $2, $3, $4)",
        [...fenceOf(session), afterId, limit],
      );
      return rows.map((row) => ({
        ...subscriptionRef(row),
        mimeType: row.mime_type ?? undefined,
        uriTemplate: row.uri_template ?? undefined,
      }));
    },

    async templatesInUse(session) {
      const rows = await database.query<{ uri_template: string }>(
        `select distinct s.uri_template from fenceline.subscription s
         where s.scope_id = $1 and s.uri_template is not null and s.lifecycle <> 'CLOSED' order by s.uri_template`,
        [session.scopeId],
      );
      return rows.map((row) => row.uri_template);
    },

    async subscriptionsStillOpen(session, subscriptionIds) {
      const open: number[] = [];
      for (const batch of inBatches(subscriptionIds, LOOKED_AT)) {
        const text = "fenceline.subscriptions_still_open($1, $2, $3)";
        open.push(...(await call<number[]>(database, text, [...fenceOf(session), batch])));
      }
      return open;
    },

    async openStream(session, shard) {
      const epoch = await raiseStreamEpoch(database, session, shard, "opened");
      return epoch === null ? "session_lost" : { epoch };
    },

    async breakStream(session, shard) {
      await raiseStreamEpoch(database, session, shard, "broken");
    },

    async activateSubscriptions(session, { shard, pushed, polled }) {
      const modes = [...pushed.map((id) => ({ id, pushed: true })), ...polled.map((id) => ({ id, pushed: false }))];
      for (const batch of inBatches(modes, BATCH)) {
        await call(database, "fenceline.activate_subscriptions($1, $2, $3, $4, $5)", [
          ...fenceOf(session),
          shard,
          batch.filter((mode) => mode.pushed).map((mode) => mode.id),
          batch.filter((mode) => !mode.pushed).map((mode) => mode.id),
        ]);
      }
    },

    async recordNotifications(session, uris, { windowMs = timing.notificationWindowMs } = {}) {
      const distinct = [...new Set(uris)];
      const outcomes: { uri: string; outcome: NotificationOutcome }[] = [];
      for (const batch of inBatches(distinct, BATCH)) {
        outcomes.push(...(await recordNotificationBatch(database, session, batch, windowMs)));
      }
      return outcomes;
    },

    async beginUnsubscribe(session, uris, { excluded = false } = {}) {
      return subscriptionRefs(database, "select * from fenceline.begin_unsubscribe($1, $2, $3, $4, $5)", [
        ...fenceOf(session),
        session.sourceId,
        uris.map((uri) => keyDigest(resourceKey(uri))),
        excluded,
      ]);
    },

    async subscriptionsToSettle(session, { limit, afterId = 0 }) {
      return subscriptionRefs(database, "select * from fenceline.subscriptions_to_settle($1, $2, $3, $4)", [
        ...fenceOf(session),
        afterId,
        limit,
      ]);
    },

    async settleUnsubscribe(session, subscriptionIds, answer) {
      for (const batch of inBatches(subscriptionIds, BATCH)) {
        const parameters = [...fenceOf(session), batch, answer === "acknowledged"];
        await call(database, "fenceline.settle_unsubscribe($1, $2, $3, $4)", parameters);
      }
    },
  });
}

async function subscriptionRefs(
  database: Queryable,
  text: string,
  values: readonly unknown[],
): Promise<SubscriptionRef[]> {
  return (await database.query<SubscriptionRow>(text, values)).map(subscriptionRef);
}

interface SubscriptionRow {
  readonly subscription_id: number;
  readonly uri: string;
  readonly generation: number;
}

interface SubscriptionToOpenRow extends SubscriptionRow {
  readonly mime_type: string | null;
  readonly uri_template: string | null;
}

function subscriptionRef({ subscription_id: subscriptionId, uri, generation }: SubscriptionRow): SubscriptionRef {
  return { subscriptionId, uri, generation };
}

/** Under the exclusive fence only the epoch rises; what follows for each subscription comes after, in batches. */
async function raiseStreamEpoch(
  database: Queryable,
  session: Session,
  shard: number,
  event: "opened" | "broken",
): Promise<number | null> {
  const epoch = await call<number | null>(database, "fenceline.raise_stream_epoch($1, $2, $3, $4)", [
    ...fenceOf(session),
    shard,
    event === "broken",
  ]);
  for (let after: number | null = epoch === null ? null : 0; after !== null; ) {
    after = await call<number | null>(database, "fenceline.make_shard_due($1, $2, $3, $4, $5)", [
      ...fenceOf(session),
      shard,
      after,
      BATCH,
    ]);
  }
  return epoch;
}

async function recordNotificationBatch(
  database: Queryable,
  session: Session,
  uris: readonly string[],
  windowMs: number,
): Promise<{ uri: string; outcome: NotificationOutcome }[]> {
  const prefixes = uris.flatMap((uri, place) => enclosingMatchKeys(uri).map((prefix) => ({ place, prefix })));
  const rows = await database.query<{ place: number; outcome: NotificationOutcome }>(
    "select * from fenceline.record_notifications($1, $2, $3, $4, $5, $6, $7, $8)",
    [
      ...fenceOf(session),
      session.sourceId,
      uris.map((_, place) => place),
      uris.map((uri) => keyDigest(resourceKey(uri))),
      prefixes.map((each) => each.place),
      prefixes.map((each) => each.prefix),
      windowMs,
    ],
  );
  return rows.map(({ place, outcome }) => ({ uri: uris[place] as string, outcome }));
}

/** Match keys of the resources a URI is or lies below (U11): spelled another way, they are still what was changed. */
function enclosingMatchKeys(uri: string): string[] {
  const key = matchKey(uri);
  return [...new Set([...segmentPrefixes(key).filter((prefix) => prefix.endsWith("/")), key])];
}
