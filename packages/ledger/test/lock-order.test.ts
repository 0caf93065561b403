import { expect, test } from "vitest";
import { circlesAmong, LockProbe, type Order, type Wait } from "./held-locks.js";
import { createLockWorld, lockingOperations } from "./lock-order-world.js";
import { describeWholeLedgerOnPostgres } from "./whole-ledger.js";

/** What of others' they find locked they leave to the next time. */
const PASSING_OVER = ["claim a purge", "prune reads", "prune sessions"];

describeWholeLedgerOnPostgres("the order of all locks", (ledger) => {
  test("no two operations hold what the other one waits for, in whatever order the planner lets rows come (design §1)", {
    timeout: 600_000,
  }, async () => {
    const operations = Object.entries(lockingOperations(await createLockWorld(ledger)));
    const probe = await LockProbe.open(ledger);
    try {
      const waits: Wait[] = [];
      for (const order of ["index", "place"] satisfies Order[]) {
        for (const [name, run] of operations) waits.push(...(await probe.waitsOf(name, run, order)));
      }
      expect(circlesAmong(waits, (row) => probe.nameOf(row))).toEqual([]);
      const waiting = new Set(waits.map(({ operation }) => operation));
      expect(operations.map(([name]) => name).filter((name) => !waiting.has(name))).toEqual(PASSING_OVER);
    } finally {
      await probe.close();
    }
  });
});
