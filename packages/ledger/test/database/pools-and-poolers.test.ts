import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describeWhere, describeWithPostgres } from "@fenceline/test-services";
import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Database, openDatabase } from "#src/database/database.js";
import { type Ledger, type OpenLedgerOptions, openLedger } from "#src/ledger.js";
import { fileWitness } from "#src/witness.js";
import {
  activeSource,
  brokenInvariants,
  createIndex,
  indexDue,
  purge,
  readNow,
  seen,
  wholeLedgerOf,
} from "../whole-ledger.js";
import { open, temporaryDirectory, until } from "./database-process.js";
import { freePort, hasProgram, idsOf, type OwnPostgres, postgresPrograms, startOwnPostgres } from "./own-postgres.js";
import { TransactionPooler } from "./transaction-pooler.js";

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** A ledger in a schema of its own, dropped after the test. */
async function openOwn(address: string | pg.Pool, options: OpenLedgerOptions = {}): Promise<Ledger> {
  const schema = `pools_${randomUUID().slice(0, 8)}`;
  const ledger = await openLedger(address, { schema, ...options });
  ends.push(async () => {
    await ledger.database.query(`drop schema if exists ${schema} cascade`);
    await ledger.close();
  });
  return ledger;
}

describeWithPostgres("a prepared statement", (url) => {
  test("whose function was created anew with other columns, or that the server dropped, is prepared again", async () => {
    const database = await openDatabase(url, { maxConnections: 1 });
    const name = `prepared_${randomUUID().slice(0, 8)}`;
    ends.push(async () => {
      await database.query(`drop schema if exists ${name} cascade`);
      await database.close();
    });
    await database.query(`create schema ${name}`);
    const create = (columns: string, body: string) =>
      database.query(`drop function if exists ${name}.f(int);
        create function ${name}.f(n int) returns table (${columns}) language sql as $$ select ${body} $$`);
    const ask = () => database.query(`select * from ${name}.f($1)`, [1], { prepared: true });
    await create("a int", "n");
    expect(await ask()).toEqual([{ a: 1 }]);
    const prepared = "select count(*)::int as count from pg_prepared_statements where statement like $1";
    expect(await database.query(prepared, [`%${name}.f%`])).toEqual([{ count: 1 }]);
    await create("a int, b text", "n, 'more'");
    expect(await ask()).toEqual([{ a: 1, b: "more" }]);
    await database.query("deallocate all");
    expect(await ask()).toEqual([{ a: 1, b: "more" }]);
    await create("a int", "1 / (n - n)");
    await expect(ask()).rejects.toMatchObject({ code: "statement_failed" });
  });
});

describeWithPostgres("a call that waits for a connection while the ledger is closed", (url) => {
  /** Closes while one transaction has the only connection and other calls wait for it; it ends after they have answered. */
  async function closedWhileWaiting(database: Database): Promise<unknown[]> {
    const { closed, settled } = await database.transaction(async (transaction) => {
      await transaction.query("select 1");
      const waiting = [database.query("select 1"), database.transaction((second) => second.query("select 1"))];
      const answers = Promise.allSettled(waiting);
      const closed = database.close();
      return { closed, settled: await answers };
    });
    await closed;
    return settled.map((answer) => answer.status === "rejected" && answer.reason.code);
  }

  test("is refused at once, and what runs is waited for", async () => {
    const closed = ["ledger_closed", "ledger_closed"];
    expect(await closedWhileWaiting(await openDatabase(url, { maxConnections: 1 }))).toEqual(closed);
    const pool = new pg.Pool({ connectionString: url, max: 1 });
    ends.push(() => pool.end());
    expect(await closedWhileWaiting(await openDatabase(pool))).toEqual(closed);
    expect((await pool.query("select 1 as one")).rows).toEqual([{ one: 1 }]);
  });
});

