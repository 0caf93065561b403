import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { describeWithPostgres } from "@fenceline/test-services";
import pg from "pg";
import { describe, expect, test } from "vitest";
import type { Database } from "#src/database/database.js";
import { readSchemaFiles } from "#src/database/migration-files.js";
import { type MigrationReport, migrate } from "#src/database/migrations.js";
import { DatabaseProcess, databaseDirectory, open, temporaryDirectory, until } from "./database-process.js";

const SCHEMA = `migrations_${process.pid}`;

const TABLES = "create schema if not exists fenceline;\ncreate table fenceline.item (n int);\n";
const FUNCTIONS = {
  // Calls a function of a later file: bodies are checked only when all are there.
  "a-count": "create function fenceline.doubled() returns bigint language sql as 'select 2 * fenceline.counted()';",
  "b-items":
    "create function fenceline.counted() returns bigint language sql as 'select count(*) from fenceline.item';",
};

function schemaFiles(migrations: Record<string, string>, functions: Record<string, string>): URL {
  const root = temporaryDirectory();
  for (const [folder, files] of Object.entries({ migrations, functions })) {
    mkdirSync(join(root, folder));
    for (const [name, sql] of Object.entries(files)) writeFileSync(join(root, folder, `${name}.sql`), sql);
  }
  return pathToFileURL(`${root}/`);
}

async function openNew(postgresUrl?: string): Promise<{ address: string; database: Database }> {
  const address = postgresUrl ?? `file:${await databaseDirectory()}`;
  return { address, database: await open(address) };
}

const describeOn = {
  embedded: (name: string, body: (postgresUrl?: string) => void) => describe(name, () => body()),
  postgres: describeWithPostgres,
};

for (const kind of ["embedded", "postgres"] as const) {
  describeOn[kind](`migrations on ${kind}`, (postgresUrl?: string) => {
    test("four processes that open at once apply each migration exactly once", async () => {
      const { address, database } = await openNew(postgresUrl);
      const root = schemaFiles(
        {
          "0001-item": TABLES,
          "0002-row": "insert into fenceline.item values (1);",
          "0003-more": "insert into fenceline.item values (2);",
        },
        FUNCTIONS,
      );
      try {
        const processes = await Promise.all([1, 2, 3, 4].map(() => DatabaseProcess.opened(address)));
        const reports = await Promise.all(
          processes.map((one) => one.call<MigrationReport>("migrate", SCHEMA, root.href, "1.0.0")),
        );
        expect(reports.flatMap(({ applied }) => applied).sort()).toEqual(["0001-item", "0002-row", "0003-more"]);
        expect(reports.flatMap(({ functions }) => functions).sort()).toEqual(["a-count", "b-items"]);
        expect(await database.query(`select ${SCHEMA}.doubled() as n`)).toEqual([{ n: 4 }]);
        const files = readSchemaFiles(root, "1.0.0");
        expect(await migrate(database, { schema: SCHEMA, files })).toEqual({ applied: [], functions: [] });
      } finally {
        await database.query(`drop schema if exists ${SCHEMA} cascade`);
      }
    }, 120_000);

    test("a newer database is refused, a changed migration is refused, and newer functions are left in place", async () => {
      const { database } = await openNew(postgresUrl);
      const migrateTo = (version: string, migrations: Record<string, string>, functions: Record<string, string>) =>
        migrate(database, { schema: SCHEMA, files: readSchemaFiles(schemaFiles(migrations, functions), version) });
      const counted = async () => (await database.query<{ n: number }>(`select ${SCHEMA}.counted() as n`))[0]?.n;
      try {
        await migrateTo("1.0.0", { "0001-item": TABLES }, FUNCTIONS);
        // Another result type and one function fewer: `create or replace` could do neither.
        const newer = { "b-items": "create function fenceline.counted() returns int language sql as 'select 7';" };
        expect(await migrateTo("1.1.0", { "0001-item": TABLES }, newer)).toEqual({
          applied: [],
          functions: ["b-items"],
        });
        expect(await counted()).toBe(7);
        await expect(database.query(`select ${SCHEMA}.doubled()`)).rejects.toMatchObject({ cause: { code: "42883" } });
        expect(await migrateTo("1.0.9", { "0001-item": TABLES }, FUNCTIONS)).toEqual({ applied: [], functions: [] });
        expect(await counted()).toBe(7);

        const more = { "0001-item": TABLES, "0002-row": "insert into fenceline.item values (1);" };
        expect((await migrateTo("1.2.0", more, newer)).applied).toEqual(["0002-row"]);
        await expect(migrateTo("1.1.0", { "0001-item": TABLES }, newer)).rejects.toMatchObject({
          code: "schema_newer",
        });
        const changed = { ...more, "0001-item": `${TABLES}-- changed` };
        await expect(migrateTo("1.2.0", changed, newer)).rejects.toMatchObject({ code: "migration_changed" });
      } finally {
        await database.query(`drop schema if exists ${SCHEMA} cascade`);
      }
    }, 90_000);

    test("a migration that fails leaves nothing of itself, and a function with a broken body is refused", async () => {
      const { database } = await openNew(postgresUrl);
      const migrateTo = (migrations: Record<string, string>, functions: Record<string, string>) =>
        migrate(database, { schema: SCHEMA, files: readSchemaFiles(schemaFiles(migrations, functions), "1.0.0") });
      try {
        const broken = { "0001-item": TABLES, "0002-broken": "create table fenceline.half (n int); select 1/0;" };
        await expect(migrateTo(broken, {})).rejects.toMatchObject({
          code: "migration_failed",
          cause: { code: "22012" },
        });
        const half = await database.query("select to_regclass($1) as half", [`${SCHEMA}.half`]);
        expect(half).toEqual([{ half: null }]);
        const unbound = {
          a: "create function fenceline.f() returns int language sql as 'select fenceline.missing()';",
        };
        await expect(migrateTo({ "0001-item": TABLES }, unbound)).rejects.toMatchObject({ code: "migration_failed" });
      } finally {
        await database.query(`drop schema if exists ${SCHEMA} cascade`);
      }
    }, 90_000);

    test("the ledger's own files apply in a schema of another name, and only there", async () => {
      const { database } = await openNew(postgresUrl);
      const schema = `${SCHEMA}_own`;
      try {
        const report = await migrate(database, { schema });
        expect(report.applied[0]).toBe("0001-ledger");
        const [objects] = await database.query<{ n: number }>(
          "select count(*) as n from pg_class c join pg_namespace s on s.oid = c.relnamespace where nspname = $1",
          [schema],
        );
        expect(objects?.n).toBeGreaterThan(20);
        // On the server that tests share, another one may be using the schema `fenceline`.
        if (kind === "embedded") {
          expect(await database.query("select 1 from pg_namespace where nspname = 'fenceline'")).toEqual([]);
        }
        const files = readSchemaFiles();
        for (const { name, sql } of [...files.migrations, ...files.functions]) {
          // A function with its owner's rights has a path that no schema but PostgreSQL's own is on.
          const lookingNowhere = sql.replaceAll("set search_path = pg_catalog, pg_temp", "");
          expect(lookingNowhere, name).not.toMatch(/search_path|"fenceline"/i);
        }
      } finally {
        await database.query(`drop schema if exists ${schema} cascade`);
      }
    }, 90_000);

    test("a schema name that is no plain identifier is refused before anything is done", async () => {
      const { database } = await openNew(postgresUrl);
      for (const schema of ["Ledger", "a-b", "select", "pg_own", "", 'x"; drop schema public', "x".repeat(64)]) {
        await expect(migrate(database, { schema }), schema).rejects.toMatchObject({ code: "schema_invalid_name" });
      }
    }, 90_000);
  });
}

