import type { Queryable } from "./database/database.js";

/** The schema our statements and function files are written with. */
export const WRITTEN_SCHEMA = "fenceline";

/** Statements as they run in another schema. Only our own text is changed: values travel as parameters. */
export function inSchema<Connection extends Queryable>(connection: Connection, schema: string): Queryable {
  if (schema === WRITTEN_SCHEMA) return connection;
  return {
    query: (text, values) => connection.query(text.replaceAll(`${WRITTEN_SCHEMA}.`, `${schema}.`), values),
  };
}
