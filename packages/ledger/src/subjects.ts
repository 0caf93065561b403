import type { Queryable } from "./database/database.js";
import { FencelineError } from "./errors.js";

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

export function unknownSource(source: string): FencelineError {
  return new FencelineError(
    "source_unknown",
    `No source named ${JSON.stringify(source)} is registered: register it, or correct the name.`,
  );
}
