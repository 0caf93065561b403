import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Ledger, openLedger } from "@fenceline/ledger";
import { pino } from "pino";
import { onTestFinished } from "vitest";
import type { FencelineConfig, FencelineConfigInput } from "#src/config/config-schema.js";
import { defineConfig } from "#src/config/load-config.js";
import { openIndex } from "#src/jobs/configured-indexes.js";
import { startWorkers } from "#src/jobs/worker-pool.js";
import type { PoolMode, WorkerPool } from "#src/jobs/worker-pool-options.js";
import type { GuardedSearchResult } from "#src/langchain/guarded-retriever.js";

/** Level `silent`, or whatever `FENCELINE_TEST_LOG` says, on standard error. */
export const logger = pino({ level: process.env["FENCELINE_TEST_LOG"] ?? "silent" }, pino.destination(2));

export const READER = "svc:rag";
export const ALICE = ["user:alice", "group:sales"];

/** An embedded ledger in a folder of its own, closed and removed after the test. */
export async function openTestLedger(): Promise<Ledger> {
  const folder = await mkdtemp(join(tmpdir(), "fenceline-pool-"));
  const ledger = await openLedger(`file:${folder}`);
  onTestFinished(async () => {
    await ledger.close();
    await rm(folder, { recursive: true, force: true });
  });
  return ledger;
}

/** One source at `url`, all of it granted to `group:sales`. */
export function configFor(url: string, more: Partial<FencelineConfigInput> = {}): FencelineConfig {
  return defineConfig({
    mcpServers: { notes: { url, reader: READER } },
    grants: [{ source: "notes", reader: READER, audience: "group:sales", everything: true }],
    ...more,
  });
}

/** A pool that is closed after the test, before the ledger. */
export async function startTestPool(
  ledger: Ledger,
  config: FencelineConfig,
  mode: PoolMode = "serve",
): Promise<WorkerPool> {
  const pool = await startWorkers({ ledger, config, mode, logger });
  onTestFinished(() => pool.close({ deadlineMs: 5_000 }));
  return pool;
}

/** Asks the only index, changed and expired answers included and marked. */
export async function ask(
  ledger: Ledger,
  config: FencelineConfig,
  question: string,
  asker: readonly string[] = ALICE,
): Promise<GuardedSearchResult["hits"]> {
  const index = await openIndex({ ledger, config });
  try {
    return (await index.asRetriever({ k: 10, freshness: "mark" }).search(question, { asker })).hits;
  } finally {
    await index.close();
  }
}
