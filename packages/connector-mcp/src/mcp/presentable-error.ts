import { FencelineError } from "@fenceline/ledger";
import { SdkHttpError } from "@modelcontextprotocol/client";
import { describeError } from "./wire-failure.js";

/** A chain of causes longer than this is cut off. */
const MAX_DEPTH = 5;

/**
 * A copy of what came over the wire that may ride as `cause` into somebody's log: of the same class and code, its message in one
 * line without an answer's body, and free of the endpoint's secrets, as is its stack. Loggers print causes (P8).
 *
 * @param redact replaces the secrets in a text
 */
export function presentableError(error: unknown, redact: (text: string) => string, depth = 0): unknown {
  if (!(error instanceof Error)) return error === undefined ? undefined : redact(describeError(error));
  // Ours already.
  if (error instanceof FencelineError) return error;
  const message = redact(describeError(error));
  const copy = Object.create(Object.getPrototypeOf(error) as object, Object.getOwnPropertyDescriptors(error)) as Error;
  const frames = (error.stack ?? "").split("\n").filter((line) => /^\s+at /.test(line));
  const replace = (name: string, value: unknown): void => {
    Object.defineProperty(copy, name, { value, enumerable: name === "data", configurable: true, writable: true });
  };
  replace("message", message);
  replace("stack", [`${error.name}: ${message}`, ...frames].join("\n"));
  if ("data" in error) replace("data", presentableData(error as { data: unknown }, redact));
  if (error.cause !== undefined) {
    replace("cause", depth < MAX_DEPTH ? presentableError(error.cause, redact, depth + 1) : undefined);
  }
  return copy;
}

/** Of an HTTP error the status alone: the rest is the answer's body. A JSON-RPC error's data is the server's. */
function presentableData(error: { readonly data: unknown }, redact: (text: string) => string): unknown {
  const { data } = error;
  if (error instanceof SdkHttpError) return { status: error.status, statusText: redact(error.statusText ?? "") };
  if (data instanceof FencelineError || data === undefined) return data;
  try {
    return JSON.parse(redact(JSON.stringify(data))) as unknown;
  } catch {
    return undefined;
  }
}
