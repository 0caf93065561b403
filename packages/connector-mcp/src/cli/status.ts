import type { LedgerStatus } from "@fenceline/ledger";
import type { Command } from "commander";
import { type CommonOptions, fencelineCommand, printAnswer, withContext } from "./command-context.js";
import { table } from "./table.js";

/** `fenceline status`: sources, open revocations, stores, what waits and who works. */
export function statusCommand(): Command {
  return fencelineCommand("status", ["status", "status --json"])
    .description("show sources, revocations, stores and what waits")
    .action((options: CommonOptions) =>
      withContext(options, async ({ ledger, json }) => {
        const status = await ledger.status();
        const workers = [...new Set(status.sources.flatMap(({ holder }) => holder ?? []))];
        printAnswer(json, { ...status, workers }, () => describeStatus(status, workers));
      }),
    );
}

function describeStatus(status: LedgerStatus, workers: readonly string[]): string[] {
  return [
    ...table(
      ["SOURCE", "READER", "ERA", "PUSHED", "POLLED", "CATALOGUE", "LAST SCAN", "OLDEST VERIFIED", "DUE"],
      status.sources.map((source) => [
        source.name,
        source.reader,
        source.era ?? "-",
        source.pushed,
        source.polled,
        source.scan ?? "-",
        describeScan(source.lastScan),
        source.oldestVerifiedAt?.toISOString() ?? "-",
        source.due,
      ]),
    ),
    ...status.sources.flatMap(({ name, listFaults }) =>
      listFaults.map(
        ({ uri, code, message }) => `! ${name}: ${uri === undefined ? "" : `${uri}: `}${message} (${code})`,
      ),
    ),
    `revocations: ${status.revocations.open} open, ${status.revocations.complete} complete`,
    ...status.stores.map(
      ({ store, reachable, failure }) =>
        `store ${store}: ${reachable ? "reachable" : `not reachable${failure === undefined ? "" : `: ${failure}`}`}`,
    ),
    `waiting: ${status.waiting.reads} reads, ${status.waiting.indexing} to index, ${status.waiting.purging} to purge`,
    workers.length === 0 ? "no worker runs" : `workers: ${workers.join(", ")}`,
  ];
}

/** A listing that failed shows here; the catalogue stays what it was (S8). */
function describeScan(scan: LedgerStatus["sources"][number]["lastScan"]): string {
  if (scan === undefined) return "-";
  return [scan.verdict ?? "COMPLETE", scan.reason ?? []].flat().join(" ");
}
