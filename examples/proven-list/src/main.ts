/**
 * Ingests a list that binds snapshot ids: one walk proves it, and what the next proof lacks is removed at once, without a second
 * look (S3, S6). Every step is compared with what is expected; the program exits with 1 if one differs.
 */
import { strict as assert } from "node:assert";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig, openIndex, startWorkers } from "@fenceline/connector-mcp";
import { type Ledger, openLedger } from "@fenceline/ledger";
import { pino } from "pino";

const home = await mkdtemp(join(tmpdir(), "proven-list-"));
const ledger = await openLedger(`file:${join(home, "ledger")}`);
try {
  await run(ledger);
  console.log("\nEverything as expected.");
} finally {
  await ledger.close();
  await rm(home, { recursive: true, force: true });
}

async function run(ledger: Ledger): Promise<void> {
  check("one walk of three pages proves the list", await ingest(ledger, []), {
    verdict: "SNAPSHOT_PROVEN",
    resources: 25,
    problems: [],
  });
  check("its articles can be asked for", await find(ledger, "article 7"), true);

  const withdraw = { tool: "withdraw", arguments: { uri: "article://7" } };
  check("a list without one of them is proven as well", await ingest(ledger, [withdraw]), {
    verdict: "SNAPSHOT_PROVEN",
    resources: 24,
    problems: ["article://7 read_not_found"],
  });
  check("and that one is gone", await find(ledger, "article 7"), false);
}

function configWith(afterConnect: { tool: string; arguments: Record<string, unknown> }[]) {
  const args = [fileURLToPath(new URL("server.js", import.meta.url))];
  return defineConfig({
    mcpServers: { articles: { command: process.execPath, args, reader: "svc:rag", afterConnect } },
  });
}

/** Scans, reads and indexes once, with a server of its own. */
async function ingest(ledger: Ledger, afterConnect: Parameters<typeof configWith>[0]) {
  const config = configWith(afterConnect);
  const pool = await startWorkers({ ledger, config, mode: "once", logger: pino({ level: "silent" }) });
  try {
    assert.equal(await pool.idle({ timeoutMs: 60_000 }), "idle");
    const [source] = pool.stats().sources;
    return { ...source?.scan, problems: source?.problems.map(({ uri, code }) => `${uri} ${code}`) };
  } finally {
    await pool.close();
  }
}

async function find(ledger: Ledger, question: string): Promise<boolean> {
  const index = await openIndex({ ledger, config: configWith([]) });
  try {
    const documents = await index.asRetriever({ k: 25 }).invoke(question, { configurable: { asker: ["svc:rag"] } });
    return documents.some(({ pageContent }) => pageContent.includes(`${question}.`));
  } finally {
    await index.close();
  }
}

function check(what: string, found: unknown, expected: unknown): void {
  assert.deepEqual(found, expected, what);
  console.log(`✓ ${what}`);
}
