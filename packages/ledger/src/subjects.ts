import type { Queryable } from "./database/database.js";
import { FencelineError } from "./errors.js";

/** One source under one subject: the unit of the scope fence. */
export interface PolicyScope {
  readonly scopeId: number;
  readonly sourceId: number;
  readonly subjectId: number;
}

/**
 * The id of a registered source.
 *
 * @throws {FencelineError} `source_unknown`
 */
export async function sourceIdOf(database: Queryable, source: string): Promise<number> {
  const [row] = await database.query<{ source_id: number }>("select source_id from fenceline.source where name = $1", [
    source,
  ]);
  if (row === undefined) throw unknownSource(source);
  return row.source_id;
}

/** The id of a subject (a reader or an audience), created where it is new. */
export async function ensureSubject(database: Queryable, subject: string): Promise<number> {
  const [row] = await database.query<{ subject_id: number }>("select fenceline.ensure_subject($1) as subject_id", [
    subject,
  ]);
  return row?.subject_id as number;
}

export function unknownSource(source: string): FencelineError {
  return new FencelineError(
    "source_unknown",
    `No source named ${JSON.stringify(source)} is registered: register it, or correct the name.`,
  );
}