describeWithPostgres("a PostgreSQL server", (postgresUrl) => {
  test("a pool of the caller's own keeps its parsers and stays open", async () => {
    const pool = new pg.Pool({ connectionString: postgresUrl, max: 2 });
    const database = await open(pool);
    expect(await database.query("select 1::int8 as n")).toEqual([{ n: 1 }]);
    const payloads: string[] = [];
    await database.listen(`ch_${SCHEMA}`, (payload) => payloads.push(payload));
    await database.query("select pg_notify($1, 'hello')", [`ch_${SCHEMA}`]);
    await until("the notification arrived", () => payloads.length === 1);
    await database.close();
    expect((await pool.query("select 1::int8 as n")).rows).toEqual([{ n: "1" }]);
    await pool.end();
  });

  test("connections that the server ends while idle are replaced unnoticed, and a listener reconnects and says so", async () => {
    const address = new URL(postgresUrl);
    address.searchParams.set("application_name", `re_${SCHEMA}`);
    const database = await open(address.href);
    const admin = await open(postgresUrl);
    const heard: string[] = [];
    let reconnects = 0;
    await database.listen(`re_${SCHEMA}`, (payload) => heard.push(payload), { onReconnect: () => reconnects++ });
    const ended = await admin.query(
      "select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1",
      [`re_${SCHEMA}`],
    );
    expect(ended.length).toBeGreaterThan(1);
    await until("the listener is back", () => reconnects === 1);
    expect(await database.query("select 1 as one")).toEqual([{ one: 1 }]);
    await admin.query("select pg_notify($1, 'again')", [`re_${SCHEMA}`]);
    await until("it hears again", () => heard.includes("again"));

    const under = database.transaction(async (transaction) => {
      const [session] = await transaction.query<{ pid: number }>("select pg_backend_pid() as pid");
      await admin.query("select pg_terminate_backend($1)", [session?.pid]);
      await transaction.query("select 1");
    });
    await expect(under).rejects.toMatchObject({ code: "connection_lost" });
  });

  test("that is not there is named without the password, within the deadline", async () => {
    const start = performance.now();
    const opening = open("postgres://me:s3cret@127.0.0.1:1/x?password=s3cret", { connectTimeoutMs: 300 });
    const error = await opening.catch((caught: Error & { code: string }) => caught);
    expect(error).toMatchObject({ code: "database_unreachable" });
    expect((error as Error).message).toContain("127.0.0.1:1");
    expect((error as Error).message).not.toContain("s3cret");
    expect(performance.now() - start).toBeLessThan(2_000);
  });
});
