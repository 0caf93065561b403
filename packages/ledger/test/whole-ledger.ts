import { randomUUID } from "node:crypto";
import { beforeAll, expect } from "vitest";
import { type AuditLedger, auditLedger } from "#src/audit.js";
import type { Queryable } from "#src/database/database.js";
import type { Derivation } from "#src/derivations.js";
import { type GrantLedger, grantLedger } from "#src/grants.js";
import { readIdentity } from "#src/identity.js";
import type { IndexWork } from "#src/index-work.js";
import type { IndexRef } from "#src/indexes.js";
import type { Ledger } from "#src/ledger.js";
import { queryableInSchema } from "#src/ledger-schema.js";
import { type ConfirmOutcome, type LineageLedger, lineageLedger } from "#src/lineage.js";
import type { ReadLedger } from "#src/reads.js";
import { type RecordLedger, recordLedger } from "#src/record-ledger.js";
import { type RevocationLedger, revocationLedger } from "#src/revocations.js";
import type { Session } from "#src/sessions.js";
import { type VisibilityLedger, visibilityLedger } from "#src/visibility.js";
import {
  activate,
  describeLedger,
  describeLedgerOnPostgres,
  type LedgerUnderTest,
  openSession,
  READ_LEASE_MS,
} from "./ledger-under-test.js";

type LineageAreas = LineageLedger & VisibilityLedger & GrantLedger & RevocationLedger & AuditLedger & RecordLedger;

/** Every area of the ledger, over a clock that the test moves. */
export type WholeLedger = LedgerUnderTest & LineageAreas;

/** Runs a suite over PGlite, and over PostgreSQL where its address is set. */
export function describeWholeLedger(name: string, body: (ledger: WholeLedger) => void): void {
  describeLedger(name, (ledger) => withLineage(ledger, body));
}

/** For what needs several real connections. */
export function describeWholeLedgerOnPostgres(name: string, body: (ledger: WholeLedger) => void): void {
  describeLedgerOnPostgres(name, (ledger) => withLineage(ledger, body));
}

function withLineage(ledger: LedgerUnderTest, body: (ledger: WholeLedger) => void): void {
  let areas: LineageAreas | undefined;
  beforeAll(async () => {
    areas = await lineageAreasOver(ledger.database, ledger.schema);
  });
  body(
    new Proxy({} as WholeLedger, {
      get: (_, member) => Reflect.get(areas && member in areas ? areas : ledger, member),
    }),
  );
}

/** A ledger as users open it, with the helpers' `sql`; its clock is the real one. */
export function wholeLedgerOf(ledger: Ledger): WholeLedger & Ledger {
  const { query } = queryableInSchema(ledger.database, ledger.schema);
  return { ...ledger, sql: query, advanceClock: () => expect.fail("the clock is the real one") };
}

/** The areas over a connection of one's own, such as a transaction. */
export async function lineageAreasOver(connection: Queryable, schema: string): Promise<LineageAreas> {
  const queryable = queryableInSchema(connection, schema);
  const identity = await readIdentity(queryable);
  return {
    ...lineageLedger(queryable, identity),
    ...visibilityLedger(queryable, identity),
    ...grantLedger(queryable),
    ...revocationLedger(queryable, identity),
    ...auditLedger(queryable, identity),
    ...recordLedger(queryable, identity),
  };
}

/** An index over a store that a test can look into, break and forget writes of. */
export interface IndexUnderTest {
  readonly ref: IndexRef;
  /** What the store holds: text by entry id. */
  readonly entries: Map<string, string>;
}

export async function createIndex(ledger: LineageLedger, name = `index-${randomUUID()}`): Promise<IndexUnderTest> {
  const store = `store-${randomUUID()}`;
  await ledger.registerStore({ name: store, kind: "test" });
  const ref = await ledger.registerIndex({
    name,
    version: 1,
    store,
    embeddings: "test",
    configurationDigest: Buffer.from("configuration"),
  });
  return { ref, entries: new Map() };
}

