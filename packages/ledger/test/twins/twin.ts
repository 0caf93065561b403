import type { Database } from "#src/database/database.js";
import { inSchema, readSchemaFiles } from "#src/database/migration-files.js";
import { assert } from "#src/errors.js";

/**
 * A ledger with one bug planted: the text of a function file with one place changed. A test has power only if it fails
 * on its twin.
 */
export interface Twin {
  /** The bug, in the words of the reliability bar. */
  readonly bug: string;
  /** Function file without `.sql`. */
  readonly file: string;
  /** Stands in the file exactly once. */
  readonly place: string;
  readonly instead: string;
}

/** Plants the bug into a schema of the test's own. The answer takes it out again. */
export async function plant(database: Database, schema: string, twin: Twin): Promise<() => Promise<void>> {
  const file = readSchemaFiles().functions.find(({ name }) => name === twin.file);
  assert(file !== undefined, `There is a function file ${twin.file}.sql.`);
  const times = file.sql.split(twin.place).length - 1;
  assert(
    times === 1,
    `"${twin.place}" stands in ${twin.file}.sql once, not ${times} times: bring "${twin.bug}" up to date.`,
  );
  await database.query(
    inSchema(
      file.sql.replace(twin.place, () => twin.instead),
      schema,
    ),
  );
  return async () => {
    await database.query(inSchema(file.sql, schema));
  };
}
