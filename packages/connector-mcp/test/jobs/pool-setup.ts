import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Ledger, openLedger } from "@fenceline/ledger";
import { copyDatabase } from "@fenceline/test-services";
import { pino } from "pino";
import { afterAll, beforeAll, onTestFinished } from "vitest";
import type { FencelineConfig, FencelineConfigInput } from "#src/config/config-schema.js";
import { defineConfig } from "#src/config/load-config.js";
import type { ConfirmedChanges } from "#src/jobs/changed-sources.js";
import { openIndex } from "#src/jobs/configured-indexes.js";
import { startWorkers } from "#src/jobs/worker-pool.js";
import type { PoolMode, WorkerPool } from "#src/jobs/worker-pool-options.js";
import type { GuardedSearchResult } from "#src/langchain/guarded-retriever.js";

/** Silent, or at the level of `FENCELINE_TEST_LOG` on standard error. */
export const logger = pino({ level: process.env["FENCELINE_TEST_LOG"] ?? "silent" }, pino.destination(2));

/** One embedded ledger for all tests of a file. Tests keep apart by their {@link Cast}. */
export function useLedger(): () => Ledger {
  let ledger: Ledger | undefined;
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "fenceline-pool-"));
    await copyDatabase("ledger", openLedger, folder);
    ledger = await openLedger(`file:${folder}`);
  });
  afterAll(async () => {
    await ledger?.close();
    await rm(folder, { recursive: true, force: true });
  });
  return () => ledger as Ledger;
}

/** Source, reader and asker of one test. */
export interface Cast {
  readonly source: string;
  readonly reader: string;
  readonly asker: readonly [user: string, group: string];
}

let casts = 0;

export function newCast(): Cast {
  casts += 1;
  return {
    source: `notes-${casts}`,
    reader: `svc:rag-${casts}`,
    asker: [`user:alice-${casts}`, `group:sales-${casts}`],
  };
}

/** The cast's source at `url`, all of it granted to the asker's group. */
export function configFor(cast: Cast, url: string, more: Partial<FencelineConfigInput> = {}): FencelineConfig {
  const { source, reader, asker } = cast;
  return defineConfig({
    queuePrefix: `test-${process.pid}-${source}`,
    mcpServers: { [source]: { url, reader } },
    grants: [{ source, reader, audience: asker[1], everything: true }],
    ...more,
  });
}

/** That the sources of other tests left the configuration. */
export async function otherTestsOver(ledger: Ledger): Promise<ConfirmedChanges> {
  return { removed: (await ledger.registeredSources()).map(({ name }) => name) };
}

/** A pool that is closed at the end of the test. */
export async function startPool(
  ledger: Ledger,
  config: FencelineConfig,
  mode: PoolMode = "serve",
): Promise<WorkerPool> {
  const pool = await startWorkers({ ledger, config, mode, logger, confirm: await otherTestsOver(ledger) });
  onTestFinished(() => pool.close({ deadlineMs: 5_000 }));
  return pool;
}

/** Asks the only index; what is changed, unverified or expired is included and marked. */
export async function ask(
  ledger: Ledger,
  config: FencelineConfig,
  question: string,
  asker: readonly string[],
): Promise<GuardedSearchResult["hits"]> {
  const index = await openIndex({ ledger, config });
  try {
    return (await index.asRetriever({ k: 10, freshness: "mark" }).search(question, { asker })).hits;
  } finally {
    await index.close();
  }
}
