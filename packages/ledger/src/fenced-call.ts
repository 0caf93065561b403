import type { Queryable } from "./database/database.js";
import { assert } from "./errors.js";
import type { Session } from "./sessions.js";

/** The first two parameters of every function that is fenced by a session: its scope and its generation. */
export function fenceOf(session: Session): [scopeId: number, generation: number] {
  return [session.scopeId, session.generation];
}

/** Calls a function of the ledger that answers with one value. */
export async function call<Value>(database: Queryable, expression: string, values: readonly unknown[]): Promise<Value> {
  const [row] = await database.query<{ answer: Value }>(`select ${expression} as answer`, values);
  assert(row !== undefined, `${expression} answers with one row.`);
  return row.answer;
}

/** Text of a server as PostgreSQL can hold it: U+0000 becomes U+FFFD (as lone surrogates do on the way into UTF-8). */
export function storableText(text: string): string {
  return text.replaceAll("\0", "\uFFFD");
}

/** As `storableText`; `null` where there is none. */
export function optionalText(text: string | undefined): string | null {
  return text === undefined ? null : storableText(text);
}

/** A server's spelling of a URI, except for U+0000, which no URI may hold: it keys as `%00` does (F10). */
export function storableUri(uri: string): string {
  return uri.replaceAll("\0", "%00");
}

/** The same value as JSON that PostgreSQL takes: what is no text to it is replaced in every string. */
export function storableJson(value: unknown): string {
  return JSON.stringify(value, (_, member: unknown) =>
    typeof member === "string" ? Buffer.from(storableText(member)).toString() : member,
  );
}

/** Splits into runs of at most `size`, in order: what runs under the fence is kept short (P2). */
export function* inBatches<Item>(items: readonly Item[], size: number): Generator<readonly Item[]> {
  for (let start = 0; start < items.length; start += size) yield items.slice(start, start + size);
}
