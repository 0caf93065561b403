import type { Command } from "commander";
import { pino } from "pino";
import type { ConfirmedChanges } from "../jobs/changed-sources.js";
import { confirmedBy, withChangedSourceOptions } from "./changed-source-options.js";
import { type CommonOptions, fencelineCommand, printAnswer, untilAskedToStop, withContext } from "./command-context.js";

/** `fenceline worker`: stays, holds subscriptions, shares the work with every other worker on the ledger. */
export function workerCommand(): Command {
  return withChangedSourceOptions(fencelineCommand("worker", ["worker", "worker --config prod.json --verbose"]))
    .description("stay and keep every index right until stopped (Ctrl-C)")
    .action((options: CommonOptions & ConfirmedChanges) =>
      withContext(options, async ({ config, ledger, json }) => {
        const stop = untilAskedToStop();
        const level = options.verbose === true ? "debug" : "info";
        const logger = pino({ name: "fenceline", level }, pino.destination({ fd: 2, sync: true }));
        const { startWorkers } = await import("../jobs/worker-pool.js");
        const pool = await startWorkers({ ledger, config, logger, confirm: confirmedBy(options) });
        try {
          logger.info({ owner: pool.owner, ledger: ledger.address }, "worker ready");
          await stop;
          logger.info("stopping");
        } finally {
          await pool.close();
        }
        printAnswer(json, pool.stats(), () => []);
      }),
    );
}
