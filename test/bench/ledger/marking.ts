import type { Measure } from "../measure.js";
import type { LedgerBench } from "./ledger-bench.js";
import { millionEntries } from "./million-entries.js";

/**
 * The part of a revocation's batches that marks edges, in all its calls together, as PostgreSQL itself adds it up: the
 * batches also close 10,000 subscriptions, which is another matter.
 */
export const marking: Measure<LedgerBench> = {
  name: "the edges of a million entries (10,000 groups) marked revoked",
  unit: "ms",
  goal: { atMost: 200 },
  async run(bench) {
    const { session } = await millionEntries(bench);
    const ledger = await bench.anotherLedger("-c track_functions=pl");
    const { revocationId } = await ledger.revoke({ source: session.source, subject: session.reader, reason: "bench" });
    while ((await ledger.advanceRevocation(revocationId)) === "more");
    // What a connection counted is told when it ends.
    await ledger.close();
    return totalMs(bench, "mark_edges");
  },
};

async function totalMs({ sql, schema }: LedgerBench, name: string): Promise<number> {
  const [row] = await sql<{ ms: number | null }>(
    "select sum(total_time)::float8 as ms from pg_stat_user_functions where schemaname = $1 and funcname = $2",
    [schema, name],
  );
  return row?.ms ?? Number.NaN;
}
