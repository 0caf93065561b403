import type { Queryable } from "@fenceline/ledger";

/**
 * The history of the raw tables, kept by triggers of the ordeal's own. Of one subscription it is in the order in which
 * things happened: whoever changes it, its versions or its outbox rows holds its row lock from before the first of these
 * rows until the commit. Against scopes and revocations it is in order because those change under the exclusive fence.
 */
export interface HistoryRow<Facts> {
  readonly position: number;
  readonly before: Facts | null;
  readonly after: Facts;
}

export interface SubscriptionFacts {
  readonly lifecycle: string;
  readonly generation: number;
  readonly issued: number;
  readonly accepted: number;
  readonly version: number | null;
  readonly notification: number;
  readonly hidden: string | null;
  readonly pushed: boolean;
  readonly shard: number | null;
}

export interface VersionFacts {
  readonly ordinal: number;
  readonly generation: number;
  readonly digest: string | null;
}

export interface OutboxFacts {
  readonly index: number;
  readonly ordinal: number;
  readonly pending: boolean;
}

export interface SubscriptionHistory {
  readonly subscriptionId: number;
  readonly scopeId: number;
  readonly uri: string;
  readonly rows: readonly (
    | ({ readonly relation: "subscription" } & HistoryRow<SubscriptionFacts>)
    | ({ readonly relation: "resource_version" } & HistoryRow<VersionFacts>)
    | ({ readonly relation: "outbox" } & HistoryRow<OutboxFacts>)
  )[];
}

/** What decides for a whole scope, in order. */
export interface ScopeHistory {
  readonly sessions: readonly HistoryRow<{ readonly scope: number; readonly generation: number }>[];
  readonly streams: readonly HistoryRow<{ readonly scope: number; readonly shard: number; readonly epoch: number }>[];
  readonly revocations: readonly HistoryRow<{ readonly id: number; readonly state: string }>[];
}

const watched: Readonly<Record<string, { subscription: string; facts: readonly (readonly [string, string])[] }>> = {
  subscription: {
    subscription: "$.subscription_id",
    facts: [
      ["lifecycle", "$.lifecycle"],
      ["generation", "$.generation"],
      ["issued", "$.issued_ordinal"],
      ["accepted", "$.accepted_ordinal"],
      ["version", "$.version_ordinal"],
      ["notification", "$.notification_number"],
      ["hidden", "$.hidden_because"],
      ["pushed", "$.pushed"],
      ["shard", "$.shard"],
    ],
  },
  resource_version: {
    subscription: "$.subscription_id",
    facts: [
      ["ordinal", "$.ordinal"],
      ["generation", "$.generation"],
      ["digest", "encode($.digest, 'hex')"],
    ],
  },
  outbox: {
    subscription: "$.subscription_id",
    facts: [
      ["index", "$.index_id"],
      ["ordinal", "$.ordinal"],
      ["pending", "$.pending"],
    ],
  },
  policy_scope: {
    subscription: "null",
    facts: [
      ["scope", "$.scope_id"],
      ["generation", "$.session_generation"],
    ],
  },
  stream: {
    subscription: "null",
    facts: [
      ["scope", "$.scope_id"],
      ["shard", "$.shard"],
      ["epoch", "$.epoch"],
    ],
  },
  revocation: {
    subscription: "null",
    facts: [
      ["id", "$.revocation_id"],
      ["state", "$.state"],
    ],
  },
};

/** Begins to keep the history of a ledger's tables. */
export async function keepHistory(database: Queryable, schema: string): Promise<void> {
  await database.query(`create table ${schema}.ordeal_history (
    position bigint generated always as identity primary key, relation text not null, subscription_id bigint,
    row_before jsonb, row_after jsonb not null)`);
  for (const [relation, { subscription, facts }] of Object.entries(watched)) {
    const row = (name: string) =>
      `jsonb_build_object(${facts.map(([fact, column]) => `'${fact}', ${column.replace("$", name)}`).join(", ")})`;
    await database.query(`create function ${schema}.ordeal_note_${relation}() returns trigger language plpgsql as $body$
      declare
        v_before jsonb := case when tg_op = 'UPDATE' then ${row("old")} end;
        v_after jsonb := ${row("new")};
      begin
        if v_before is distinct from v_after then
          insert into ${schema}.ordeal_history (relation, subscription_id, row_before, row_after)
          values ('${relation}', ${subscription.replace("$", "new")}, v_before, v_after);
        end if;
        return null;
      end $body$`);
    // Named to fire last among triggers of the ledger's own.
    await database.query(`create trigger zz_ordeal_history after insert or update on ${schema}.${relation}
      for each row execute function ${schema}.ordeal_note_${relation}()`);
  }
  await database.query(`create index ordeal_history_order on ${schema}.ordeal_history (subscription_id, position)`);
}

/** The history of each subscription, one at a time. */
export async function* subscriptionHistories(database: Queryable, schema: string): AsyncGenerator<SubscriptionHistory> {
  const subscriptions = await database.query<{ subscriptionId: number; scopeId: number; uri: string }>(
    `select subscription_id as "subscriptionId", scope_id as "scopeId", uri from ${schema}.subscription order by 1`,
  );
  for (const subscription of subscriptions) {
    const rows = await database.query<SubscriptionHistory["rows"][number]>(
      `select position, relation, row_before as before, row_after as after from ${schema}.ordeal_history
       where subscription_id = $1 order by position`,
      [subscription.subscriptionId],
    );
    yield { ...subscription, rows };
  }
}

export async function scopeHistory(database: Queryable, schema: string): Promise<ScopeHistory> {
  const of = <Facts>(relation: string) =>
    database.query<HistoryRow<Facts>>(
      `select position, row_before as before, row_after as after from ${schema}.ordeal_history
       where subscription_id is null and relation = $1 order by position`,
      [relation],
    );
  return { sessions: await of("policy_scope"), streams: await of("stream"), revocations: await of("revocation") };
}
