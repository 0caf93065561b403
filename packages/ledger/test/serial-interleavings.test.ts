import { beforeAll, expect, test } from "vitest";
import { type Areas, overlapping } from "./overlapping.js";
import {
  answerOf,
  createWorld,
  footprint,
  keepTables,
  type Operation,
  pairsThatMeet,
  type World,
} from "./serial-orders.js";
import { brokenInvariants, describeWholeLedgerOnPostgres } from "./whole-ledger.js";

/**
 * Serial equivalence: two operations that overlap on two connections leave what one of their two orders leaves, and answer as
 * they do in that order.
 */
describeWholeLedgerOnPostgres("every pair of operations that meet in a lock", (ledger) => {
  let world: World;
  let restore: () => Promise<void>;

  beforeAll(async () => {
    world = await createWorld(ledger);
    restore = await keepTables(ledger);
  }, 120_000);

  for (const [one, other] of pairsThatMeet()) {
    test(`${one.name} beside ${other.name} is as one after the other (design §1, P2)`, async () => {
      const orders = [await inTurn(one, other), await inTurn(other, one)];
      for (const overlap of [await atOnce(one, other), await atOnce(other, one)]) {
        const order = orders.find((each) => JSON.stringify(each) === JSON.stringify(overlap));
        if (order === undefined) expect(overlap).toEqual(orders[1]);
      }
    });
  }

  async function inTurn(first: Operation, second: Operation) {
    await restore();
    const before = answerOf(first, await first.run(ledger as unknown as Areas, world));
    const after = answerOf(second, await second.run(ledger as unknown as Areas, world));
    return outcomeOf(first, before, second, after);
  }

  async function atOnce(first: Operation, second: Operation) {
    await restore();
    const [before, after] = await overlapping(
      ledger,
      (areas) => first.run(areas, world),
      () => second.run(ledger as unknown as Areas, world),
    );
    return outcomeOf(first, answerOf(first, before), second, answerOf(second, after));
  }

  async function outcomeOf(first: Operation, before: unknown, second: Operation, after: unknown) {
    for (const each of [first, second]) if (each.again) await each.run(ledger as unknown as Areas, world);
    expect(await brokenInvariants(ledger)).toEqual([]);
    const answers = first === second ? [before, after] : { [first.name]: before, [second.name]: after };
    const sorted = Array.isArray(answers) ? answers.map((each) => JSON.stringify(each)).sort() : answers;
    const named = Array.isArray(sorted) ? sorted : Object.fromEntries(Object.entries(sorted).sort());
    return { answers: named, state: await footprint(ledger) };
  }
});
