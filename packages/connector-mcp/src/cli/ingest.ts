import { type Command, Option } from "commander";
import type { ConfirmedChanges } from "../jobs/changed-sources.js";
import type { SourceStats } from "../jobs/worker-pool-options.js";
import { confirmedBy, withChangedSourceOptions } from "./changed-source-options.js";
import {
  type CommandContext,
  type CommonOptions,
  fencelineCommand,
  printAnswer,
  withContext,
} from "./command-context.js";
import { parseSeconds } from "./option-values.js";
import { ProgressBar } from "./progress-bar.js";

interface IngestOptions extends CommonOptions, ConfirmedChanges {
  /** In milliseconds. */
  readonly timeout: number;
}

/** `fenceline ingest`: scans, reads and indexes what is due, then ends. */
export function ingestCommand(): Command {
  const command = fencelineCommand("ingest", [
    "ingest",
    "ingest --config prod.json --json --timeout 600",
    "ingest --moved catalog",
  ]);
  return withChangedSourceOptions(command)
    .description("scan, read and index every source once, then end")
    .addOption(
      new Option("--timeout <seconds>", "give up after this long").argParser(parseSeconds).default(3_600_000, "3600"),
    )
    .action(async (options: IngestOptions) => {
      const ok = await withContext(options, (context) => ingest(context, options.timeout, confirmedBy(options)));
      if (!ok) process.exitCode = 1;
    });
}

async function ingest(
  { config, ledger, logger, json, progress }: CommandContext,
  timeoutMs: number,
  confirm: ConfirmedChanges,
): Promise<boolean> {
  const bar = progress ? new ProgressBar() : undefined;
  const { startWorkers } = await import("../jobs/worker-pool.js");
  const progressing = bar && { onProgress: bar.update };
  const pool = await startWorkers({ ledger, config, logger, mode: "once", confirm, ...progressing });
  try {
    const end = await pool.idle({ timeoutMs });
    bar?.stop();
    const { sources } = pool.stats();
    const ok = end === "idle" && sources.every(isComplete);
    printAnswer(json, { ok, sources: sources.map(documentOf) }, () => [
      ...sources.flatMap(describeSource),
      ...(end === "timed_out" ? ["gave up: some work is left; run it again, or see `fenceline status`"] : []),
    ]);
    return ok;
  } finally {
    bar?.stop();
    await pool.close();
  }
}

function documentOf(source: SourceStats) {
  return { ...source, problems: source.problems.map(({ uri, code, message }) => ({ uri, code, message })) };
}

/** Worth saying, and no failure: a resource that is gone, content without text or that the guard refused, what of a list is not valid. */
const remarks = new Set(["read_not_found", "left_out", "list_malformed"]);

/** A source whose catalogue could not be had, or with resources that could not be read, is not complete. */
function isComplete(source: SourceStats): boolean {
  return source.scan !== undefined && source.problems.every(({ code }) => remarks.has(code));
}

function describeSource(source: SourceStats): string[] {
  const { reads, entries } = source;
  return [
    `${source.name} as ${source.reader} (${source.era ?? "not reached"}): ` +
      `${source.scan ? `${source.scan.resources} resources, ${source.scan.verdict}` : "no catalogue"}`,
    `  reads: ${reads.issued} issued, ${reads.accepted} accepted, ${reads.unchanged} unchanged, ` +
      `${reads.refused} refused, ${reads.failed} failed`,
    `  entries: ${entries.written} written, ${entries.reused} reused, ${entries.removed} removed`,
    ...source.problems.map((problem) => `  ! ${problem.uri ?? source.name}: ${problem.message} (${problem.code})`),
  ];
}
