import { FencelineError } from "@fenceline/ledger";
import type { SourceProblem } from "./worker-pool-options.js";

/**
 * An error as it may be shown and logged: code and message. Never its cause, which may repeat what a server sent.
 */
export function problemOf(error: unknown): SourceProblem {
  if (error instanceof FencelineError) return { code: error.code, message: error.message };
  return { code: "unexpected", message: error instanceof Error ? error.message : String(error) };
}
