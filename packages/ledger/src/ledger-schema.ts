import type { Queryable } from "./database/database.js";
import { inSchema } from "./database/migration-files.js";

/**
 * A connection whose statements, written with the literal schema name `fenceline`, run in another schema. Values travel as
 * parameters and are not touched.
 */
export function queryableInSchema(connection: Queryable, schema: string): Queryable {
  return { query: (text, values, options) => connection.query(inSchema(text, schema), values, options) };
}
