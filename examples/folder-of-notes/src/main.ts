/**
 * The ledger under a reader of its own: no MCP, no queue, no LangChain. A folder of notes is read, written paragraph by paragraph
 * into a store that is a file, summarised, and revoked by a statement in SQL, as any language with a PostgreSQL driver would.
 * Every step is compared with what is expected; the program exits with 1 if one differs.
 */
import { strict as assert } from "node:assert";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type IndexRef, type Ledger, openLedger, type Session } from "@fenceline/ledger";
import { NotesFolder } from "./notes-folder.js";
import { ParagraphStore } from "./paragraph-store.js";

const reader = "svc:notes";
const alice = ["user:alice", "group:team"];

const home = await mkdtemp(join(tmpdir(), "folder-of-notes-"));
const ledger = await openLedger(`file:${join(home, "ledger")}`);
try {
  await run(ledger);
  console.log("\nEverything as expected.");
} finally {
  await ledger.close();
  await rm(home, { recursive: true, force: true });
}

async function run(ledger: Ledger): Promise<void> {
  const directory = join(home, "notes");
  await mkdir(directory);
  await writeFile(join(directory, "launch.md"), "Launch is on Monday.\n\nThe budget is 100.");
  await writeFile(join(directory, "salaries.md"), "Nobody earns less than 50.");
  const notes = new NotesFolder(directory);
  const store = new ParagraphStore(join(home, "paragraphs.json"));
  const session = await holdSession(ledger);
  const paragraphs = await registerIndexes(ledger);

  const resources = await notes.discover(ledger, session);
  await notes.read(ledger, session, ["launch.md", "salaries.md"]);
  await store.index(ledger, paragraphs.chunks);
  check(
    "two files are read and written, a paragraph each",
    { resources, entries: (await store.entries()).size },
    {
      resources: 2,
      entries: 3,
    },
  );

  await ledger.grant({ source: "notes", reader, audience: "group:team", scope: { prefix: "notes://team/" } });
  check("without a grant nobody sees them; with one, the team does", await visible(ledger, store, alice), [
    "Launch is on Monday.",
    "Nobody earns less than 50.",
    "The budget is 100.",
  ]);

  await summarise(ledger, store, paragraphs);
  check("a summary of both notes is seen by whoever may see both", await visible(ledger, store, alice, "summaries"), [
    "Launch on Monday; pay from 50.",
  ]);

  await writeFile(join(directory, "launch.md"), "Launch is on Monday.\n\nThe budget is 120.");
  const outcomes = await notes.read(ledger, session, ["launch.md"]);
  await store.index(ledger, paragraphs.chunks);
  check(
    "a change is a new version; the summary of the old one is not shown",
    {
      outcomes,
      paragraphs: await visible(ledger, store, alice),
      summaries: await visible(ledger, store, alice, "summaries"),
    },
    {
      outcomes: ["accepted"],
      paragraphs: ["Launch is on Monday.", "Nobody earns less than 50.", "The budget is 120."],
      summaries: [],
    },
  );

  const [revoked] = await ledger.database.query<{ revocation_id: number; state: string }>(
    `select revocation_id, state from fenceline.fenceline_revoke(
       request_id => 'HR-2041', subject => $1, source => 'notes', uri => $2, reason => 'salaries are not for the index')`,
    [reader, NotesFolder.uri("salaries.md")],
  );
  assert(revoked);
  check(
    "a revocation in SQL hides at once, before anything is deleted",
    {
      state: revoked.state,
      visible: await visible(ledger, store, alice),
    },
    { state: "EFFECTIVE", visible: ["Launch is on Monday.", "The budget is 120."] },
  );

  while ((await ledger.advanceRevocation(revoked.revocation_id)) === "more");
  for (const name of ["paragraphs", "summaries"]) await store.purge(ledger, name);
  const receipts = await ledger.purgeReceipts(revoked.revocation_id);
  check(
    "the store holds none of it any more, and receipts say so",
    {
      texts: [...(await store.entries()).values()].sort(),
      receipts: receipts.map(({ store, entries, claim }) => `${store} ${entries} ${claim}`),
      state: (await ledger.revocation(revoked.revocation_id))?.state,
    },
    {
      texts: ["Launch is on Monday.", "The budget is 120."],
      receipts: ["paragraphs 1 absent", "summaries 1 absent"],
      state: "COMPLETE",
    },
  );

  check("what the file says later is read no more", await notes.read(ledger, session, ["salaries.md"]), []);
  const broken = (await ledger.verify()).filter((invariant) => invariant.broken > 0);
  check("every invariant holds", broken, []);
}

async function holdSession(ledger: Ledger): Promise<Session> {
  await ledger.registerSource({ name: "notes" });
  const opened = await ledger.openSession({ source: "notes", reader, owner: "example", leaseMs: 60_000 });
  assert(opened.outcome === "opened");
  return opened.session;
}

interface Indexes {
  /** Paragraphs: every accepted version becomes due in it. */
  readonly chunks: IndexRef;
  /** Summaries: derived entries alone. */
  readonly summaries: IndexRef;
}

async function registerIndexes(ledger: Ledger): Promise<Indexes> {
  const declared = { version: 1, embeddings: "none", configurationDigest: Buffer.from("paragraphs") };
  for (const name of ["paragraphs", "summaries"]) await ledger.registerStore({ name, kind: "json-file" });
  return {
    chunks: await ledger.registerIndex({ ...declared, name: "paragraphs", store: "paragraphs" }),
    summaries: await ledger.registerIndex({ ...declared, name: "summaries", store: "summaries", takes: "derived" }),
  };
}

/** A summary of two notes has both as ingredients: when one goes, so does it (L1). */
async function summarise(ledger: Ledger, store: ParagraphStore, { summaries }: Indexes): Promise<void> {
  const text = "Launch on Monday; pay from 50.";
  const parents = (
    await Promise.all(["launch.md", "salaries.md"].map((file) => ledger.trace({ uri: NotesFolder.uri(file) })))
  )
    .flatMap((trace) => trace.versions.slice(0, 1))
    .map(({ lineageId }) => ({ as: "ingredient", of: { lineageId } }) as const);
  const [recorded] = await ledger.recordDerived(
    summaries,
    [{ kind: "summary", parents, digests: [ledger.digestChunk(text)] }],
    { leaseMs: 5_000 },
  );
  assert(recorded?.outcome === "recorded");
  await store.write(recorded.entryIds.map((id) => [id, text]));
  await ledger.confirmDerived([recorded.groupId]);
}

/** What of the store this asker may see, in the order of the texts (G2). */
async function visible(
  ledger: Ledger,
  store: ParagraphStore,
  asker: readonly string[],
  index = "paragraphs",
): Promise<string[]> {
  const entries = await store.entries();
  const shown = await ledger.visibleEntries({ index, entryIds: [...entries.keys()], asker });
  return shown.map(({ entryId }) => entries.get(entryId) ?? "").sort();
}

function check(name: string, seen: unknown, expected: unknown): void {
  assert.deepEqual(seen, expected, `${name}: ${JSON.stringify(seen)} instead of ${JSON.stringify(expected)}`);
  console.log(`✓ ${name}`);
}
