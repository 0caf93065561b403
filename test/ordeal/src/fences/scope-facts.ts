import type { Queryable } from "@fenceline/ledger";
import type { HistoryRow, ScopeHistory } from "./history.js";
import type { AskedRevocation } from "./scope-under-fire.js";

/** A read as the ledger noted it when it was issued (F1). */
export interface IssuedRow {
  readonly generation: number;
  readonly sessionGeneration: number;
  readonly notificationNumber: number;
  readonly streamEpoch: number | null;
}

export async function issuedReads(
  database: Queryable,
  schema: string,
  subscriptionId: number,
): Promise<Map<number, IssuedRow>> {
  const rows = await database.query<IssuedRow & { ordinal: number }>(
    `select ordinal, generation, session_generation as "sessionGeneration", notification_number as "notificationNumber",
       stream_epoch as "streamEpoch" from ${schema}.read where subscription_id = $1`,
    [subscriptionId],
  );
  return new Map(rows.map((row) => [row.ordinal, row]));
}

/** What held for a scope at a position of the history. */
export interface ScopeFacts {
  sessionAt(scopeId: number, position: number): number;
  epochAt(scopeId: number, shard: number, position: number): number | null;
  /** A revocation that stood for this URI then. */
  revocationAt(scopeId: number, uri: string, position: number): number | undefined;
}

/** @param names `source reader` by scope */
export function scopeFactsOf(
  history: ScopeHistory,
  asked: readonly AskedRevocation[],
  names: ReadonlyMap<number, string>,
): ScopeFacts {
  const sessions = valuesByKey(
    history.sessions,
    ({ scope }) => `${scope}`,
    ({ generation }) => generation,
  );
  const epochs = valuesByKey(
    history.streams,
    ({ scope, shard }) => `${scope} ${shard}`,
    ({ epoch }) => epoch,
  );
  const states = valuesByKey(
    history.revocations,
    ({ id }) => `${id}`,
    ({ state }) => (state === "LIFTED" ? 0 : 1),
  );
  return {
    sessionAt: (scopeId, position) => valueAt(sessions.get(`${scopeId}`), position) ?? 0,
    epochAt: (scopeId, shard, position) => valueAt(epochs.get(`${scopeId} ${shard}`), position),
    revocationAt: (scopeId, uri, position) =>
      asked.find(
        ({ revocationId, source, reader, scope }) =>
          names.get(scopeId) === `${source} ${reader}` &&
          covers(scope, uri) &&
          valueAt(states.get(`${revocationId}`), position) === 1,
      )?.revocationId,
  };
}

/** The ordeal's URIs need no normalising, so that this stays apart from how the ledger does it. */
function covers(scope: AskedRevocation["scope"], uri: string): boolean {
  if ("uri" in scope) return scope.uri === uri;
  return "everything" in scope || uri === scope.prefix || uri.startsWith(`${scope.prefix}/`);
}

type Timeline = readonly { readonly position: number; readonly value: number }[];

function valuesByKey<Facts>(
  rows: readonly HistoryRow<Facts>[],
  keyOf: (facts: Facts) => string,
  numberOf: (facts: Facts) => number,
): Map<string, Timeline> {
  const timelines = new Map<string, { position: number; value: number }[]>();
  for (const { position, after } of rows) {
    const key = keyOf(after);
    timelines.set(key, [...(timelines.get(key) ?? []), { position, value: numberOf(after) }]);
  }
  return timelines;
}

function valueAt(timeline: Timeline | undefined, position: number): number | null {
  return timeline?.findLast((each) => each.position < position)?.value ?? null;
}
