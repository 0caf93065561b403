import { expect, test } from "vitest";
import { races } from "./races.js";
import { plant } from "./twins/twin.js";
import { brokenInvariants, describeWholeLedgerOnPostgres } from "./whole-ledger.js";

describeWholeLedgerOnPostgres("races that a first draft of the design lost", (ledger) => {
  for (const { name, run } of races) {
    test(name, async () => {
      await run(ledger);
      expect(await brokenInvariants(ledger)).toEqual([]);
    });
  }
});

/** Each race has power: with its bug planted it is lost. In a schema of their own, for they leave it broken. */
describeWholeLedgerOnPostgres("races with their bug planted", (ledger) => {
  for (const { name, run, twin } of races) {
    test(`${twin.bug}: lost is "${name}"`, async () => {
      await run(ledger);
      const takeOut = await plant(ledger.database, ledger.schema, twin);
      try {
        await expect(run(ledger)).rejects.toThrow();
      } finally {
        await takeOut();
      }
    });
  }
});
