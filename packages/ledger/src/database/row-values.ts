import pg from "pg";
import { FencelineError } from "../errors.js";

const INT8 = pg.types.builtins.INT8;
const INT8_ARRAY: number = 1016;

/**
 * Parsers passed with each statement, so that a pool which belongs to the caller keeps its own. PostgreSQL's `bigint`
 * becomes a number: ordinals, counts and ids stay far below 2^53, and one that does not is an error, never rounded.
 */
export const rowValueTypes: pg.CustomTypesConfig = {
  getTypeParser: ((oid: number, format?: "text" | "binary") => {
    if (format !== "binary") {
      if (oid === INT8) return toSafeInteger;
      if (oid === INT8_ARRAY) return parseIntegerArray;
    }
    return pg.types.getTypeParser(oid, format as "text");
  }) as typeof pg.types.getTypeParser,
};

type NestedText = (string | null | NestedText)[];
type NestedIntegers = (number | null | NestedIntegers)[];

function parseIntegerArray(text: string): NestedIntegers {
  const toIntegers = (items: NestedText): NestedIntegers =>
    items.map((item) => (item === null ? null : Array.isArray(item) ? toIntegers(item) : toSafeInteger(item)));
  return toIntegers(pg.types.getTypeParser(INT8_ARRAY, "text")(text) as NestedText);
}

function toSafeInteger(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) {
    throw new FencelineError(
      "integer_unsafe",
      `The database returned the bigint ${text}, which a JavaScript number cannot hold; cast it to text in the statement.`,
    );
  }
  return value;
}
