import { type Command, Option } from "commander";
import type { ConfirmedChanges } from "../jobs/changed-sources.js";
import { parseName } from "./option-values.js";

/** Adds the options with which a command that starts workers answers `source_moved` and `source_removed`. */
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

export function confirmedBy({ moved, removed }: ConfirmedChanges): ConfirmedChanges {
  return { ...(moved && { moved }), ...(removed && { removed }) };
}
