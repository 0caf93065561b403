import { spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmdirSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, relative } from "node:path";
import { describeWhere } from "@fenceline/test-services";
import { describe, expect, test } from "vitest";
import { openDatabase } from "#src/database/database.js";
import { readLock } from "#src/database/embedded/directory-lock.js";
import { DatabaseProcess, databaseDirectory, now, open, temporaryDirectory, until } from "./database-process.js";

const TAKEOVER_MS = 5_000;

function holderOf(directory: string): number | undefined {
  return readLock(join(directory, "lock"))?.holder.pid;
}

/** Whether a process has files of the database open: only the one that runs PGlite does. */
function hasDataOpen(pid: number, directory: string): boolean {
  const folder = `/proc/${pid}/fd`;
  return readdirSync(folder).some((fd) => {
    try {
      return readlinkSync(join(folder, fd)).startsWith(join(directory, "pglite"));
    } catch {
      return false;
    }
  });
}

describe("an embedded database whose holder goes away", () => {
  test("a killed holder is replaced by the other process within 5 s, and no acknowledged row is lost", async () => {
    const directory = await databaseDirectory();
    const holder = await DatabaseProcess.opened(`file:${directory}`);
    await holder.call("query", "create table acknowledged (n int)");
    const other = await DatabaseProcess.opened(`file:${directory}`);
    await other.call("listen", "ch");
    other.begin("write", "acknowledged");
    const acknowledged = () => other.events.flatMap(({ event, n }) => (event === "acknowledged" ? [n] : []));
    await until("rows were written", () => acknowledged().length > 200);

    const killedAt = now();
    await holder.kill();
    const written = acknowledged().length;
    await until("the other process writes again", () => acknowledged().length > written + 200, 15_000);
    const back = other.events.find(({ event, at }) => event === "acknowledged" && at > killedAt + 20);
    const pause = (back?.at ?? Number.POSITIVE_INFINITY) - killedAt;
    const failed = other.events.filter(({ event }) => event === "failed");
    console.log(
      `served again ${pause.toFixed(0)} ms after SIGKILL; ${acknowledged().length} acknowledged, ${failed.length} of unknown effect`,
    );
    expect(pause).toBeLessThan(TAKEOVER_MS);
    expect(failed.length).toBeLessThanOrEqual(1); // the one statement that was under way
    for (const { code } of failed) expect(code).toBe("connection_lost");
    expect(holderOf(directory)).toBe(other.pid);
    await until("the listener was told", () => other.events.some(({ event }) => event === "reconnect"));

    const database = await open(`file:${directory}`);
    const sure = acknowledged();
    const stored = new Set((await database.query<{ n: number }>("select n from acknowledged")).map(({ n }) => n));
    expect(sure.filter((n) => !stored.has(n as number))).toEqual([]);
    await database.query("select pg_notify('ch', 'after')");
    await until("it hears again", () => other.events.some(({ payload }) => payload === "after"));
  }, 120_000);

  test("of three waiting successors exactly one becomes the holder, again and again, and all are served", async () => {
    const directory = await databaseDirectory();
    const processes = [await DatabaseProcess.opened(`file:${directory}`)];
    await processes[0]?.call("query", "create table item (n int)");
    processes.push(...(await Promise.all([1, 2, 3].map(() => DatabaseProcess.opened(`file:${directory}`)))));
    for (let n = 1; processes.length > 1; n++) {
      const killed = processes.find(({ pid }) => pid === holderOf(directory));
      await killed?.kill();
      processes.splice(processes.indexOf(killed as DatabaseProcess), 1);
      await Promise.all(processes.map((one) => one.call("query", "insert into item values ($1)", [n])));
      const holding = processes.filter(({ pid }) => hasDataOpen(pid, directory));
      expect(holding.map(({ pid }) => pid)).toEqual([holderOf(directory)]);
    }
    const rows = await processes[0]?.call("query", "select n, count(*) from item group by n order by n");
    expect(rows).toEqual([
      { n: 1, count: 3 },
      { n: 2, count: 2 },
      { n: 3, count: 1 },
    ]);
  }, 90_000);

  test("a holder that closes hands over without one failed statement in the other process", async () => {
    const directory = await databaseDirectory();
    const holder = await DatabaseProcess.opened(`file:${directory}`);
    await holder.call("query", "create table written (n int)");
    const other = await DatabaseProcess.opened(`file:${directory}`);
    other.begin("write", "written");
    const acknowledged = () => other.events.filter(({ event }) => event === "acknowledged").length;
    await until("rows were written", () => acknowledged() > 100);
    await holder.call("close");
    const written = acknowledged();
    await until("the other process writes again", () => acknowledged() > written + 100);
    expect(other.events.filter(({ event }) => event === "failed")).toEqual([]);
    expect(holderOf(directory)).toBe(other.pid);
    const [row] = await other.call<{ n: number; distinct: number }[]>(
      "query",
      `select count(*) as n, count(distinct n) as "distinct" from written`,
    );
    expect(row?.n).toBe(row?.distinct); // and none was run twice
  }, 120_000);

  test("a closing holder waits for another client's open transaction, which commits", async () => {
    const directory = await databaseDirectory();
    const holder = await openDatabase(`file:${directory}`);
    await holder.query("create table item (n int)");
    const other = await open(`file:${directory}`);
    let closing: Promise<void> | undefined;
    await other.transaction(async (transaction) => {
      await transaction.query("insert into item values (1)");
      closing = holder.close();
      await until("new connections are refused", () => !existsSync(`${other.connectionOptions.host}/.s.PGSQL.5432`));
      await transaction.query("insert into item values (2)");
    });
    await closing;
    expect(await other.query("select n from item order by n")).toEqual([{ n: 1 }, { n: 2 }]);
  }, 90_000);

  test("the lock of a killed process does not stop the next one, and what it had not committed is gone", async () => {
    const directory = await databaseDirectory();
    const killed = await DatabaseProcess.opened(`file:${directory}`);
    await killed.call("query", "create table item (n int); insert into item values (1)");
    await killed.call("leaveTransactionOpen", "insert into item values (2)");
    await killed.kill();
    expect(holderOf(directory)).toBe(killed.pid);
    const database = await open(`file:${directory}`);
    expect(await database.query("select n from item")).toEqual([{ n: 1 }]);
    expect(holderOf(directory)).toBe(process.pid);
  }, 90_000);

  test("a process killed while it created the database leaves nothing that stops the next one", async () => {
    const directory = temporaryDirectory();
    const killed = await DatabaseProcess.start();
    killed.begin("open", `file:${directory}`);
    await until("files are being written", () => existsSync(join(directory, "pglite", "base")));
    await killed.kill();
    const database = await open(`file:${directory}`);
    expect(await database.query("select 1 as one")).toEqual([{ one: 1 }]);
  }, 90_000);
});

