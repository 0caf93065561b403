import type pg from "pg";
import { FencelineError } from "../errors.js";

type Parser = (text: string) => unknown;

/** By the OID of the type, as PostgreSQL fixes them (`pg_type.dat`). Whatever is not listed stays text, `numeric` among it. */
const PARSERS = new Map<number, Parser>([
  [16, toBoolean],
  [17, toBytes],
  [20, toSafeInteger],
  [21, Number],
  [23, Number],
  [26, Number],
  [700, Number],
  [701, Number],
  [114, JSON.parse],
  [3802, JSON.parse],
  [1184, toDate],
  [1000, arrayOf(toBoolean)],
  [1001, arrayOf(toBytes)],
  [1005, arrayOf(Number)],
  [1007, arrayOf(Number)],
  [1016, arrayOf(toSafeInteger)],
  [1022, arrayOf(Number)],
  [1009, arrayOf(String)],
  [1015, arrayOf(String)],
  [1185, arrayOf(toDate)],
  [2951, arrayOf(String)],
]);

/**
 * Parsers passed with each statement, so that a pool which belongs to the caller keeps its own, and what the caller made `pg`
 * parse differently everywhere (dates as text, `bigint` as BigInt) changes nothing here. PostgreSQL's `bigint` becomes a
 * number: ordinals, counts and ids stay below 2^53, and one that does not is an error, never rounded.
 */
export const rowValueTypes: pg.CustomTypesConfig = {
  getTypeParser: ((oid: number) => PARSERS.get(oid) ?? String) as typeof pg.types.getTypeParser,
};

function toBoolean(text: string): boolean {
  return text === "t";
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

/** Both ways in which a server may write bytes (`bytea_output`). */
function toBytes(text: string): Buffer {
  if (text.startsWith("\\x")) return Buffer.from(text.slice(2), "hex");
  const bytes = text.replace(/\\(\\|[0-3][0-7]{2})/g, (_, escaped: string) =>
    escaped === "\\" ? "\\" : String.fromCharCode(Number.parseInt(escaped, 8)),
  );
  return Buffer.from(bytes, "latin1");
}

const TIMESTAMP = /^(\d{4,6})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(\.\d+)?([+-]\d\d)(?::?(\d\d))?(?::?(\d\d))?( BC)?$/;

/** In the ISO style, which the ledger makes sure of when it opens a database (`session-settings.ts`). */
function toDate(text: string): Date | number {
  if (text === "infinity") return Number.POSITIVE_INFINITY;
  if (text === "-infinity") return Number.NEGATIVE_INFINITY;
  const [, year, month, day, hour, minute, second, fraction, zone, zoneMinutes, zoneSeconds, bc] =
    TIMESTAMP.exec(text) ?? [];
  if (year === undefined) {
    throw new FencelineError(
      "statement_failed",
      `The database returned the time ${text}, which is not in the ISO style.`,
    );
  }
  const date = new Date(0);
  date.setUTCFullYear(bc === undefined ? Number(year) : 1 - Number(year), Number(month) - 1, Number(day));
  date.setUTCHours(Number(hour), Number(minute), Number(second), Math.floor(Number(fraction ?? 0) * 1000));
  const east = Math.abs(Number(zone)) * 3600 + Number(zoneMinutes ?? 0) * 60 + Number(zoneSeconds ?? 0);
  return new Date(date.getTime() - (zone?.startsWith("-") ? -east : east) * 1000);
}

type Nested<Value> = (Value | null | Nested<Value>)[];

/** An array as PostgreSQL writes it: `{1,NULL,"a \"b\"",{2}}`, with bounds before it where they are not the usual ones. */
function arrayOf<Value>(toValue: (text: string) => Value): (text: string) => Nested<Value> {
  return (text) => {
    let at = text.indexOf("{");
    const quoted = (): string => {
      let value = "";
      for (at += 1; text[at] !== '"'; at += 1) {
        if (text[at] === "\\") at += 1;
        value += text[at];
      }
      at += 1;
      return value;
    };
    const bare = (): string => {
      const from = at;
      while (text[at] !== "," && text[at] !== "}") at += 1;
      return text.slice(from, at);
    };
    const list = (): Nested<Value> => {
      const values: Nested<Value> = [];
      for (at += 1; text[at] !== "}"; ) {
        if (text[at] === ",") at += 1;
        else if (text[at] === "{") values.push(list());
        else if (text[at] === '"') values.push(toValue(quoted()));
        else {
          const value = bare();
          values.push(value === "NULL" ? null : toValue(value));
        }
      }
      at += 1;
      return values;
    };
    return list();
  };
}
