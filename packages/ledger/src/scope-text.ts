import { FencelineError } from "./errors.js";
import type { UriScope } from "./uri-scope.js";

/** A scope as one line, as the ledger keeps it and reports show it: `uri=…`, `prefix=…` or `everything`. */
export function formatUriScope(scope: UriScope): string {
  if ("everything" in scope) return "everything";
  return "uri" in scope ? `uri=${scope.uri}` : `prefix=${scope.prefix}`;
}

/**
 * What `formatUriScope` wrote.
 *
 * @throws {FencelineError} `uri_invalid` for any other text
 */
export function parseUriScope(text: string): UriScope {
  if (text === "everything") return { everything: true };
  const [, kind, value] = /^(uri|prefix)=(.+)$/s.exec(text) ?? [];
  if (value === undefined) throw new FencelineError("uri_invalid", `${JSON.stringify(text)} is no URI scope.`);
  return kind === "uri" ? { uri: value } : { prefix: value };
}
