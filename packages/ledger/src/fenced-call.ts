import type { Queryable, StatementOptions } from "./database/database.js";
import { assert } from "./errors.js";
import type { Session } from "./sessions.js";

/** The first two parameters of every function that is fenced by a session: its scope and its generation. */
export function fenceOf(session: Session): [scopeId: number, generation: number] {
  return [session.scopeId, session.generation];
}

/** For the ledger's own calls, whose texts are few. */
export const PREPARED: StatementOptions = { prepared: true };

/** Calls a function of the ledger that answers with one value. */
export async function call<Value>(database: Queryable, expression: string, values: readonly unknown[]): Promise<Value> {
  const [row] = await database.query<{ answer: Value }>(`select ${expression} as answer`, values, PREPARED);
  assert(row !== undefined, `${expression} answers with one row.`);
  return row.answer;
}

/** Splits into runs of at most `size`, in order: what runs under the fence is kept short (P2). */
export function* inBatches<Item>(items: readonly Item[], size: number): Generator<readonly Item[]> {
  for (let start = 0; start < items.length; start += size) yield items.slice(start, start + size);
}
