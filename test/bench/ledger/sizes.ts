import type { Measure } from "../measure.js";
import { assertAccepted, IssuedReads } from "./issued-reads.js";
import { activeSource, type LedgerBench } from "./ledger-bench.js";

const RESOURCES = 5_000;
const VERSIONS = 4;
const TABLES = ["resource_version", "read", "receipt"];

/** What a version leaves in the ledger for good, without its body, which the next one replaces. */
export const bytesPerVersion: Measure<LedgerBench> = {
  name: "bytes per version: its row, its read and its receipts, with indexes",
  unit: "bytes",
  async run(bench) {
    const { session, uris } = await activeSource(bench, RESOURCES);
    const reads = new IssuedReads(bench.ledger, session, uris);
    const before = await bytesOf(bench, TABLES);
    for (let version = 0; version < VERSIONS; version++) {
      await reads.stockUp();
      for (;;) {
        const answers = reads.take(500);
        if (answers.length === 0) break;
        assertAccepted(await bench.ledger.acceptResourceVersions(session, answers), answers.length);
      }
    }
    return ((await bytesOf(bench, TABLES)) - before) / (RESOURCES * VERSIONS);
  },
};

/** Of tables of the ledger, with their indexes. */
export async function bytesOf({ sql }: LedgerBench, tables: readonly string[]): Promise<number> {
  const [row] = await sql<{ bytes: number }>(
    `select sum(pg_total_relation_size('fenceline.' || t))::bigint as bytes
     from unnest($1::text[]) t`,
    [tables],
  );
  return row?.bytes ?? Number.NaN;
}
