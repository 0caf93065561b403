import { denialCovers, type UriScope } from "@fenceline/ledger";
import { type Command, InvalidArgumentError, Option } from "commander";
import { parseText } from "./option-values.js";

export interface UriScopeOptions {
  readonly uri?: UriScope;
  readonly prefix?: UriScope;
  readonly everything?: true;
}

/** Adds the options that name a range of URIs. */
export function withUriScope(command: Command): Command {
  const uri = new Option("--uri <uri>", "this one resource").argParser((value) => usable({ uri: parseText(value) }));
  const prefix = new Option("--prefix <prefix>", "every resource at or below this URI").argParser((value) =>
    usable({ prefix: parseText(value) }),
  );
  return command
    .addOption(uri.conflicts(["prefix", "everything"]))
    .addOption(prefix.conflicts(["uri", "everything"]))
    .addOption(new Option("--everything", "every resource").conflicts(["uri", "prefix"]));
}

/** The range that was named, or everything. */
export function uriScopeOf({ uri, prefix }: UriScopeOptions): UriScope {
  return uri ?? prefix ?? { everything: true };
}

/** The range that was named; without one the command is wrong. */
export function requiredUriScope(command: Command): UriScope {
  const options = command.opts<UriScopeOptions>();
  if (options.uri ?? options.prefix ?? options.everything) return uriScopeOf(options);
  return command.error("error: one of --uri, --prefix and --everything is required");
}

/** The range in words. */
export function describeScope(scope: UriScope): string {
  if ("uri" in scope) return scope.uri;
  return "prefix" in scope ? `${scope.prefix} and below` : "everything";
}

function usable(scope: UriScope): UriScope {
  try {
    denialCovers(scope, "any:uri"); // whatever the answer: it throws where the scope is none
    return scope;
  } catch (error) {
    throw new InvalidArgumentError(error instanceof Error ? error.message : String(error));
  }
}
