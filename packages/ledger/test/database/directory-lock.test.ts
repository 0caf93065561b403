import { type ChildProcess, fork, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describeWhere } from "@fenceline/test-services";
import { describe, expect, test } from "vitest";
import { DirectoryLock, readLock } from "#src/database/embedded/directory-lock.js";
import { livenessOf, ownIdentity } from "#src/database/embedded/process-identity.js";
import { temporaryDirectory } from "./database-process.js";

const RACERS = 8;
const ROUNDS = 3;

async function startRacer(lockPath: string, markerPath: string): Promise<ChildProcess> {
  const racer = fork(fileURLToPath(new URL("./lock-racer.mjs", import.meta.url)), [lockPath, markerPath], {
    execArgv: [],
  });
  await once(racer, "message");
  return racer;
}

describe("the lock on an embedded directory", () => {
  test(`of ${RACERS} processes that wait for the lock of a killed one, each gets it once and none beside another`, async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const directory = temporaryDirectory();
      const [lockPath, markerPath] = [join(directory, "lock"), join(directory, "held-by")];
      const racers = await Promise.all(Array.from({ length: RACERS }, () => startRacer(lockPath, markerPath)));
      const ends = racers.map((racer) => once(racer, "exit"));
      for (const racer of racers) racer.send("go");
      const signals = (await Promise.all(ends)).map(([, signal]) => signal);
      expect(signals).toEqual(Array(RACERS).fill("SIGKILL"));

      const lock = new DirectoryLock(lockPath, "/somewhere");
      expect(lock.tryAcquire()).toBeUndefined();
      expect(readLock(lockPath)?.holder).toEqual(ownIdentity());
      expect(readdirSync(directory)).toEqual(["lock"]);
      lock.release();
      expect(existsSync(lockPath)).toBe(false);
    }
  }, 120_000);

  test("a living holder keeps it, and says where it serves", () => {
    const lockPath = join(temporaryDirectory(), "lock");
    const [first, second] = [new DirectoryLock(lockPath, "/first"), new DirectoryLock(lockPath, "/second")];
    expect(first.tryAcquire()).toBeUndefined();
    expect(second.tryAcquire()?.socketFolder).toBe("/first");
    second.release();
    expect(readLock(lockPath)?.socketFolder).toBe("/first");
    first.release();
    expect(second.tryAcquire()).toBeUndefined();
  });

  test("a dead holder's lock is left alone while another process is breaking it, and that one's death does not leave it for ever", () => {
    const lockPath = join(temporaryDirectory(), "lock");
    new DirectoryLock(lockPath, "/dead").tryAcquire();
    const record = JSON.parse(readFileSync(lockPath, "utf8"));
    const dead = { ...record.holder, startedAt: "another boot:1" };
    writeFileSync(lockPath, JSON.stringify({ ...record, holder: dead }));
    const breaking = new DirectoryLock(`${lockPath}.break-${record.id}`, "");
    expect(breaking.tryAcquire()).toBeUndefined();
    const next = new DirectoryLock(lockPath, "/next");
    expect(next.tryAcquire()?.socketFolder).toBe("/dead");
    expect(readLock(lockPath)?.id).toBe(record.id);

    const breakRecord = JSON.parse(readFileSync(`${lockPath}.break-${record.id}`, "utf8"));
    writeFileSync(`${lockPath}.break-${record.id}`, JSON.stringify({ ...breakRecord, holder: dead }));
    expect(next.tryAcquire()).toBeUndefined();
    expect(readdirSync(dirname(lockPath))).toEqual(["lock"]);
  });

  test("a process number that was given to another process does not keep the lock alive", () => {
    const lockPath = join(temporaryDirectory(), "lock");
    const dead = new DirectoryLock(lockPath, "/dead");
    dead.tryAcquire();
    const record = JSON.parse(readFileSync(lockPath, "utf8"));
    writeFileSync(lockPath, JSON.stringify({ ...record, holder: { ...record.holder, startedAt: "another boot:1" } }));
    expect(new DirectoryLock(lockPath, "/next").tryAcquire()).toBeUndefined();
    expect(readLock(lockPath)?.socketFolder).toBe("/next");
  });

  test("a lock file torn by a crash of the machine is replaced", () => {
    const lockPath = join(temporaryDirectory(), "lock");
    writeFileSync(lockPath, "");
    expect(new DirectoryLock(lockPath, "/next").tryAcquire()).toBeUndefined();
  });

  test("a holder in another container keeps it while it shows signs of life, and loses it half a minute after the last", () => {
    const lockPath = join(temporaryDirectory(), "lock");
    new DirectoryLock(lockPath, "/container").tryAcquire();
    const record = JSON.parse(readFileSync(lockPath, "utf8"));
    const elsewhere = { ...record.holder, pidNamespace: "pid:[1]" };
    writeFileSync(lockPath, JSON.stringify({ ...record, holder: elsewhere }));
    const next = new DirectoryLock(lockPath, "/next");
    expect(next.tryAcquire()?.socketFolder).toBe("/container");
    const longAgo = new Date(Date.now() - 31_000);
    utimesSync(lockPath, longAgo, longAgo);
    expect(next.tryAcquire()).toBeUndefined();
  });

  describeWhere(existsSync("/proc/self/stat"), "no /proc", "a zombie", () => {
    test("is dead", async () => {
      // The shell becomes `sleep`, which never collects its child.
      const parent = spawn("sh", ["-c", "sh -c 'echo $$; read never' & exec sleep 30"], {
        stdio: ["ignore", "pipe", "ignore"],
      });
      try {
        const [line] = await once(parent.stdout, "data");
        const pid = Number(`${line}`);
        const stat = () => readFileSync(`/proc/${pid}/stat`, "utf8");
        while (!/\) Z/.test(stat())) await new Promise(setImmediate);
        const startedAt = `${readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim()}:${stat().split(" ")[21]}`;
        expect(livenessOf({ ...ownIdentity(), pid, startedAt })).toBe("dead");
      } finally {
        parent.kill();
      }
    });
  });
});
