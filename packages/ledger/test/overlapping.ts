import { expect, vi } from "vitest";
import { queryableInSchema } from "#src/ledger-schema.js";
import { sessionLedger } from "#src/sessions.js";
import { areasOver } from "./ledger-under-test.js";
import { lineageAreasOver, type WholeLedger } from "./whole-ledger.js";

/** Every area, over the one connection of a transaction. */
export type Areas = Awaited<ReturnType<typeof areasOn>>;

export async function areasOn(connection: Parameters<typeof queryableInSchema>[0], schema: string) {
  return {
    /** Statements name the schema `fenceline`. */
    sql: queryableInSchema(connection, schema).query,
    ...areasOver(connection, schema),
    ...sessionLedger(queryableInSchema(connection, schema)),
    ...(await lineageAreasOver(connection, schema)),
  };
}

/**
 * Runs `first` inside a transaction that stays open until `second`, on a connection of its own, has ended or waits for a
 * lock; then does what is left to do `beforeCommit` in that transaction, and commits. The third of the answer says whether the
 * second waited.
 */
export async function overlapping<First, Second>(
  ledger: WholeLedger,
  first: (areas: Areas) => Promise<First>,
  second: () => Promise<Second>,
  beforeCommit: (areas: Areas) => Promise<unknown> = async () => {},
): Promise<[First, Second, boolean]> {
  let commit = () => {};
  const mayCommit = new Promise<void>((resolve) => {
    commit = resolve;
  });
  let begun: (value: First) => void = () => {};
  const firstRan = new Promise<First>((resolve) => {
    begun = resolve;
  });
  const held = ledger.database.transaction(async (transaction) => {
    const areas = await areasOn(transaction, ledger.schema);
    begun(await first(areas));
    await mayCommit;
    await beforeCommit(areas);
  });
  const answer = await Promise.race([firstRan, held.then(() => expect.fail("the first ended before it was told to"))]);
  let ended = false;
  const other = second().finally(() => {
    ended = true;
  });
  let waits = false;
  await vi.waitFor(
    async () => {
      const [row] = await ledger.sql<{ waits: boolean }>(
        `select exists (select 1 from pg_stat_activity
           where wait_event_type = 'Lock' and query like '%' || $1 || '%' and pid <> pg_backend_pid()) as waits`,
        [ledger.schema],
      );
      waits = row?.waits === true;
      expect(ended || waits).toBe(true);
    },
    { timeout: 10_000, interval: 10 },
  );
  commit();
  const [, otherAnswer] = await Promise.all([held, other]);
  return [answer, otherAnswer, waits];
}
