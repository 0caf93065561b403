import { FencelineError } from "@fenceline/ledger";
import type { SourceProblem } from "./worker-pool-options.js";

/** An error as it may be shown: code and message of ours; of a foreign error the message only. */
export function problemOf(error: unknown): SourceProblem {
  if (error instanceof FencelineError) return { code: error.code, message: error.message };
  return { code: "unexpected", message: error instanceof Error ? error.message : String(error) };
}
