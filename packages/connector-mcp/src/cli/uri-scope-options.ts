import { FencelineError, type UriScope } from "@fenceline/ledger";
import type { Command } from "commander";

export interface UriScopeOptions {
  readonly uri?: string;
  readonly prefix?: string;
  readonly everything?: boolean;
}

/** Adds the options that name a range of URIs. */
export function withUriScope(command: Command): Command {
  return command
    .option("--uri <uri>", "this one resource")
    .option("--prefix <prefix>", "every resource at or below this URI")
    .option("--everything", "every resource");
}

/**
 * The range that was named.
 *
 * @throws {FencelineError} `uri_invalid` where none or several were, unless there is a `fallback`
 */
export function uriScopeOf(options: UriScopeOptions, fallback?: UriScope): UriScope {
  const named: UriScope[] = [];
  if (options.uri !== undefined) named.push({ uri: options.uri });
  if (options.prefix !== undefined) named.push({ prefix: options.prefix });
  if (options.everything === true) named.push({ everything: true });
  const [scope = fallback, ...more] = named;
  if (scope === undefined || more.length > 0) {
    throw new FencelineError("uri_invalid", "give exactly one of --uri, --prefix and --everything");
  }
  return scope;
}

/** The range in words. */
export function describeScope(scope: UriScope): string {
  if ("uri" in scope) return scope.uri;
  return "prefix" in scope ? `${scope.prefix} and below` : "everything";
}
