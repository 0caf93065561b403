#!/usr/bin/env node
import { readFileSync } from "node:fs";
import { FencelineError } from "@fenceline/ledger";
import { Command, CommanderError } from "commander";
import { doctorCommand } from "./doctor.js";
import { grantCommand } from "./grant.js";
import { ingestCommand } from "./ingest.js";
import { queryCommand } from "./query.js";
import { revokeCommand } from "./revoke.js";
import { statusCommand } from "./status.js";
import { traceCommand } from "./trace.js";
import { verifyCommand } from "./verify.js";
import { workerCommand } from "./worker.js";

// Commands load what they work with when they run: LangChain, BullMQ and the MCP SDK take longer to load than `status` takes.

/** Done, failed, wrong usage or configuration. */
const exitCodes = { done: 0, failed: 1, usage: 2 } as const;

/** Errors that mean the command was asked for wrongly rather than that it failed. */
const usageErrors = new Set([
  "config_invalid",
  "config_missing",
  "address_invalid",
  "schema_invalid_name",
  "uri_invalid",
  "source_unknown",
  "reader_unknown",
  "index_unknown",
  "source_moved",
  "source_removed",
  "input_invalid",
  "record_invalid",
]);

const manifest = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
  version: string;
};

function buildProgram(): Command {
  const program = new Command("fenceline")
    .description("Ingests MCP resources into retrieval indexes, keeps the copies right, and purges them on revocation.")
    .version(manifest.version)
    .showHelpAfterError("(run with --help for the usage)")
    .exitOverride()
    .addHelpText(
      "after",
      "\nEvery command takes --config FILE (default: fenceline.config.json) and --json (one document on standard output).\n" +
        "Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.",
    );
  const commands = [
    ingestCommand(),
    workerCommand(),
    queryCommand(),
    traceCommand(),
    grantCommand(),
    revokeCommand(),
    statusCommand(),
    doctorCommand(),
    verifyCommand(),
  ];
  for (const command of commands) program.addCommand(command.copyInheritedSettings(program));
  return program;
}

function report(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? exitCodes.done : exitCodes.usage;
  if (error instanceof FencelineError) {
    process.stderr.write(`fenceline: ${error.message} (${error.code})\n`);
    return usageErrors.has(error.code) ? exitCodes.usage : exitCodes.failed;
  }
  process.stderr.write(`fenceline: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  return exitCodes.failed;
}

// A reader that went away (`fenceline query … | head -1`) is no failure.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") process.exit(exitCodes.done);
  throw error;
});

try {
  await buildProgram().parseAsync();
} catch (error) {
  process.exitCode = report(error);
}