describe("an embedded database that was closed", () => {
  test("leaves no lock, no socket and no thread, and its process ends by itself", async () => {
    const directory = await databaseDirectory();
    const process = await DatabaseProcess.start();
    const { connectionOptions } = await process.call<{ connectionOptions: { host: string } }>(
      "open",
      `file:${directory}`,
    );
    await process.call("listen", "ch");
    await process.call("query", "select 1");
    await process.call("close");
    expect(readdirSync(directory)).toEqual(["pglite"]);
    expect(existsSync(connectionOptions.host)).toBe(false);
    process.begin("leave");
    expect(await process.exited).toBe(0);
  }, 90_000);

  test("and one that was left open does not keep its process alive either", async () => {
    const directory = await databaseDirectory();
    const process = await DatabaseProcess.opened(`file:${directory}`);
    await process.call("query", "select 1");
    process.begin("leave");
    expect(await process.exited).toBe(0);
  }, 90_000);
});

describe("where an embedded database may lie", () => {
  test("below a path with spaces and of more than 108 bytes", async () => {
    const directory = temporaryDirectory(join("with a space", "x".repeat(120), "état"));
    const database = await open(`file:${directory}`);
    const other = await DatabaseProcess.opened(`file:${directory}`);
    expect(await other.call("query", "select 1 as one")).toEqual([{ one: 1 }]);
    await database.close();
  }, 90_000);

  test("relative to the working directory, or behind a link: one place, one database", async () => {
    const directory = await databaseDirectory();
    symlinkSync(directory, join(directory, "link"));
    const database = await open(`file:${relative(process.cwd(), directory)}`);
    const behindLink = await open(`file:${join(directory, "link")}`);
    expect(database.address).toBe(`file:${directory}`);
    expect(behindLink.connectionOptions).toEqual(database.connectionOptions);
    await expect(openDatabase("sqlite:x")).rejects.toMatchObject({ code: "address_invalid" });
    await expect(openDatabase("file:")).rejects.toMatchObject({ code: "address_invalid" });
  }, 90_000);

  describeWhere(
    mayBecomeOthers(),
    "not root, or alone in a user namespace",
    "in a directory of an ordinary user",
    () => {
      test("into which root may look", async () => {
        const [directory, uid] = [temporaryDirectory(), 65534];
        chmodSync(directory, 0o700);
        chownSync(directory, uid, uid);
        const user = await DatabaseProcess.start({ uid });
        const { connectionOptions } = await user.call<{ connectionOptions: { host: string } }>(
          "open",
          `file:${directory}`,
        );
        expect(connectionOptions.host).toContain(`fenceline-${uid}`);
        const asRoot = await open(`file:${directory}`);
        expect(await asRoot.query("select 1 as one")).toEqual([{ one: 1 }]);
        await asRoot.close();
        await user.call("close");
      }, 30_000);
    },
  );

  test("beside a folder of its name that is somebody else's, or open to others", async () => {
    const temporary = temporaryDirectory();
    const taken = join(temporary, `fenceline-${process.getuid?.() ?? 0}`);
    mkdirSync(taken);
    chmodSync(taken, 0o777);
    const directory = await databaseDirectory();
    const env = { TMPDIR: temporary };
    const [first, second] = [await DatabaseProcess.start({ env }), await DatabaseProcess.start({ env })];
    for (const process of [first, second]) {
      const { connectionOptions } = await process.call<{ connectionOptions: { host: string } }>(
        "open",
        `file:${directory}`,
      );
      expect(dirname(connectionOptions.host)).toBe(`${taken}-2`);
    }
    expect(readdirSync(taken)).toEqual([]);
    await second.call("close");
    await first.call("close");
  }, 90_000);

  test("not in a socket folder that others may write to", async () => {
    const directory = await databaseDirectory();
    const database = await openDatabase(`file:${directory}`);
    const folder = `${database.connectionOptions.host}`;
    await database.close();
    mkdirSync(folder);
    chmodSync(folder, 0o777);
    await expect(openDatabase(`file:${directory}`)).rejects.toThrow(/not private/);
    expect(existsSync(join(directory, "lock"))).toBe(false);
    rmdirSync(folder);
  }, 90_000);

  test("not where another PostgreSQL major version wrote, nor where something else lies", async () => {
    const older = temporaryDirectory();
    mkdirSync(join(older, "pglite"));
    writeFileSync(join(older, "pglite", "PG_VERSION"), "17\n");
    await expect(openDatabase(`file:${older}`)).rejects.toMatchObject({ code: "directory_incompatible" });
    const photos = temporaryDirectory();
    mkdirSync(join(photos, "pglite"));
    writeFileSync(join(photos, "pglite", "photo.jpg"), "");
    await expect(openDatabase(`file:${photos}`)).rejects.toMatchObject({ code: "directory_incompatible" });
    expect(readdirSync(photos)).toEqual(["pglite"]);
  });

  test("a holder that does not answer is named after the deadline", async () => {
    const directory = await databaseDirectory();
    const holder = await DatabaseProcess.opened(`file:${directory}`);
    const { socketFolder } = readLock(join(directory, "lock")) ?? { socketFolder: "" };
    spawnSync("mv", [join(socketFolder, ".s.PGSQL.5432"), join(socketFolder, "moved")]);
    await expect(openDatabase(`file:${directory}`, { connectTimeoutMs: 300 })).rejects.toMatchObject({
      code: "address_in_use",
      message: expect.stringContaining(`${holder.pid}`),
    });
    expect(dirname(socketFolder)).toMatch(/fenceline-\d+(-\d)?$/);
  }, 90_000);
});

/** Root that other users exist for: in a user namespace of one user, root is nobody else. */
function mayBecomeOthers(): boolean {
  if (process.getuid?.() !== 0) return false;
  return (
    !existsSync("/proc/self/uid_map") || /^\s*0\s+0\s+4294967295$/m.test(readFileSync("/proc/self/uid_map", "utf8"))
  );
}
