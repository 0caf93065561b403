import { createHash, randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { copyDatabase, describeWithPostgres } from "@fenceline/test-services";
import { afterAll, beforeAll, describe, expect } from "vitest";
import { type CompletenessLedger, completenessLedger } from "#src/completeness.js";
import { type Database, openDatabase, type Queryable } from "#src/database/database.js";
import { migrate } from "#src/database/migrations.js";
import { queryableInSchema } from "#src/ledger-schema.js";
import { defaultReadTiming, type ReadTiming } from "#src/read-timing.js";
import { type IssuedRead, type ReadAnswer, type ReadLedger, readLedger } from "#src/reads.js";
import { hashPrefix } from "#src/resource-rows.js";
import { type FinishedScan, type ScanLedger, scanLedger } from "#src/scans.js";
import { type Session, type SessionLedger, sessionLedger } from "#src/sessions.js";
import { type SubscriptionLedger, subscriptionLedger } from "#src/subscriptions.js";
import { denialRanges, denialTexts, type UriScope } from "#src/uri-scope.js";

/** Without jitter, so that a test can say when something is due. */
export const exactTiming: ReadTiming = { ...defaultReadTiming, jitter: 0 };

export interface LedgerUnderTest extends SessionLedger, ScanLedger, CompletenessLedger, SubscriptionLedger, ReadLedger {
  readonly database: Database;
  readonly schema: string;
  /** Statements name the schema `fenceline`. */
  readonly sql: Queryable["query"];
  /** Moves the ledger's clock. */
  advanceClock(ms: number): Promise<void>;
}

/** The databases of PGlite are a suite's own, so that their schema can have one name. */
const PGLITE_SCHEMA = "fenceline_test";

/** Runs a suite over PGlite, and over PostgreSQL where its address is set. */
export function describeLedger(name: string, body: (ledger: LedgerUnderTest) => void): void {
  describe(`${name} (PGlite)`, () => {
    let directory: string | undefined;
    // Hooks end in reverse order: the directory goes after the database was closed.
    afterAll(async () => {
      if (directory) await rm(directory, { recursive: true, force: true });
    });
    runSuite(body, PGLITE_SCHEMA, async () => {
      directory = await mkdtemp(join(tmpdir(), "fenceline-ledger-"));
      await copyDatabase(PGLITE_SCHEMA, openMigrated, directory);
      return `file:${directory}`;
    });
  });
  describeLedgerOnPostgres(name, body);
}

/** For what needs several real connections. */
export function describeLedgerOnPostgres(name: string, body: (ledger: LedgerUnderTest) => void): void {
  describeWithPostgres(`${name} (PostgreSQL)`, (url) =>
    runSuite(body, `fenceline_test_${randomUUID().slice(0, 8)}`, async () => url),
  );
}

async function openMigrated(address: string): Promise<Database> {
  const database = await openDatabase(address);
  await migrate(database, { schema: PGLITE_SCHEMA });
  return database;
}

function runSuite(body: (ledger: LedgerUnderTest) => void, schema: string, address: () => Promise<string>): void {
  let opened: LedgerUnderTest | undefined;
  // Tests are declared before anything is open; each member is looked up when it is called.
  const ledger = new Proxy({} as LedgerUnderTest, {
    get: (_, member) => Reflect.get(opened as LedgerUnderTest, member),
  });
  beforeAll(async () => {
    opened = await openLedgerUnderTest(await address(), schema);
  });
  afterAll(async () => {
    await opened?.database.query(`drop schema if exists ${schema} cascade`);
    await opened?.database.close();
  });
  body(ledger);
}

async function openLedgerUnderTest(address: string, schema: string): Promise<LedgerUnderTest> {
  const database = await openDatabase(address);
  await migrate(database, { schema });
  const connection = queryableInSchema(database, schema);
  await connection.query("create table fenceline.test_clock (at timestamptz not null)");
  await connection.query("insert into fenceline.test_clock values ('2026-01-01T00:00:00Z')");
  await connection.query(
    "create or replace function fenceline.now() returns timestamptz language sql volatile as 'select at from fenceline.test_clock'",
  );
  await connection.query("insert into fenceline.store (name, kind) values ('store', 'test')");
  await connection.query(
    `insert into fenceline.index (name, version, store_id, embeddings, configuration_digest)
     select n, 1, store_id, 'test', '\\x00' from fenceline.store, unnest(array['main', 'other']) as n`,
  );
  return {
    database,
    schema,
    ...sessionLedger(connection),
    ...scanLedger(connection, exactTiming),
    ...completenessLedger(connection, exactTiming),
    ...subscriptionLedger(connection, exactTiming),
    ...readLedger(connection, exactTiming),
    sql: (text, values) => connection.query(text, values),
    async advanceClock(ms) {
      await connection.query("update fenceline.test_clock set at = at + make_interval(secs => $1 / 1000.0)", [ms]);
    },
  };
}

/** The ledger's areas over a connection of one's own, such as a transaction. */
export function areasOver(
  connection: Queryable,
  schema: string,
): SubscriptionLedger & ReadLedger & ScanLedger & CompletenessLedger {
  const inSchema = queryableInSchema(connection, schema);
  return {
    ...scanLedger(inSchema, exactTiming),
    ...completenessLedger(inSchema, exactTiming),
    ...subscriptionLedger(inSchema, exactTiming),
    ...readLedger(inSchema, exactTiming),
  };
}

/** Long enough for tests that move the clock; the sessions of those about leases have shorter ones. */
export const LEASE_MS = 86_400_000;
export const READ_LEASE_MS = 30_000;

/** A session of a source and reader that no other test knows. */
export async function openSession(
  ledger: SessionLedger,
  names: { source?: string; reader?: string; owner?: string } = {},
): Promise<Session> {
  const source = names.source ?? `source-${randomUUID()}`;
  await ledger.registerSource({ name: source });
  const opened = await ledger.openSession({
    source,
    reader: names.reader ?? "svc:rag",
    owner: names.owner ?? "worker-1",
    leaseMs: LEASE_MS,
  });
  if (opened.outcome !== "opened") return expect.fail(`the session is ${opened.outcome}`);
  return opened.session;
}

/** One complete scan that lists these URIs. */
export async function scan(
  ledger: ScanLedger,
  session: Session,
  uris: readonly string[],
  pageSize = 100,
): Promise<number> {
  const begun = await ledger.beginScan(session);
  if (typeof begun === "string") return expect.fail(begun);
  for (let start = 0; start === 0 || start < uris.length; start += pageSize) {
    await ledger.recordScanPage(session, begun.scanId, {
      cursorDigest: digest(`cursor ${start}`),
      entries: uris
        .slice(start, start + pageSize)
        .map((uri) => ({ uri, descriptorDigest: digest(`descriptor ${uri}`) })),
    });
  }
  expect(await ledger.finishScan(session, begun.scanId, { complete: true })).toBe("complete");
  return begun.scanId;
}

/** The session's server declares resources and binds a snapshot id to every page of a list (S3). */
export async function negotiateSnapshots(ledger: SessionLedger, session: Session): Promise<void> {
  await ledger.recordCapabilities(session, {
    era: "modern",
    protocolVersion: "2026-07-28",
    resources: true,
    subscribe: false,
    listChanged: true,
    snapshotId: true,
  });
}

/** One scan of these pages, each with its URIs and the snapshot id it binds, and what the ledger made of it. */
export async function scanPages(
  ledger: ScanLedger,
  session: Session,
  pages: readonly { readonly uris: readonly string[]; readonly id?: string | undefined }[],
): Promise<{ scanId: number; outcome: FinishedScan }> {
  const begun = await ledger.beginScan(session);
  if (typeof begun === "string") return expect.fail(begun);
  for (const [number, { uris, id }] of pages.entries()) {
    await ledger.recordScanPage(session, begun.scanId, {
      cursorDigest: digest(`cursor ${number}`),
      entries: uris.map((uri) => ({ uri, descriptorDigest: digest(`descriptor ${uri}`) })),
      ...(id !== undefined && { snapshotIdDigest: digest(id) }),
    });
  }
  return { scanId: begun.scanId, outcome: await ledger.finishScan(session, begun.scanId, { complete: true }) };
}

/** A proven snapshot of these URIs under a new id, published. */
export async function publishProven(ledger: ScanLedger, session: Session, uris: readonly string[]) {
  const { scanId } = await scanPages(ledger, session, [{ uris, id: randomUUID() }]);
  const published = await ledger.publishCatalog(session, { first: scanId, second: scanId });
  if (published.outcome !== "published" || published.verdict !== "SNAPSHOT_PROVEN" || !published.snapshot) {
    return expect.fail(`the snapshot is ${JSON.stringify(published)}`);
  }
  return { ...published, scanId, snapshot: published.snapshot };
}

/** Two equal scans, published. */
export async function publish(ledger: ScanLedger, session: Session, uris: readonly string[]) {
  const first = await scan(ledger, session, uris);
  const second = await scan(ledger, session, uris);
  return ledger.publishCatalog(session, { first, second });
}

/** Publishes these URIs and makes them pushed through shard 0, or polled. */
export async function activate(
  ledger: ScanLedger & SubscriptionLedger,
  session: Session,
  uris: readonly string[],
  mode: "pushed" | "polled" = "pushed",
): Promise<number[]> {
  await publish(ledger, session, uris);
  if (mode === "pushed") await ledger.openStream(session, 0);
  const ids: number[] = [];
  for (;;) {
    const page = await ledger.subscriptionsToOpen(session, { limit: 100, afterId: ids.at(-1) ?? 0 });
    if (page.length === 0) break;
    ids.push(...page.map((ref) => ref.subscriptionId));
  }
  await ledger.activateSubscriptions(session, {
    shard: 0,
    pushed: mode === "pushed" ? ids : [],
    polled: mode === "polled" ? ids : [],
  });
  return ids;
}

export async function issueOne(ledger: ReadLedger, session: Session): Promise<IssuedRead> {
  const reads = await ledger.issueDueReads(session, { limit: 100, leaseMs: READ_LEASE_MS });
  expect(reads).toHaveLength(1);
  return reads[0] as IssuedRead;
}

export function answer(read: IssuedRead, text: string): ReadAnswer {
  const { subscriptionId, ordinal, requestId, uri } = read;
  return { subscriptionId, ordinal, requestId, digest: digest(text), mimeType: "text/plain", parts: [{ uri, text }] };
}

export async function accept(ledger: ReadLedger, session: Session, read: IssuedRead, text: string) {
  const [accepted] = await ledger.acceptResourceVersions(session, [answer(read, text)]);
  return accepted?.outcome;
}

/** Reads whatever is due, once. */
export async function readDue(ledger: ReadLedger, session: Session, text: (uri: string) => string): Promise<number> {
  const reads = await ledger.issueDueReads(session, { limit: 1_000, leaseMs: READ_LEASE_MS });
  if (reads.length > 0)
    await ledger.acceptResourceVersions(
      session,
      reads.map((read) => answer(read, text(read.uri))),
    );
  return reads.length;
}

export function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/** The kinds of the receipts of a scope, in order; of one subscription where it is given. */
export async function receipts(ledger: LedgerUnderTest, session: Session, subscriptionId?: number): Promise<string[]> {
  const rows = await ledger.sql<{ kind: string }>(
    `select kind from fenceline.receipt
     where scope_id = $1 and ($2::bigint is null or subscription_id = $2) order by receipt_id`,
    [session.scopeId, subscriptionId ?? null],
  );
  return rows.map((row) => row.kind);
}

export interface SubscriptionRow {
  uri: string;
  lifecycle: string;
  generation: number;
  pushed: boolean;
  issued_ordinal: number;
  accepted_ordinal: number;
  settled_ordinal: number;
  version_ordinal: number | null;
  notification_number: number;
  seen_notification: number;
  verified_at: Date | null;
  due_in_ms: number | null;
  hidden_because: string | null;
  close_ordinal: number | null;
  failures: number;
}

export async function subscriptionRow(ledger: LedgerUnderTest, subscriptionId: number): Promise<SubscriptionRow> {
  const [row] = await ledger.sql<SubscriptionRow>(
    `select *, (extract(epoch from due_at - fenceline.now()) * 1000)::int as due_in_ms
     from fenceline.subscription where subscription_id = $1`,
    [subscriptionId],
  );
  return row as SubscriptionRow;
}

/** A standing revocation of the session's reader as the tables hold it, without the fence and the batches that follow. */
export async function insertRevocation(sql: Queryable["query"], session: Session, scope: UriScope): Promise<void> {
  const { key, match } = denialRanges(scope);
  const [revocation] = await sql<{ revocation_id: number }>(
    `insert into fenceline.revocation (request_id, source_id, subject_id, role, scope_text, match_from, match_to, key_from,
       key_to, reason, requested_by, policy_epoch)
     select gen_random_uuid()::text, source_id, subject_id, 'both', '', $2, $3, $4, $5, 'test', 'test', policy_epoch + 1
     from fenceline.policy_scope where scope_id = $1 returning revocation_id`,
    [session.scopeId, match.from, match.to, key.from, key.to],
  );
  await sql(
    `insert into fenceline.revocation_cover (hash, subject_id, revocation_id, as_reader, as_audience)
     select h::bigint, subject_id, $2, true, true from fenceline.policy_scope, unnest($3::text[]) h where scope_id = $1`,
    [
      session.scopeId,
      revocation?.revocation_id,
      denialTexts(scope).map((text) => String(hashPrefix(session.sourceId, text))),
    ],
  );
  await sql(
    `update fenceline.policy_scope
     set standing_revocations = standing_revocations + 1, policy_epoch = policy_epoch + 1 where scope_id = $1`,
    [session.scopeId],
  );
}
