import { type Ledger, openLedger } from "@fenceline/ledger";
import { Command } from "commander";
import { type Logger, pino } from "pino";
import type { FencelineConfig } from "../config/config-schema.js";

/** Options that every command takes. */
export interface CommonOptions {
  readonly config?: string;
  readonly json?: boolean;
  readonly verbose?: boolean;
}

/** What a command works with. */
export interface CommandContext {
  readonly config: FencelineConfig;
  readonly ledger: Ledger;
  /** On standard error; standard output belongs to the command's answer. */
  readonly logger: Logger;
  readonly json: boolean;
  /** Whether a person watches: what takes longer than a second shows how far it is. */
  readonly progress: boolean;
}

/**
 * A command with the options that all of them share.
 *
 * @param examples lines as they are typed, without `fenceline`
 */
export function fencelineCommand(name: string, examples: readonly string[]): Command {
  return new Command(name)
    .exitOverride()
    .showHelpAfterError("(run with --help for the usage)")
    .option("--config <file>", "configuration file (default: fenceline.config.json)")
    .option("--json", "print one JSON document on standard output")
    .option("--verbose", "log more, on standard error")
    .addHelpText("after", `\nExamples:\n${examples.map((example) => `  fenceline ${example}\n`).join("")}`);
}

/** Its checks need the MCP SDK, for which no help should wait. */
export async function configOf({ config }: CommonOptions): Promise<FencelineConfig> {
  const { loadConfig } = await import("../config/load-config.js");
  return loadConfig(config);
}

/**
 * Loads the configuration, opens its ledger for `work`, and closes it whatever happens.
 *
 * @param check throws where the configuration shows the command to be wrong: before there is a ledger, which a command
 * that is wrong does not create
 */
export async function withContext<Result>(
  options: CommonOptions,
  work: (context: CommandContext) => Promise<Result>,
  check: (config: FencelineConfig) => void = () => undefined,
): Promise<Result> {
  const config = await configOf(options);
  check(config);
  const logger = pino(
    { name: "fenceline", level: options.verbose === true ? "debug" : "error" },
    pino.destination({ fd: 2, sync: true }),
  );
  const digestKey = process.env["FENCELINE_DIGEST_KEY"];
  const ledger = await openLedger(config.ledger, {
    ...(config.ledgerSchema !== undefined && { schema: config.ledgerSchema }),
    ...(config.ledgerListen !== undefined && { listenAddress: config.ledgerListen }),
    ...(digestKey !== undefined && digestKey !== "" && { digestKey }),
  });
  try {
    const progress = process.stderr.isTTY === true && options.json !== true;
    return await work({ config, ledger, logger, json: options.json === true, progress });
  } finally {
    await ledger.close();
  }
}

/** Prints the answer: the document as JSON, where what is not known is `null`, or the lines a person reads. */
export function printAnswer(json: boolean, document: unknown, lines: () => readonly string[]): void {
  process.stdout.write(
    json
      ? `${JSON.stringify(document, (_, value) => value ?? null, 2)}\n`
      : lines()
          .map((line) => `${line}\n`)
          .join(""),
  );
}

/** Resolves at the first SIGINT or SIGTERM; a second one ends the process at once. */
export function untilAskedToStop(): Promise<void> {
  return new Promise((resolve) => {
    const stop = () => {
      process.once("SIGINT", () => process.exit(130));
      process.once("SIGTERM", () => process.exit(143));
      resolve();
    };
    process.once("SIGINT", stop);
    process.once("SIGTERM", stop);
  });
}
