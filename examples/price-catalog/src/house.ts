import { mkdtemp, realpath } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  defineConfig,
  type FencelineConfigInput,
  type OpenIndex,
  openIndex,
  type PoolProgress,
  startWorkers,
  type WorkerPool,
} from "@fenceline/connector-mcp";
import { type Ledger, openLedger } from "@fenceline/ledger";
import { SingleBar } from "cli-progress";
import { pino } from "pino";

/** Everything a story runs on, all of it embedded: ledger, queue, vector store and embeddings. */
export interface House {
  /** Of the ledger; it stays when the house is closed. */
  readonly directory: string;
  /** The file with what the workers logged, beside the ledger. */
  readonly log: string;
  readonly ledger: Ledger;
  readonly pool: WorkerPool;
  readonly index: OpenIndex;
  close(): Promise<void>;
}

/** A ledger in a new directory that stays, and workers on the given configuration, which log into a file beside it. */
export async function openHouse(
  config: Omit<FencelineConfigInput, "ledger" | "queue">,
  options: { readonly progress: boolean },
): Promise<House> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), "fenceline-demo-")));
  const directory = join(folder, "ledger");
  const log = join(folder, "workers.log");
  const settled = defineConfig({ ...config, ledger: `file:${directory}`, queue: "embedded" });
  const ledger = await openLedger(settled.ledger);
  const bar = options.progress
    ? new SingleBar({
        format: "    {phase} {bar} {value}/{total}",
        stream: process.stderr,
        clearOnComplete: true,
        linewrap: true, // else it is switched off, and stays off after a Ctrl-C
      })
    : undefined;
  bar?.start(1, 0, { phase: "connect" });
  const showProgress = ({ phase, done, total }: PoolProgress): void => {
    if (total === 0) return;
    bar?.setTotal(total);
    bar?.update(done, { phase });
  };
  const logger = pino({ name: "fenceline" }, pino.destination({ dest: log, sync: true }));
  const pool = await startWorkers({ ledger, config: settled, logger, onProgress: showProgress });
  const index = await openIndex({ ledger, config: settled });
  const end = await pool.idle({ timeoutMs: 60_000 });
  bar?.stop();
  if (end === "timed_out") process.stderr.write(`the first ingest did not end within 60 s; ${log} may say why\n`);
  return {
    directory,
    log,
    ledger,
    pool,
    index,
    async close() {
      await pool.close();
      await index.close();
      await ledger.close();
    },
  };
}
