import { indexArguments } from "./arguments/indexes.js";
import type { Queryable } from "./database/database.js";
import { assert, FencelineError } from "./errors.js";
import { call } from "./fenced-call.js";
import { checkedCalls } from "./input.js";

/** An index registered with the ledger: where entries live and in which embedding space. */
export interface IndexRef {
  readonly indexId: number;
  readonly name: string;
  readonly version: number;
  readonly store: string;
}

export interface IndexLedger {
  registerStore(store: { readonly name: string; readonly kind: string }): Promise<void>;
  /**
   * Registers an index; versions already accepted become due in it. A changed configuration needs a higher version.
   *
   * @param index.takes what fills it: versions (the default), or derived entries alone: no version becomes due in it
   * @throws {FencelineError} `store_unknown`, `index_configuration_changed`, `index_retired`
   */
  registerIndex(index: {
    readonly name: string;
    readonly version: number;
    readonly store: string;
    readonly embeddings: string;
    readonly configurationDigest: Uint8Array;
    readonly takes?: "versions" | "derived";
  }): Promise<IndexRef>;
  /** The index of this name with the highest version that is not retired, or `undefined`. */
  findIndex(name: string): Promise<IndexRef | undefined>;
  /**
   * The version of an index that answers: the highest in which every version that waited was confirmed once. A newer one
   * is built beside it and takes over when it is complete. `undefined` while none ever was, or all were retired.
   */
  servingIndex(name: string): Promise<IndexRef | undefined>;
  /**
   * Retires a version of an index, or all of them: it takes nothing more, shows nothing and never serves again, and what it held
   * becomes due for purge (P3). Call again if this was interrupted. `false`: there is no such index.
   */
  retireIndex(name: string, version?: number): Promise<boolean>;
}

/** Scopes whose fences are held at a time: a server has room for some 6,000 locks, which all of its transactions share. */
const FENCE_BATCH = 100;
/** Groups and outbox rows of a retired index that are ended in one transaction. */
const RETIRE_BATCH = 1_000;

/** The indexes of a ledger; see `IndexLedger`. The rules are in `functions/indexes.sql`. */
export function indexLedger(database: Queryable): IndexLedger {
  return checkedCalls(indexArguments, {
    async registerStore({ name, kind }) {
      await database.query(
        "insert into fenceline.store (name, kind) values ($1, $2) on conflict (name) do update set kind = excluded.kind",
        [name, kind],
      );
    },

    async registerIndex(index) {
      const { name, version, store } = index;
      const [row] = await database.query<RegisteredRow>(
        "select * from fenceline.register_index($1, $2, $3, $4, $5, $6)",
        [name, version, store, index.embeddings, Buffer.from(index.configurationDigest), index.takes !== "derived"],
      );
      assert(row !== undefined, "register_index answers with one row.");
      switch (row.outcome) {
        case "store_unknown":
          throw new FencelineError(
            "store_unknown",
            `No store named ${JSON.stringify(store)} is registered: register it first.`,
          );
        case "other_configuration":
          throw new FencelineError(
            "index_configuration_changed",
            `Version ${version} of the index ${JSON.stringify(name)} was registered with another configuration: raise its version.`,
          );
        case "retired":
          throw new FencelineError(
            "index_retired",
            `Version ${version} of the index ${JSON.stringify(name)} was retired, and does not come back: raise its version.`,
          );
        case "registered":
        case "known":
          if (!row.filled) await throughScopes(database, "fenceline.fill_index($3, $1, $2)", [row.index_id]);
          return { indexId: row.index_id, name, version, store };
      }
    },

    findIndex: (name) => indexOf(database, name, "true"),

    servingIndex: (name) => indexOf(database, name, "i.serving_since is not null"),

    async retireIndex(name, version) {
      const retired = await call<number[]>(database, "fenceline.retire_index($1, $2)", [name, version ?? null]);
      if (retired.length > 0) await throughScopes(database, "fenceline.pass_fences($1, $2)");
      for (const indexId of retired) {
        let ended: EmptiedRow = { last_group: 0, last_subscription: 0 };
        while (ended.last_group !== null) ended = await emptyBatch(database, indexId, ended);
      }
      return retired.length > 0;
    },
  });
}

/** Batch by batch of scopes, each a transaction of its own. */
async function throughScopes(database: Queryable, step: string, parameters: readonly unknown[] = []): Promise<void> {
  for (let after: number | null = 0; after !== null; ) {
    after = await call<number | null>(database, step, [after, FENCE_BATCH, ...parameters]);
  }
}

/** Both `null`: nothing was left. */
interface EmptiedRow {
  readonly last_group: number | null;
  readonly last_subscription: number | null;
}

async function emptyBatch(database: Queryable, indexId: number, after: EmptiedRow): Promise<EmptiedRow> {
  const [row] = await database.query<EmptiedRow>("select * from fenceline.empty_retired_index($1, $2, $3, $4)", [
    indexId,
    after.last_group,
    after.last_subscription,
    RETIRE_BATCH,
  ]);
  assert(row !== undefined, "empty_retired_index answers with one row.");
  return row;
}

type RegisteredRow =
  | { outcome: "store_unknown"; index_id: null; filled: null }
  | { outcome: "registered" | "known" | "retired" | "other_configuration"; index_id: number; filled: boolean };

async function indexOf(database: Queryable, name: string, condition: string): Promise<IndexRef | undefined> {
  const [row] = await database.query<{ index_id: number; version: number; store: string }>(
    `select i.index_id, i.version, s.name as store from fenceline.index i join fenceline.store s using (store_id)
     where i.name = $1 and i.retired_at is null and ${condition} order by i.version desc limit 1`,
    [name],
  );
  return row && { indexId: row.index_id, name, version: row.version, store: row.store };
}
