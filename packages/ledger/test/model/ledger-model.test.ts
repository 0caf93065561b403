import fc from "fast-check";
import { expect, test } from "vitest";
import { describeWholeLedger } from "../whole-ledger.js";
import { modelProperty } from "./model-run.js";

/** More on demand: `FENCELINE_MODEL_RUNS=5000`. A failure prints seed and path; `FENCELINE_MODEL_SEED` begins with that seed. */
const RUNS = Number(process.env["FENCELINE_MODEL_RUNS"] ?? 40);
const SEED = process.env["FENCELINE_MODEL_SEED"];

describeWholeLedger("the ledger beside a plain model", (ledger) => {
  test(
    "random commands answer as the model does, and leave what it has: states, what is due, what each asker sees (F1, F3, F7, G2, L3, L5, P2, P3)",
    async () => {
      const count = { commands: 0 };
      await fc.assert(modelProperty(ledger, count), { numRuns: RUNS, ...(SEED && { seed: Number(SEED) }) });
      expect(count.commands).toBeGreaterThan(RUNS);
    },
    RUNS * 5_000 + 120_000,
  );
});
