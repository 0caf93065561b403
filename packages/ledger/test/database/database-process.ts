import { type ChildProcess, fork } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { copyDatabase } from "@fenceline/test-services";
import type pg from "pg";
import { afterEach } from "vitest";
import { type Database, type OpenDatabaseOptions, openDatabase } from "#src/database/database.js";

export interface ProcessEvent {
  event: "started" | "payload" | "reconnect" | "acknowledged" | "failed";
  at: number;
  n?: number;
  payload?: string;
  code?: string;
  message?: string;
}

const cleanups: (() => unknown)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** A directory that is gone after the test. */
export function temporaryDirectory(suffix = ""): string {
  const directory = mkdtempSync(join(tmpdir(), "fenceline-test-"));
  cleanups.push(() => rmSync(directory, { recursive: true, force: true }));
  return join(directory, suffix);
}

/** A directory, gone after the test, of an embedded database that was created and is empty. */
export async function databaseDirectory(suffix = ""): Promise<string> {
  const directory = temporaryDirectory(suffix);
  await copyDatabase("database", openDatabase, directory);
  return directory;
}

/** Opens a database in this process and closes it after the test. */
export async function open(address: string | pg.Pool, options?: OpenDatabaseOptions): Promise<Database> {
  const database = await openDatabase(address, options);
  cleanups.push(() => database.close());
  return database;
}

/** Waits until the condition holds; fails when it does not within the time. */
export async function until(what: string, condition: () => unknown, withinMs = 30_000): Promise<void> {
  const deadline = performance.now() + withinMs;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`not within ${withinMs} ms: ${what}`);
    await delay(5);
  }
}

/** Wall clock with fractions of a millisecond, comparable between processes. */
export const now = (): number => performance.timeOrigin + performance.now();

/** Another process that uses a database: runs the operations of `database-process.mjs`. Killed after the test. */
export class DatabaseProcess {
  readonly events: ProcessEvent[] = [];
  readonly #child: ChildProcess;
  readonly #answers = new EventEmitter();
  readonly exited: Promise<number | null>;
  #lastId = 0;

  private constructor(child: ChildProcess) {
    this.#child = child;
    this.exited = once(child, "exit").then(([code]) => code as number | null);
    child.on("message", (message: ProcessEvent | { id: number; value?: unknown; error?: object }) => {
      if ("event" in message) this.events.push(message);
      else this.#answers.emit(`${message.id}`, message);
    });
  }

  static async start(options: { uid?: number; env?: Record<string, string> } = {}): Promise<DatabaseProcess> {
    const child = fork(fileURLToPath(new URL("./database-process.mjs", import.meta.url)), {
      execArgv: process.execArgv.filter((flag) => flag.startsWith("--wasm-")),
      env: { ...process.env, ...options.env },
      ...(options.uid === undefined ? {} : { uid: options.uid, gid: options.uid }),
    });
    const started = new DatabaseProcess(child);
    cleanups.push(() => started.kill());
    await until("the process started", () => started.events.some(({ event }) => event === "started"));
    return started;
  }

  static async opened(address: string): Promise<DatabaseProcess> {
    const started = await DatabaseProcess.start();
    await started.call("open", address);
    return started;
  }

  get pid(): number {
    return this.#child.pid ?? -1;
  }

  async call<T>(operation: string, ...args: unknown[]): Promise<T> {
    const id = ++this.#lastId;
    const answered = once(this.#answers, `${id}`);
    this.#child.send({ id, operation, args });
    const [{ value, error }] = await answered;
    if (error) throw Object.assign(new Error(error.message), error);
    return value as T;
  }

  /** Starts an operation whose answer does not matter. */
  begin(operation: string, ...args: unknown[]): void {
    this.#child.send({ id: ++this.#lastId, operation, args });
  }

  async kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.exited;
  }
}
