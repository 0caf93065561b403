import { FencelineError } from "@fenceline/ledger";
import { storableText } from "../storable-text.js";
import type { SourceProblem } from "./worker-pool-options.js";

/**
 * An error as it may be shown, logged and recorded: code and message. Never its cause, which may repeat what a server sent.
 */
export function problemOf(error: unknown): SourceProblem {
  if (error instanceof FencelineError) return { code: error.code, message: storableText(error.message) };
  return { code: "unexpected", message: storableText(error instanceof Error ? error.message : String(error)) };
}