/** Scan, read, index, ask, revoke, purge, lift: a call of every area. */
async function wholeStory(opened: Ledger): Promise<void> {
  const ledger = wholeLedgerOf(opened);
  const index = await createIndex(ledger);
  const uris = ["catalog://plans/a", "catalog://plans/b"];
  const { session, source } = await activeSource(ledger, uris);
  await readNow(ledger, session, uris, (uri) => `${uri}\nprice=100`);
  await indexDue(ledger, index, source);
  await ledger.grant({ source, reader: "svc:rag", audience: "group:sales", scope: { prefix: "catalog://plans/" } });
  expect(await seen(ledger, index, ["user:bob", "group:sales"])).toHaveLength(4);
  await ledger.recordNotifications(session, [uris[0] as string]);
  await readNow(ledger, session, [uris[0] as string], (uri) => `${uri}\nprice=120`);
  await indexDue(ledger, index, source);
  const { revocationId } = await ledger.revoke({
    source,
    subject: "svc:rag",
    role: "reader",
    scope: { uri: uris[1] as string },
    reason: "t",
  });
  expect(await seen(ledger, index, ["group:sales"])).toEqual([uris[0], "price=120"].sort());
  while ((await ledger.advanceRevocation(revocationId)) === "more");
  await purge(ledger, index);
  expect((await ledger.revocation(revocationId))?.state).toBe("COMPLETE");
  expect(
    (await ledger.listRevocations()).some(({ effectiveAt }) => Math.abs(effectiveAt.getTime() - Date.now()) < 60_000),
  ).toBe(true);
  await ledger.lift(revocationId);
  expect(await brokenInvariants(ledger)).toEqual([]);
}

describeWithPostgres("a pool of the caller's own", (url) => {
  function poolWith(config: pg.PoolConfig): pg.Pool {
    const pool = new pg.Pool({ connectionString: url, max: 3, ...config });
    pool.on("error", () => {});
    ends.push(() => (pool.ended ? undefined : pool.end()));
    return pool;
  }

  test("with another search_path, type parsers, timeouts and output styles changes nothing", async () => {
    const { getTypeParser, setTypeParser } = pg.types;
    const oids = [16, 17, 20, 23, 114, 1184, 1016, 1009, 3802];
    const before = oids.map((oid) => [oid, getTypeParser(oid)] as const);
    ends.push(() => {
      for (const [oid, parser] of before) setTypeParser(oid, parser as (text: string) => unknown);
    });
    // What an application may have done to `pg` as a whole, and to its own pool.
    for (const oid of oids) setTypeParser(oid, (text: string) => ({ text }));
    const options =
      "-c search_path=pg_temp -c statement_timeout=60000 -c idle_in_transaction_session_timeout=60000 -c bytea_output=escape " +
      "-c timezone=Asia/Kolkata -c intervalstyle=postgres_verbose -c extra_float_digits=0 -c lock_timeout=60000";
    const pool = poolWith({
      options,
      types: { getTypeParser: (() => () => "theirs") as typeof pg.types.getTypeParser },
    });
    await wholeStory(await openOwn(pool));
    expect((await pool.query("select 1 as one")).rows).toEqual([{ one: "theirs" }]);
  }, 60_000);

  test.each([
    ["default_transaction_isolation=repeatable\\ read", "default_transaction_isolation"],
    ["default_transaction_isolation=serializable", "default_transaction_isolation"],
    ["default_transaction_read_only=on", "default_transaction_read_only"],
    ["datestyle=German", "datestyle"],
  ])("with %s is refused, and the error names the setting", async (setting, name) => {
    const error = await openLedger(poolWith({ options: `-c ${setting}` })).catch((caught: Error) => caught);
    expect(error).toMatchObject({ code: "session_unsuitable" });
    expect((error as Error).message).toContain(name);
  });

  test("of one connection carries the whole story, also beside a listener", async () => {
    const ledger = await openOwn(poolWith({ max: 1 }));
    const listening = await ledger.onWake(() => {});
    expect(listening.delivers).toBe(true);
    await wholeStory(ledger);
    await listening.close();
  }, 60_000);

  test("that is exhausted or ended is named within the deadline, and a pool that is free again serves", async () => {
    const pool = poolWith({ max: 1 });
    const database = await openDatabase(pool, { connectTimeoutMs: 300 });
    const taken = await pool.connect();
    await expect(database.query("select 1")).rejects.toMatchObject({ code: "database_unreachable" });
    taken.release();
    expect(await database.query("select 1 as one")).toEqual([{ one: 1 }]);
    await pool.end();
    const error = await database.query("select 1").catch((caught: Error) => caught);
    expect(error).toMatchObject({ code: "database_unreachable" });
    expect((error as Error).message).toMatch(/pool after calling end/);
  });

  test("answers bigint, bytes, times, JSON and arrays as they are, whatever the style they are written in", async () => {
    const database = await openDatabase(poolWith({ options: "-c bytea_output=escape -c timezone=America/St_Johns" }));
    const [row] = await database.query(
      `select true as yes, 7::int8 as n, '\\x00ff5c41'::bytea as bytes, timestamptz '2026-03-01 12:30:15.123456Z' as at,
              timestamptz '0001-12-31 23:59:59Z' as early, 'infinity'::timestamptz as never, '{"a": [1]}'::jsonb as json,
              array['a b', null, 'q"\\', 'NULL', '{}', ''] as texts, array[[1, 2], [3, null]]::int8[] as numbers,
              array['\\x00ff'::bytea] as many, '{}'::int4[] as none, 1.5::float8 as float, 2.50::numeric as exact`,
    );
    expect(row).toEqual({
      yes: true,
      n: 7,
      bytes: Buffer.from([0, 255, 92, 65]),
      at: new Date("2026-03-01T12:30:15.123Z"),
      early: new Date("0001-12-31T23:59:59Z"),
      never: Number.POSITIVE_INFINITY,
      json: { a: [1] },
      texts: ["a b", null, 'q"\\', "NULL", "{}", ""],
      numbers: [
        [1, 2],
        [3, null],
      ],
      many: [Buffer.from([0, 255])],
      none: [],
      float: 1.5,
      exact: "2.50",
    });
  });
});

