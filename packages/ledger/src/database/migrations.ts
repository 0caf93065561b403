import { FencelineError } from "../errors.js";
import type { Database, Queryable } from "./database.js";
import { inSchema, isOlderVersion, type Migration, readSchemaFiles, type SchemaFiles } from "./migration-files.js";

export interface MigrateOptions {
  /** The schema of the ledger's tables: a plain lower-case identifier. Default `fenceline`. */
  schema?: string;
  /** The files to apply. Default: those of this package. */
  files?: SchemaFiles;
}

/** What {@link migrate} did; both lists are empty when there was nothing to do. */
export interface MigrationReport {
  /** Names of the migrations applied now, such as `0001-ledger`. */
  applied: string[];
  /** Names of the function files created anew. */
  functions: string[];
}

interface Applied {
  number: number;
  name: string;
  digest: string;
}

interface FunctionSet {
  digest: string;
  version: string;
  routines: string[];
}

const RECORDS = `
create schema if not exists fenceline;
create table if not exists fenceline.migration (
  number int primary key,
  name text not null,
  digest text not null,
  applied_at timestamptz not null default clock_timestamp()
);
create table if not exists fenceline.function_set (
  singleton boolean primary key default true constraint function_set_is_one_row check (singleton),
  digest text not null,
  version text not null,
  routines text[] not null,
  created_at timestamptz not null default clock_timestamp()
);`;

/**
 * Brings the schema to this version. Any number of processes may call it at once: each migration is applied exactly
 * once, in a transaction of its own. Functions are created anew when the set of function files has changed, unless a
 * newer version of the package created those in place.
 *
 * @throws {FencelineError} `schema_newer`, `schema_invalid_name`, `migration_failed`, `migration_changed`, and as
 * {@link Queryable.query}
 */
export async function migrate(
  database: Database,
  { schema = "fenceline", files = readSchemaFiles() }: MigrateOptions = {},
): Promise<MigrationReport> {
  await refuseInvalidName(database, schema);
  const report: MigrationReport = { applied: [], functions: [] };
  if (await isUpToDate(database, schema, files)) return report;

  await exclusively(database, schema, (transaction) => transaction.query(inSchema(RECORDS, schema)));
  for (const migration of files.migrations) {
    const done = await exclusively(database, schema, (transaction) => apply(transaction, schema, files, migration));
    if (done) report.applied.push(migration.name);
  }
  const created = await exclusively(database, schema, (transaction) => createFunctions(transaction, schema, files));
  if (created) report.functions.push(...files.functions.map(({ name }) => name));
  return report;
}

async function refuseInvalidName(database: Queryable, schema: string): Promise<void> {
  // A keyword passes the pattern, but not the database's own judgement of what needs quotes.
  if (/^[a-z_][a-z0-9_]{0,62}$/.test(schema) && !schema.startsWith("pg_")) {
    const [row] = await database.query<{ plain: boolean }>("select quote_ident($1) = $1 as plain", [schema]);
    if (row?.plain) return;
  }
  throw new FencelineError(
    "schema_invalid_name",
    `${JSON.stringify(schema)} cannot be the ledger's schema: use lower-case letters, digits and underscores, no keyword and nothing beginning with pg_.`,
  );
}

/** Looks without a lock, as nearly every start finds nothing to do. */
async function isUpToDate(database: Queryable, schema: string, files: SchemaFiles): Promise<boolean> {
  const [exists] = await database.query<{ records: boolean }>(
    "select to_regclass($1) is not null and to_regclass($2) is not null as records",
    [`${schema}.migration`, `${schema}.function_set`],
  );
  if (!exists?.records) return false;
  const missing = missingMigrations(files, await appliedMigrations(database, schema), schema);
  return missing.length === 0 && functionsStand(await functionSet(database, schema), files);
}

/**
 * Runs one step in a transaction that no other migrating process overlaps. The lock is by transaction: one held by a
 * session would outlive its process in the embedded database, whose clients share a session.
 */
function exclusively<T>(database: Database, schema: string, step: (transaction: Queryable) => Promise<T>): Promise<T> {
  return database.transaction(async (transaction) => {
    await transaction.query("select pg_advisory_xact_lock(hashtextextended($1, 0))", [
      `fenceline migrations ${schema}`,
    ]);
    return step(transaction);
  });
}

async function apply(
  transaction: Queryable,
  schema: string,
  files: SchemaFiles,
  migration: Migration,
): Promise<boolean> {
  const missing = missingMigrations(files, await appliedMigrations(transaction, schema), schema);
  if (!missing.includes(migration)) return false;
  await run(transaction, migration.name, inSchema(migration.sql, schema));
  await transaction.query(`insert into ${schema}.migration (number, name, digest) values ($1, $2, $3)`, [
    migration.number,
    migration.name,
    migration.digest,
  ]);
  return true;
}

