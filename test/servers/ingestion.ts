import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  defineConfig,
  type FencelineConfigInput,
  type GuardedHit,
  openIndex,
  type SourceStats,
  startWorkers,
} from "@fenceline/connector-mcp";
import { type Ledger, openLedger } from "@fenceline/ledger";
import { pino } from "pino";
import { expect, onTestFinished } from "vitest";

const READER = "svc:rag";
const ASKER = "user:alice";

/** Silent, or at the level of `FENCELINE_TEST_LOG` on standard error. */
const logger = pino({ level: process.env["FENCELINE_TEST_LOG"] ?? "silent" }, pino.destination(2));

/** How long a server may take over what a test waits for. */
export const within = { timeout: 20_000, interval: 50 } as const;

/** One server, ingested by a serving pool on an embedded ledger of its own. */
export interface Ingestion {
  readonly ledger: Ledger;
  /** Counts of the source; the pool's own. */
  stats(): SourceStats;
  /** What an asker to whom everything is granted is shown; what is not fresh is marked. */
  ask(question: string): Promise<readonly GuardedHit[]>;
  /** Text of one resource as an asker is shown it. */
  textOf(uri: string): Promise<string | undefined>;
}

/** Ingests the server until nothing is due; everything ends with the test. */
export async function ingest(
  server: Omit<FencelineConfigInput["mcpServers"][string], "reader" | "readers">,
  settings: FencelineConfigInput["settings"] = {},
): Promise<Ingestion> {
  const folder = await mkdtemp(join(tmpdir(), "fenceline-servers-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const config = defineConfig({
    ledger: `file:${folder}`,
    mcpServers: { source: { ...server, reader: READER } },
    grants: [{ source: "source", reader: READER, audience: ASKER, everything: true }],
    settings,
  });
  const ledger = await openLedger(config.ledger);
  onTestFinished(() => ledger.close());
  const pool = await startWorkers({ ledger, config, logger });
  onTestFinished(() => pool.close({ deadlineMs: 5_000 }));
  const index = await openIndex({ ledger, config });
  onTestFinished(() => index.close());

  const ask = async (question: string) =>
    (await index.asRetriever({ k: 50, freshness: "mark" }).search(question, { asker: [ASKER] })).hits;
  expect(await pool.idle({ timeoutMs: 30_000 })).toBe("idle");
  return {
    ledger,
    stats: () => pool.stats().sources[0] as SourceStats,
    ask,
    textOf: async (uri) => (await ask(uri)).find((hit) => hit.uri === uri)?.text,
  };
}
