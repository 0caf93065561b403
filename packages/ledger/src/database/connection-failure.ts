/**
 * What a failed call on a `pg` client means for the statement.
 *
 * - `not_run`: the statement certainly did not run.
 * - `may_have_run`: the connection was lost while it was under way.
 * - `failed`: the database answered with an error, or a value could not be read.
 */
export type Failure = "not_run" | "may_have_run" | "failed";

/**
 * 57P03 (cannot connect now) is answered while a server starts; our embedded server answers it to every statement that it
 * did not begin because it is being handed over.
 */
const NOT_RUN_STATES = new Set(["57P03"]);
/** The server ended the session: administrator, crash, database dropped, idle timeouts. */
const SESSION_ENDED_STATES = new Set(["57P01", "57P02", "57P04", "57P05", "25P03", "25P04"]);
const SOCKET_CODES = new Set([
  "ECONNRESET",
  "ECONNREFUSED",
  "EPIPE",
  "ENOENT",
  "ETIMEDOUT",
  "EAI_AGAIN",
  "ECONNABORTED",
]);

export function failureOf(error: unknown): Failure {
  const code = codeOf(error);
  if (code !== undefined) {
    if (NOT_RUN_STATES.has(code) || isPreparedStatementGone(error, code)) return "not_run";
    if (SESSION_ENDED_STATES.has(code) || code.startsWith("08") || SOCKET_CODES.has(code)) return "may_have_run";
    return "failed";
  }
  const message = error instanceof Error ? error.message : "";
  if (message.endsWith("is not queryable")) return "not_run";
  if (/^Connection (terminated|ended)/.test(message)) return "may_have_run";
  return "failed";
}

/**
 * The connection's prepared statement does not exist on the server (26000), or answers with other columns since its function
 * was created anew by another version (whose code is that of any feature that is not supported): it was not run, and is
 * prepared again on a new connection.
 */
function isPreparedStatementGone(error: unknown, code: string): boolean {
  return code === "26000" || (code === "0A000" && (error as { routine?: unknown }).routine === "RevalidateCachedQuery");
}

/**
 * Whether connecting again may help. A refused password or an unknown database or host will not change within seconds;
 * a server that starts, restarts, is being handed over or has no free slot will.
 */
export function mayConnectLater(error: unknown): boolean {
  const code = codeOf(error);
  if (code === undefined) return failureOf(error) !== "failed";
  return SOCKET_CODES.has(code) || /^(08|53|57P)/.test(code);
}

function codeOf(error: unknown): string | undefined {
  if (error instanceof AggregateError && error.errors.length > 0) return codeOf(error.errors[0]);
  const code = error instanceof Error ? (error as Error & { code?: unknown }).code : undefined;
  return typeof code === "string" ? code : undefined;
}