async function createFunctions(transaction: Queryable, schema: string, files: SchemaFiles): Promise<boolean> {
  missingMigrations(files, await appliedMigrations(transaction, schema), schema);
  const present = await functionSet(transaction, schema);
  if (functionsStand(present, files)) return false;
  const grants = await transaction.query<RoutineGrant>(ROUTINE_GRANTS, [schema]);
  // `create or replace` can neither change a result type nor leave out a function that is gone, so all go first.
  if (present && present.routines.length > 0) {
    await transaction.query(`drop routine if exists ${present.routines.join(", ")}`);
  }
  // Functions call one another across files, in any order: bodies are checked when all are there.
  await transaction.query("set local check_function_bodies = off");
  for (const { name, sql } of files.functions) await run(transaction, name, inSchema(sql, schema));
  await transaction.query("set local check_function_bodies = on");
  await run(transaction, "functions/*", checkBodies(schema));
  for (const grant of grants) await grantAgain(transaction, schema, grant);
  await transaction.query(`delete from ${schema}.function_set`);
  await transaction.query(
    `insert into ${schema}.function_set (digest, version, routines) values ($1, $2, ${ROUTINES_OF_THIS_TRANSACTION})`,
    [files.functionsDigest, files.version, schema],
  );
  return true;
}

function checkBodies(schema: string): string {
  return `
    select case l.lanname when 'sql' then fmgr_sql_validator(p.oid) else plpgsql_validator(p.oid) end
      from pg_proc p join pg_namespace n on n.oid = p.pronamespace join pg_language l on l.oid = p.prolang
     where n.nspname = '${schema}' and l.lanname in ('sql', 'plpgsql')`;
}

/** Who else than the owner may execute which function; to role names as SQL quotes them. */
interface RoutineGrant {
  name: string;
  grantee: string;
}

const ROUTINE_GRANTS = `
  select distinct p.proname as name, quote_ident(r.rolname) as grantee
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    cross join lateral aclexplode(p.proacl) a join pg_roles r on r.oid = a.grantee
   where n.nspname = $1 and a.privilege_type = 'EXECUTE' and a.grantee <> p.proowner`;

/** What an operator granted outlives the functions being created anew; a function that is gone takes its grants along. */
async function grantAgain(transaction: Queryable, schema: string, { name, grantee }: RoutineGrant): Promise<void> {
  const routines = await transaction.query<{ signature: string }>(
    `select format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)) as signature
       from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = $1 and p.proname = $2`,
    [schema, name],
  );
  for (const { signature } of routines) {
    await transaction.query(`grant execute on function ${signature} to ${grantee}`);
  }
}

const ROUTINES_OF_THIS_TRANSACTION = `
  (select coalesce(array_agg(format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid))), '{}')
     from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = $3 and p.xmin = pg_current_xact_id()::xid)`;

/**
 * The migrations the database does not have yet.
 *
 * @throws {FencelineError} `schema_newer`, `migration_changed`
 */
function missingMigrations(files: SchemaFiles, applied: readonly Applied[], schema: string): Migration[] {
  const known = new Map(files.migrations.map((migration) => [migration.number, migration]));
  for (const { number, name, digest } of applied) {
    const migration = known.get(number);
    if (!migration) {
      throw new FencelineError(
        "schema_newer",
        `The schema ${schema} has the migration ${name}, which Fenceline ${files.version} does not know. Run the version that applied it, or a newer one.`,
      );
    }
    if (migration.digest !== digest) {
      throw new FencelineError(
        "migration_changed",
        `The migration ${name} in schema ${schema} was applied with other contents than the file has now. Restore the published file; a change of the schema needs a new migration.`,
      );
    }
  }
  const present = new Set(applied.map(({ number }) => number));
  return files.migrations.filter(({ number }) => !present.has(number));
}

function functionsStand(present: FunctionSet | undefined, files: SchemaFiles): boolean {
  if (!present) return false;
  return present.digest === files.functionsDigest || isOlderVersion(files.version, present.version);
}

function appliedMigrations(queryable: Queryable, schema: string): Promise<Applied[]> {
  return queryable.query<Applied>(`select number, name, digest from ${schema}.migration order by number`);
}

async function functionSet(queryable: Queryable, schema: string): Promise<FunctionSet | undefined> {
  const [row] = await queryable.query<FunctionSet>(`select digest, version, routines from ${schema}.function_set`);
  return row;
}

async function run(transaction: Queryable, name: string, sql: string): Promise<void> {
  try {
    await transaction.query(sql);
  } catch (error) {
    if (!(error instanceof FencelineError) || error.code !== "statement_failed") throw error;
    throw new FencelineError("migration_failed", `${name}.sql was refused: ${error.message}`, { cause: error.cause });
  }
}
