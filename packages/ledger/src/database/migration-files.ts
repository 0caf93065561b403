import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { assert } from "../errors.js";

/** One SQL file, written with the literal schema name `fenceline`. */
export interface SqlFile {
  /** File name without `.sql`. */
  name: string;
  sql: string;
  digest: string;
}

export interface Migration extends SqlFile {
  number: number;
}

/** Everything that makes up the schema of one version. */
export interface SchemaFiles {
  /** Version of the package, `major.minor.patch`. */
  version: string;
  /** In the order of their numbers, none of which comes twice. */
  migrations: Migration[];
  functions: SqlFile[];
  /** Of all function files together, with their names. */
  functionsDigest: string;
}

/** The SQL lies beside the sources, which the package ships for this: the compiler copies no other files. */
const SQL_ROOT = new URL("../../src/database/", import.meta.url);
const PACKAGE_JSON = new URL("../../package.json", import.meta.url);

/** Reads the files of the installed package, or, for tests, of another folder with the same layout. */
export function readSchemaFiles(root: URL = SQL_ROOT, version: string = packageVersion()): SchemaFiles {
  const migrations = readSqlFiles(new URL("migrations/", root)).map((file) => ({
    ...file,
    number: Number(/^(\d{4})-/.exec(file.name)?.[1]),
  }));
  for (const [index, { name, number }] of migrations.entries()) {
    const before = migrations[index - 1]?.number ?? 0;
    assert(number > before, `The migration ${name} has no number, or one that another migration has.`);
  }
  const functions = readSqlFiles(new URL("functions/", root));
  const functionsDigest = digestOf(functions.map(({ name, digest }) => `${name} ${digest}\n`).join(""));
  return { version, migrations, functions, functionsDigest };
}

/** Puts a schema's name where the files say `fenceline`: as a qualifier, and after the word `schema`. */
export function inSchema(sql: string, schema: string): string {
  return sql
    .replace(/\bfenceline\./g, `${schema}.`)
    .replace(/\b(schema\s+(?:if\s+(?:not\s+)?exists\s+)?)fenceline\b/gi, `$1${schema}`);
}

/** Whether `left` is an older version than `right`. */
export function isOlderVersion(left: string, right: string): boolean {
  const [a, b] = [left, right].map((version) => version.split(/[.+-]/).slice(0, 3).map(Number));
  for (const [index, part] of (a ?? []).entries()) {
    const other = b?.[index] ?? 0;
    if (part !== other) return part < other;
  }
  return false;
}

function readSqlFiles(folder: URL): SqlFile[] {
  return readdirSync(folder)
    .filter((file) => file.endsWith(".sql"))
    .sort()
    .map((file) => {
      const sql = readFileSync(new URL(file, folder), "utf8").replaceAll("\r\n", "\n");
      return { name: file.slice(0, -".sql".length), sql, digest: digestOf(sql) };
    });
}

function packageVersion(): string {
  return (JSON.parse(readFileSync(PACKAGE_JSON, "utf8")) as { version: string }).version;
}

function digestOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
