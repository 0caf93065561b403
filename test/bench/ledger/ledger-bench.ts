import { createHash, randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { assert, defaultReadTiming, type Ledger, openLedger, type ReadTiming, type Session } from "@fenceline/ledger";
import pg from "pg";
import type { Platform } from "../measure.js";
import type { Variant } from "../rounds.js";

/** Of the reads that a bench issues: longer than it runs. */
export const READ_LEASE_MS = 3_600_000;

/** As by default, a resource is read again later than the lease of its read ends; nothing is, while a bench runs. */
const readTiming: ReadTiming = { ...defaultReadTiming, polledIntervalMs: 2 * READ_LEASE_MS };

const POSTGRES = "FENCELINE_TEST_POSTGRES_URL";

/** A ledger of its own in an own schema, and plain connections to the same database for the raw operations. */
export interface LedgerBench {
  readonly platform: Platform;
  readonly ledger: Ledger;
  readonly schema: string;
  /** A plain `pg` connection that is closed with the bench. */
  connect(): Promise<pg.Client>;
  /** The same ledger over one connection of its own: what another process would hold. Closed with the bench. */
  anotherLedger(options?: string): Promise<Ledger>;
  /** Runs a statement; `fenceline.` in it stands for the bench's schema. */
  sql<Row>(text: string, values?: readonly unknown[]): Promise<Row[]>;
}

export function missing(platform: Platform): string | undefined {
  return platform === "postgres" && !process.env[POSTGRES] ? `${POSTGRES} is not set` : undefined;
}

/** Opens a bench, and drops its schema (its directory) afterwards. */
export async function withLedgerBench<Result>(
  platform: Platform,
  use: (bench: LedgerBench) => Promise<Result>,
): Promise<Result> {
  const closers: (() => Promise<unknown>)[] = [];
  const onClose = (close: () => Promise<unknown>) => closers.unshift(close);
  try {
    return await use(await openBench(platform, onClose));
  } finally {
    for (const close of closers) await close();
  }
}

async function openBench(platform: Platform, onClose: (close: () => Promise<unknown>) => void): Promise<LedgerBench> {
  let address = process.env[POSTGRES] ?? "";
  if (platform === "embedded") {
    const directory = await mkdtemp(join(tmpdir(), "fenceline-bench-"));
    onClose(() => rm(directory, { recursive: true, force: true }));
    address = `file:${directory}`;
  }
  const schema = `fenceline_bench_${randomUUID().slice(0, 8)}`;
  const ledger = await openLedger(address, { schema, readTiming });
  onClose(() => ledger.close());
  // An acceptance raises the outbox of an index, as it does wherever the versions go somewhere.
  await ledger.registerStore({ name: "bench", kind: "bench" });
  const index = { name: "bench", version: 1, store: "bench", embeddings: "none", configurationDigest: digest("bench") };
  await ledger.registerIndex(index);
  const { database } = ledger;
  onClose(() => database.query(`drop schema if exists ${schema} cascade`));
  const connect = async () => {
    const client = new pg.Client({ ...database.connectionOptions, application_name: "fenceline-bench" });
    await client.connect();
    onClose(() => client.end());
    return client;
  };
  return {
    platform,
    ledger,
    schema,
    connect,
    async anotherLedger(more = "") {
      if (platform === "postgres" && more === "") {
        const other = await openLedger(address, { schema, readTiming, maxConnections: 1 });
        onClose(() => other.close());
        return other;
      }
      // A caller's own pool is given no settings, so it brings those that the ledger gives its own.
      const options =
        platform === "postgres" ? { options: `-c plan_cache_mode=force_generic_plan -c jit=off ${more}` } : {};
      const pool = new pg.Pool({ ...database.connectionOptions, ...options, max: 1 });
      onClose(() => pool.end());
      const other = await openLedger(pool, { schema, readTiming });
      onClose(() => other.close());
      return other;
    },
    sql: (text, values) => database.query(text.replaceAll("fenceline.", `${schema}.`), values),
  };
}

const RAW_ROWS = 10_000;

/**
 * The raw operation: one `UPDATE … RETURNING` of a random row by its key, as a prepared statement on a plain connection.
 * (PGlite is one session for all connections, in which named statements collide; there it is unnamed.)
 */
export async function rawUpdate(bench: LedgerBench, concurrency = 1): Promise<Variant> {
  await bench.sql(`create table if not exists fenceline.raw_row (id bigint primary key, a bigint not null, b bigint not null)
    with (fillfactor = 50)`);
  await bench.sql(
    `insert into fenceline.raw_row select n, 0, 0 from generate_series(1, $1::int) n on conflict do nothing`,
    [RAW_ROWS],
  );
  const clients = await Promise.all(Array.from({ length: concurrency }, () => bench.connect()));
  const text = `update ${bench.schema}.raw_row set b = b + 1 where id = $1 returning b`;
  const named = bench.platform === "postgres" ? { name: "raw_update" } : {};
  return {
    concurrency,
    async call(worker) {
      await clients[worker]?.query({ ...named, text, values: [1 + Math.floor(Math.random() * RAW_ROWS)] });
      return 1;
    },
  };
}

/** A source of `count` polled resources under one reader, discovered and activated by the ledger's own calls. */
export async function activeSource(
  { ledger, sql, platform, schema }: LedgerBench,
  count: number,
): Promise<{ session: Session; uris: string[] }> {
  const source = `source-${randomUUID()}`;
  await ledger.registerSource({ name: source });
  const opened = await ledger.openSession({ source, reader: "svc:rag", owner: "bench", leaseMs: 86_400_000 });
  assert(opened.outcome === "opened", "A new source has no other holder.");
  const { session } = opened;
  const uris = Array.from(
    { length: count },
    (_, index) => `mcp://docs.example.test/space-${Math.floor(index / 1000)}/page-${index}.md`,
  );
  const [first, second] = [await scan(ledger, session, uris), await scan(ledger, session, uris)];
  await ledger.publishCatalog(session, { first, second });
  for (let afterId = 0; ; ) {
    const page = await ledger.subscriptionsToOpen(session, { limit: 1000, afterId });
    if (page.length === 0) break;
    const polled = page.map(({ subscriptionId }) => subscriptionId);
    await ledger.activateSubscriptions(session, { shard: 0, pushed: [], polled });
    afterId = polled.at(-1) ?? afterId;
  }
  if (platform === "postgres") {
    for (const table of ["subscription", "resource"]) await sql(`vacuum analyze ${schema}.${table}`);
  }
  await ledger.database.analyze();
  return { session, uris };
}

async function scan(ledger: Ledger, session: Session, uris: readonly string[]): Promise<number> {
  const begun = await ledger.beginScan(session);
  assert(typeof begun !== "string", "Nobody takes the session.");
  for (let start = 0; start < uris.length; start += 1000) {
    const entries = uris.slice(start, start + 1000).map((uri) => ({ uri, descriptorDigest: digest(uri) }));
    await ledger.recordScanPage(session, begun.scanId, { cursorDigest: digest(`cursor ${start}`), entries });
  }
  await ledger.finishScan(session, begun.scanId, { complete: true });
  return begun.scanId;
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