const LEFT_IN_THE_SESSION = `
  select name from pg_settings where source = 'session' and name not in ('client_encoding', 'application_name')
  union all select statement from pg_prepared_statements
  union all select locktype from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()
  union all select relname from pg_class where relpersistence = 't' and pg_table_is_visible(oid)`;

describeWithPostgres("a pooler in transaction mode", (url) => {
  test("carries the whole story though each transaction runs on another connection, which keeps no setting of ours", async () => {
    const { pooler, url: pooled } = await TransactionPooler.start(url, 4);
    ends.push(() => pooler.stop());
    const ledger = await openOwn(pooled, { listenAddress: url });
    const heard: string[] = [];
    const listening = await ledger.onWake(({ kind }) => heard.push(kind));
    expect(listening.delivers).toBe(true);
    await wholeStory(ledger);
    await until("the revocation was heard", () => heard.includes("revocation"));
    for (const transactions of pooler.transactions) expect(transactions).toBeGreaterThan(10);
    for (let n = 0; n < 4; n += 1) {
      expect(await ledger.database.query(LEFT_IN_THE_SESSION)).toEqual([]);
    }
    await listening.close();
  }, 60_000);

  test("without an address for listening carries the story as well, and says that nothing is heard", async () => {
    const { pooler, url: pooled } = await TransactionPooler.start(url, 3);
    ends.push(() => pooler.stop());
    const ledger = await openOwn(pooled);
    const listening = await ledger.onWake(() => {});
    expect(listening.delivers).toBe(false);
    await listening.close();
    await wholeStory(ledger);
    for (let n = 0; n < 3; n += 1) expect(await ledger.database.query(LEFT_IN_THE_SESSION)).toEqual([]);
  }, 60_000);

  const pgbouncer = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].find((path) => existsSync(path));
  describeWhere(pgbouncer !== undefined, "no pgbouncer", "that is PgBouncer", () => {
    test("carries the whole story", async () => {
      const ledger = await openOwn(await startPgBouncer(pgbouncer as string, url), { listenAddress: url });
      await wholeStory(ledger);
    }, 60_000);
  });
});

async function startPgBouncer(program: string, url: string): Promise<string> {
  const { hostname, port, pathname, username } = new URL(url);
  const folder = mkdtempSync(join(tmpdir(), "fenceline-pgbouncer-"));
  chmodSync(folder, 0o755);
  const listenPort = await freePort();
  writeFileSync(
    join(folder, "pgbouncer.ini"),
    `[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port=${listenPort}\n` +
      `auth_type=any\npool_mode=transaction\ndefault_pool_size=4\nserver_reset_query=\nunix_socket_dir=\n` +
      `[databases]\n${pathname.slice(1)} = host=${hostname} port=${port || 5432} user=${username} pool_size=4\n`,
  );
  const user = process.getuid?.() === 0 ? idsOf("postgres") : {};
  const child: ChildProcess = spawn(program, [join(folder, "pgbouncer.ini")], { stdio: "ignore", ...user });
  ends.push(async () => {
    child.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  });
  const pooled = new URL(url);
  pooled.hostname = "127.0.0.1";
  pooled.port = String(listenPort);
  await until("PgBouncer answers", async () => {
    const client = new pg.Client({ connectionString: pooled.href });
    client.on("error", () => {});
    return client.connect().then(
      () => client.end().then(() => true),
      () => false,
    );
  });
  return pooled.href;
}