/** An index that no version becomes due in: of summaries, answers, cached embeddings. */
export async function createDerivedIndex(
  ledger: LineageLedger,
  name = `derived-${randomUUID()}`,
): Promise<IndexUnderTest> {
  const store = `store-${randomUUID()}`;
  await ledger.registerStore({ name: store, kind: "test" });
  const declared = { name, version: 1, store, embeddings: "test", configurationDigest: Buffer.from("configuration") };
  return { ref: await ledger.registerIndex({ ...declared, takes: "derived" }), entries: new Map() };
}

/** Records one derived entry, writes it to the store and confirms it; its id. */
export async function derive(
  ledger: LineageLedger,
  { ref, entries }: IndexUnderTest,
  derivation: Derivation,
  text: string,
): Promise<string> {
  const [recorded] = await ledger.recordDerived(ref, [derivation], { leaseMs: 5_000 });
  if (recorded?.outcome !== "recorded") return expect.fail(`the derivation is ${recorded?.outcome}`);
  const [id] = recorded.entryIds as [string];
  entries.set(id, text);
  expect(await ledger.confirmDerived([recorded.groupId])).toEqual(["confirmed"]);
  return id;
}

/** A source that is read under one reader, every URI active. */
export async function activeSource(
  ledger: WholeLedger,
  uris: readonly string[],
  names: { source?: string; reader?: string; mode?: "pushed" | "polled" } = {},
): Promise<{ session: Session; source: string; ids: number[] }> {
  const session = await openSession(ledger, names);
  const ids = await activate(ledger, session, uris, names.mode ?? "pushed");
  return { session, source: session.source, ids };
}

/** What a server answers with: text of a resource, or texts of its parts by URI (a directory). */
export type Contents = (uri: string) => string | Readonly<Record<string, string>>;

/** Reads these URIs, whether due or not, and accepts what `contents` says. */
export async function readNow(
  ledger: ReadLedger,
  session: Session,
  uris: readonly string[],
  contents: Contents,
): Promise<string[]> {
  const reads = await ledger.issueReads(session, { uris, reason: "demand", leaseMs: READ_LEASE_MS });
  expect(reads).toHaveLength(uris.length);
  const answers = reads.map(({ subscriptionId, ordinal, requestId, uri }) => {
    const content = contents(uri);
    const parts =
      typeof content === "string"
        ? [{ uri, text: content }]
        : Object.entries(content).map(([part, text]) => ({ uri: part, text }));
    return { subscriptionId, ordinal, requestId, digest: digestOf(JSON.stringify(content)), parts };
  });
  return (await ledger.acceptResourceVersions(session, answers)).map(({ outcome }) => outcome);
}

function digestOf(text: string): Buffer {
  return Buffer.from(text.padEnd(32).slice(0, 32));
}

/** Claims what waits in the index for this source; what other tests left there is let go. */
export async function claimWork(
  ledger: WholeLedger,
  { ref }: IndexUnderTest,
  source: string,
  leaseMs = 10_000,
): Promise<IndexWork[]> {
  const work = await ledger.claimIndexWork(ref, { limit: 10_000, leaseMs });
  for (const other of work) if (other.source !== source) await ledger.releaseIndexWork(ref, other);
  return work.filter((each) => each.source === source);
}

export interface PlannedVersion {
  readonly work: IndexWork;
  readonly written: Awaited<ReturnType<LineageLedger["recordIntents"]>>;
  readonly reused: string[];
}

/** Plans a version line by line: lines already present are reused, the others intended and written to the store. */
export async function writeVersion(
  ledger: LineageLedger,
  { ref, entries }: IndexUnderTest,
  work: IndexWork,
): Promise<PlannedVersion> {
  const reused: string[] = [];
  const intents: { work: IndexWork; partId: number; chunkDigests: string[]; texts: string[] }[] = [];
  for (const part of work.parts) {
    const free = work.present.filter(({ partId }) => partId === part.partId);
    const added: string[] = [];
    for (const line of (part.text ?? "").split("\n").filter((text) => text !== "")) {
      const position = free.findIndex(({ chunkDigest }) => chunkDigest === ledger.digestChunk(line));
      if (position < 0) added.push(line);
      else reused.push(...free.splice(position, 1).map(({ entryId }) => entryId));
    }
    if (added.length > 0) {
      const chunkDigests = added.map((line) => ledger.digestChunk(line));
      intents.push({ work, partId: part.partId, chunkDigests, texts: added });
    }
  }
  const written = await ledger.recordIntents(ref, intents, { writerLeaseMs: 5_000 });
  for (const [position, group] of written.entries()) {
    for (const [line, id] of group.entryIds.entries()) entries.set(id, intents[position]?.texts[line] as string);
  }
  return { work, written, reused };
}

