import fc from "fast-check";
import { expect, test } from "vitest";
import { modelProperty } from "../model/model-run.js";
import { describeWholeLedgerOnPostgres } from "../whole-ledger.js";
import { foundByModel } from "./planted-bugs.js";
import { plant } from "./twin.js";

/** Of the draws, so that each bug is found after the same commands every time. */
const SEED = 20_261_130;
const RUNS = 60;

describeWholeLedgerOnPostgres("planted bugs, beside the model", (ledger) => {
  for (const twin of Object.values(foundByModel)) {
    test(`is found: ${twin.bug}`, async () => {
      const takeOut = await plant(ledger.database, ledger.schema, twin);
      try {
        const count = { commands: 0 };
        const found = await fc.check(modelProperty(ledger, count), { numRuns: RUNS, seed: SEED, endOnFailure: true });
        expect(found.failed).toBe(true);
        console.info(`Found after ${count.commands} commands: ${twin.bug}`);
      } finally {
        await takeOut();
      }
    }, 120_000);
  }
});
