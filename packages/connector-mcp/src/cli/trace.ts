import type { Trace, TracedEntry } from "@fenceline/ledger";
import type { Command } from "commander";
import { type CommonOptions, fencelineCommand, printAnswer, withContext } from "./command-context.js";
import { parseText } from "./option-values.js";

/** An id of any kind: one that is not ours is an entry nobody knows, and no URI. */
const entryId = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** `fenceline trace`: where an entry came from, or what was derived from a URI (L4). */
export function traceCommand(): Command {
  return fencelineCommand("trace", ["trace catalog://plans/basic", "trace 0e47c2b7-33ad-8001-8000-000000000004 --json"])
    .description("show where an entry came from, or everything derived from a URI")
    .argument("<uri-or-entry>", "a resource's URI, or the id of an entry", parseText)
    .action((of: string, options: CommonOptions) =>
      withContext(options, async ({ ledger, json }) => {
        const trace = await ledger.trace(entryId.test(of) ? { entry: of } : { uri: of });
        printAnswer(json, trace, () => describeTrace(trace));
        if (isEmpty(trace)) process.exitCode = 1;
      }),
    );
}

function isEmpty({ versions, derivations }: Trace): boolean {
  return versions.length === 0 && derivations.length === 0;
}

/** A trace as lines. */
function describeTrace(trace: Trace): string[] {
  if (isEmpty(trace)) return ["nothing is recorded of it, or no longer"];
  const versions = trace.versions.flatMap((version) => [
    `${version.uri}  version ${version.lineageId}`,
    `  accepted ${version.acceptedAt.toISOString()} from ${version.source} as ${version.reader}` +
      `${version.server === undefined ? "" : `, server ${version.server}`}`,
    `  read ${version.readId}, session ${version.session}${version.scan === undefined ? "" : `, scan ${version.scan}`}`,
    `  digest ${version.digest ?? "(purged)"}`,
    ...version.entries.map((entry) => `  ${entry.state}  ${entry.id}  in ${entry.index} (${entry.store})`),
  ]);
  return [...versions, ...trace.derivations.flatMap(describeDerivation)];
}

/** The entry itself only where it says more than the versions do: that it was purged. */
function describeDerivation({ step, kind, state, id, index, store, purgedAt, purgeReceipts }: TracedEntry): string[] {
  const purged =
    purgedAt && `purged ${purgedAt.toISOString()}${purgeReceipts.map((each) => `, receipt ${each}`).join("")}`;
  if (step === 0) return purged === undefined ? [] : [`  ${purged}`];
  return [
    `${step < 0 ? "made from" : "used in"} ${kind}  ${state}  ${id}  in ${index} (${store})`,
    ...(purged === undefined ? [] : [`  ${purged}`]),
  ];
}