/** Indexes everything that waits for this source, and answers with what became of each URI. */
export async function indexDue(
  ledger: WholeLedger,
  index: IndexUnderTest,
  source: string,
): Promise<Record<string, ConfirmOutcome>> {
  const planned: PlannedVersion[] = [];
  for (const work of await claimWork(ledger, index, source)) planned.push(await writeVersion(ledger, index, work));
  const answers = await ledger.confirmVersions(index.ref, planned);
  return Object.fromEntries(
    answers.map(({ outcome }, position) => [planned[position]?.work.uri as string, outcome] as const),
  );
}

/** Removes from the store whatever the ledger says must go; the number of entries removed. */
export async function purge(ledger: WholeLedger, { ref, entries }: IndexUnderTest): Promise<number> {
  let removed = 0;
  for (;;) {
    const claims = await ledger.claimPurge({ store: ref.store, limit: 100, leaseMs: 10_000 });
    if (claims.length === 0) return removed;
    const reappeared = claims
      .filter((claim) => claim.sweptBefore)
      .flatMap((claim) => claim.entries.map(({ entryId }) => entryId).filter((id) => entries.has(id)));
    for (const { entryId } of claims.flatMap((claim) => claim.entries)) if (entries.delete(entryId)) removed += 1;
    await ledger.confirmPurge(ref.store, claims, { claim: "absent", reappeared });
  }
}

/** Closes and marks until nothing of the revocation is left to do in the ledger itself, and as the holders of sessions do. */
export async function advance(ledger: WholeLedger, revocationId: number): Promise<void> {
  while ((await ledger.advanceRevocation(revocationId, { limit: 2 })) === "more");
  await unsubscribeClosed(ledger);
}

/** What holders do when a revocation has closed something: they unsubscribe it at the server, which acknowledges. */
export async function unsubscribeClosed(ledger: WholeLedger): Promise<void> {
  for (const session of await standingSessions(ledger)) {
    const refs = await ledger.subscriptionsToSettle(session, { limit: 10_000 });
    await ledger.settleUnsubscribe(
      session,
      refs.map(({ subscriptionId }) => subscriptionId),
      "acknowledged",
    );
  }
}

function standingSessions(ledger: WholeLedger): Promise<Session[]> {
  return ledger.sql<Session & Record<string, unknown>>(
    `select x.session_id as "sessionId", x.scope_id as "scopeId", p.source_id as "sourceId", src.name as source,
       reader.name as reader, x.generation, x.lease_ms as "leaseMs"
     from fenceline.session x
     join fenceline.policy_scope p on p.scope_id = x.scope_id and p.session_generation = x.generation
     join fenceline.source src using (source_id) join fenceline.subject reader using (subject_id)
     where x.ended_at is null and exists (
       select 1 from fenceline.subscription s
       where s.scope_id = x.scope_id and s.lifecycle in ('UNSUBSCRIBING', 'UNSUBSCRIBE_UNKNOWN'))`,
  );
}

/** The texts of the store's entries that an asker sees, sorted. */
export async function seen(
  ledger: WholeLedger,
  { ref, entries }: IndexUnderTest,
  asker: readonly string[],
): Promise<string[]> {
  const visible = await ledger.visibleEntries({ index: ref.name, entryIds: [...entries.keys()], asker });
  return visible.map(({ entryId }) => entries.get(entryId) as string).sort();
}

/** The invariants that do not hold, by name. */
export async function brokenInvariants(ledger: AuditLedger): Promise<string[]> {
  return (await ledger.verify()).filter(({ broken }) => broken > 0).map(({ name }) => name);
}
