/** Retention: deleting what nothing needs any more. What is never deleted is said in `functions/retention.sql`. */
import { retentionArguments } from "./arguments/retention.js";
import type { Database, Queryable } from "./database/database.js";
import { assert } from "./errors.js";
import { checkedCalls } from "./input.js";

/** How long things are kept, in milliseconds of the ledger's clock; `"forever"` keeps them. */
export interface RetentionPolicy {
  /** Receipts. Default 90 days. */
  readonly receiptsMs?: RetentionAge;
  /** Reads that brought no version. Default 7 days. */
  readonly readsMs?: RetentionAge;
  /** Groups of entries that are purged for good, with what they were derived from. Default 30 days after the purge. */
  readonly purgedGroupsMs?: RetentionAge;
  /** Superseded versions of which nothing is left: no entry, no export. Default 90 days. */
  readonly versionsMs?: RetentionAge;
  /** Scans that nothing names any more. Default 7 days. */
  readonly scansMs?: RetentionAge;
  /** Sessions that ended, with their capability receipts. Default 90 days. */
  readonly sessionsMs?: RetentionAge;
  /** Receipts of purges that no revocation asked for. Default 90 days. */
  readonly purgeReceiptsMs?: RetentionAge;
  /** Exports that were acknowledged. Default 365 days. */
  readonly acknowledgedExportsMs?: RetentionAge;
}

export type RetentionAge = number | "forever";

/** What is pruned, in this order: what goes first lets go of what comes after. */
export const prunedKinds = [
  "exports",
  "purgeReceipts",
  "groups",
  "versions",
  "reads",
  "scans",
  "sessions",
  "receipts",
] as const;

export type PrunedKind = (typeof prunedKinds)[number];

export interface PruneOptions {
  /** Rows looked at in one transaction. Default 1,000. */
  readonly batchSize?: number;
  /** Ends after the batch under way; what was pruned stays so, and the next call goes on. */
  readonly signal?: AbortSignal;
  /** Called after each batch with the counts so far. */
  readonly onProgress?: (deleted: Readonly<Record<PrunedKind, number>>) => void;
}

export interface PruneReport {
  /** `aborted`: the signal ended it before it was through. */
  readonly outcome: "pruned" | "aborted";
  readonly deleted: Readonly<Record<PrunedKind, number>>;
}

export interface RetentionLedger {
  /**
   * Deletes what is older than the policy keeps it, in batches that are a short transaction each, so that it may run beside
   * everything else and by several processes at once. No ordinal, close, open revocation or lineage is lost; an answer to a
   * read that was pruned is `not_issued`.
   *
   * @throws {FencelineError} `input_invalid`: an age below ten minutes, in which something of it may still be under way
   */
  prune(policy?: RetentionPolicy, options?: PruneOptions): Promise<PruneReport>;
  /**
   * Makes the space of what was deleted usable again (files do not shrink), and refreshes the planner's statistics, where nobody
   * else does: PGlite has no autovacuum. Everybody else waits meanwhile, about a second for 200,000 rows that were deleted.
   * `not_needed`: PostgreSQL does it by itself.
   */
  maintain(): Promise<"maintained" | "not_needed">;
}

const DAY_MS = 86_400_000;

/** How long things are kept unless a policy says otherwise. */
export const defaultRetention: Required<RetentionPolicy> = {
  receiptsMs: 90 * DAY_MS,
  readsMs: 7 * DAY_MS,
  purgedGroupsMs: 30 * DAY_MS,
  versionsMs: 90 * DAY_MS,
  scansMs: 7 * DAY_MS,
  sessionsMs: 90 * DAY_MS,
  purgeReceiptsMs: 90 * DAY_MS,
  acknowledgedExportsMs: 365 * DAY_MS,
};

interface Pruning {
  readonly age: keyof RetentionPolicy;
  /** Takes the age in $1, the limit in $2, and the place to go on after in the others. */
  readonly call: string;
  /** Where to begin; undefined where each batch finds its own place. */
  readonly from?: readonly number[];
}

const PRUNINGS: Readonly<Record<PrunedKind, Pruning>> = {
  exports: { age: "acknowledgedExportsMs", call: "prune_exports(b.before, $2, $3)", from: [0] },
  purgeReceipts: { age: "purgeReceiptsMs", call: "prune_purge_receipts(b.before, $2, $3)", from: [0] },
  groups: { age: "purgedGroupsMs", call: "prune_groups(b.before, $2, $3)", from: [0] },
  versions: { age: "versionsMs", call: "prune_versions(b.before, $2, $3, $4)", from: [0, 0] },
  reads: { age: "readsMs", call: "prune_reads(b.before, $2, $3, $4)", from: [0, 0] },
  scans: { age: "scansMs", call: "prune_scans(b.before, $2)" },
  sessions: { age: "sessionsMs", call: "prune_sessions(b.before, $2)" },
  receipts: { age: "receiptsMs", call: "prune_receipts(b.before, $2)" },
};

const DEFAULT_BATCH_SIZE = 1_000;

/** See `RetentionLedger`. `queryable` runs in the ledger's schema of `database`. */
export function retentionLedger(database: Database, queryable: Queryable): RetentionLedger {
  return checkedCalls(retentionArguments, {
    async prune(policy = {}, { batchSize = DEFAULT_BATCH_SIZE, signal, onProgress } = {}) {
      const ages = { ...defaultRetention, ...policy };
      const deleted = Object.fromEntries(prunedKinds.map((kind) => [kind, 0])) as Record<PrunedKind, number>;
      for (const kind of prunedKinds) {
        const ageMs = ages[PRUNINGS[kind].age];
        if (ageMs === "forever") continue;
        for await (const count of batches(queryable, PRUNINGS[kind], ageMs, batchSize)) {
          deleted[kind] += count;
          onProgress?.({ ...deleted });
          if (signal?.aborted) return { outcome: "aborted", deleted };
        }
      }
      return { outcome: "pruned", deleted };
    },

    async maintain() {
      if (database.kind !== "embedded") return "not_needed";
      await database.query("vacuum (analyze)");
      return "maintained";
    },
  });
}

/** How many each batch deleted. */
async function* batches(database: Queryable, { call, from = [] }: Pruning, ageMs: number, batchSize: number) {
  for (let after: readonly (number | string)[] | undefined = from; after !== undefined; ) {
    const [batch]: { deleted: number; place: string | null }[] = await database.query(
      `select p.* from (select fenceline.now() - fenceline.milliseconds($1)) b (before), fenceline.${call} p`,
      [ageMs, batchSize, ...after],
    );
    assert(batch !== undefined, `${call} answers with one row.`);
    yield batch.deleted;
    if (batch.place === null) return;
    after = from.length === 0 ? from : batch.place.split(".");
  }
}
