import { type Command, Option } from "commander";
import type { ConfirmedChanges } from "../jobs/changed-sources.js";
import { parseName } from "./option-values.js";

/** The answers of a command that starts workers to `source_moved` and `source_removed`. */
export interface ChangedSourceOptions {
  readonly moved?: readonly string[];
  readonly removed?: readonly string[];
}

export function withChangedSourceOptions(command: Command): Command {
  const several = (value: string, before: readonly string[] = []) => [...before, parseName(value)];
  return command
    .addOption(
      new Option("--moved <source>", "it is the same server, at another place (may be repeated)").argParser(several),
    )
    .addOption(
      new Option("--removed <source>", "it left the configuration for good (may be repeated)").argParser(several),
    );
}

export function confirmedBy({ moved, removed }: ChangedSourceOptions): ConfirmedChanges {
  return { ...(moved && { moved }), ...(removed && { removed }) };
}