const canRunOwn = postgresPrograms() !== undefined && hasProgram("openssl");
describeWhere(
  canRunOwn,
  "no PostgreSQL server or openssl to run",
  "a PostgreSQL of one's own with TLS and a password",
  () => {
    let server: OwnPostgres | undefined;
    const own = () => server as OwnPostgres;
    beforeAll(async () => {
      server = await startOwnPostgres();
    }, 120_000);
    afterAll(() => server?.stop());

    describe("by its URL", () => {
      test("is trusted by its authority alone, and what is said of it holds no password", async () => {
        const trusted = own().url(`sslmode=verify-full&sslrootcert=${own().authorityPath}`);
        const ledger = await openOwn(trusted);
        const [tls] = await ledger.database.query<{ ssl: boolean }>(
          "select ssl from pg_stat_ssl where pid = pg_backend_pid()",
        );
        expect(tls?.ssl).toBe(true);
        const listening = await ledger.onWake(() => {});
        expect(listening.delivers).toBe(true);
        await listening.close();
        expect(ledger.address).toContain(`127.0.0.1:${own().port}`);
        expectNoPassword(ledger.address);
        await openOwn(own().url("sslmode=no-verify"));
        await openOwn(own().url("uselibpqcompat=true&sslmode=require"));
      }, 60_000);

      test.each([
        ["another authority", () => own().url(`sslmode=verify-full&sslrootcert=${own().otherAuthorityPath}`)],
        ["no TLS", () => own().url()],
        ["a wrong password", () => own().url("sslmode=no-verify", "s3cret/p@ss wrong")],
      ])("is not opened with %s, and the error holds no password", async (_, address) => {
        const error = await openLedger(address()).catch((caught: Error) => caught);
        expect(error).toMatchObject({ code: "database_unreachable" });
        expectNoPassword(
          JSON.stringify([(error as Error).message, String((error as Error).cause), (error as Error).stack]),
        );
      });
    });

    test("by a pool with its settings of TLS", async () => {
      const pool = new pg.Pool({
        host: "127.0.0.1",
        port: own().port,
        user: "postgres",
        password: own().password,
        database: "postgres",
        ssl: { rejectUnauthorized: false },
      });
      ends.push(() => pool.end());
      const ledger = await openOwn(pool);
      const listening = await ledger.onWake(() => {});
      expect(listening.delivers).toBe(true);
      await listening.close();
      await wholeStory(ledger);
    }, 60_000);

    test("that crashed amid its work is not taken for a restored backup", async () => {
      const witness = fileWitness(temporaryDirectory("witness"));
      const address = own().url("sslmode=no-verify");
      for (let round = 0; round < 3; round += 1) {
        const ledger = await openLedger(address, { witness, witnessOptions: { intervalMs: 1 } });
        expect(ledger.restored).toBeUndefined();
        let crashed = false;
        const work = (async () => {
          for (let n = 0; !crashed; n += 1) {
            await ledger.registerSource({ name: `source-${round}-${n}` });
            await ledger.revoke({ subject: `user:${round}-${n}`, reason: "left" });
          }
        })().catch((error: { code: string }) => error.code);
        await until("it wrote", async () => (await witness.read()).revocations.length > (round + 1) * 20);
        own().crashAndStart();
        crashed = true;
        await work;
        await ledger.close();
      }
      const last = await openLedger(address, { witness });
      expect(last.restored).toBeUndefined();
      await last.close();
    }, 120_000);

    function expectNoPassword(text: string): void {
      for (const form of [own().password, encodeURIComponent(own().password), "s3cret"])
        expect(text).not.toContain(form);
    }
  },
);

test("a database that is reached by a pooler takes a listen address of PostgreSQL only", async () => {
  await expect(open("postgres://127.0.0.1:1/x", { listenAddress: "file:x" })).rejects.toMatchObject({
    code: "address_invalid",
  });
});
