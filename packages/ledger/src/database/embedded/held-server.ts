import { once } from "node:events";
import { rmdirSync, rmSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { FencelineError } from "../../errors.js";
import { dataDirectoryIsComplete, type EmbeddedDirectory, prepareDataDirectory } from "./data-directory.js";
import type { DirectoryLock } from "./directory-lock.js";
import type { ServerThreadData, ServerThreadOrder, ServerThreadReport } from "./server-thread.js";
import { makePrivateFolder, socketPathIn } from "./socket-folder.js";

/** Creating a database takes 3 s on an idle machine, opening one 0.6 s; a busy machine may take many times that. */
const START_MOST_MS = 60_000;

/** The server while this process holds the directory: from taking the lock to giving it up. */
export class HeldServer {
  readonly #worker: Worker;
  readonly #lock: DirectoryLock;
  readonly #socketFolder: string;
  /** Resolves when the thread has ended and the lock is free. */
  readonly ended: Promise<void>;
  #closing: Promise<void> | undefined;

  private constructor(worker: Worker, lock: DirectoryLock, socketFolder: string) {
    this.#worker = worker;
    this.#lock = lock;
    this.#socketFolder = socketFolder;
    this.ended = new Promise((resolve) => {
      worker.once("exit", () => {
        lock.release();
        resolve();
      });
    });
  }

  /**
   * Opens the database in a thread and serves it.
   *
   * @param lock held by this process; released when this fails, and when the server ends
   * @throws {FencelineError} `directory_incompatible`, `database_unreachable`
   */
  static async start(directory: EmbeddedDirectory, socketFolder: string, lock: DirectoryLock): Promise<HeldServer> {
    let worker: Worker;
    try {
      prepareDataDirectory(directory);
      makePrivateFolder(socketFolder);
      const socketPath = socketPathIn(socketFolder);
      rmSync(socketPath, { force: true });
      const { dataPath: dataDirectory, lockPath } = directory;
      worker = startThread({ dataDirectory, socketPath, lockPath, lockId: lock.id });
    } catch (error) {
      lock.release();
      throw error;
    }
    const server = new HeldServer(worker, lock, socketFolder);
    const report = await nextReport(worker, START_MOST_MS);
    if (report?.state === "serving") {
      dataDirectoryIsComplete(directory);
      worker.unref();
      return server;
    }
    await worker.terminate();
    await server.ended;
    const reason = report?.state === "failed" ? report.reason : `it ended, or did not serve within ${START_MOST_MS} ms`;
    throw new FencelineError(
      "database_unreachable",
      `The embedded database in ${directory.path} could not be opened: ${reason}`,
    );
  }

  /** Lets running turns and the open transaction finish, closes PGlite, gives up the lock, then ends all connections. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#worker.ref();
    const drained = nextReport(this.#worker);
    this.#order("drain");
    await Promise.race([drained, this.ended]);
    this.#removeSocketFolder();
    this.#lock.release();
    this.#order("disconnect");
    await this.ended;
  }

  /** Folders would pile up. While the lock is held: whoever takes over makes it anew, and not before. */
  #removeSocketFolder(): void {
    try {
      rmdirSync(this.#socketFolder);
    } catch {
      // Something else lies in it, or it is gone.
    }
  }

  #order(order: ServerThreadOrder): void {
    this.#worker.postMessage(order);
  }
}

function startThread(workerData: ServerThreadData): Worker {
  return new Worker(new URL("./server-thread.js", import.meta.url), {
    workerData,
    name: "fenceline embedded database",
    // Loaders and flags of the host (a test runner's, a debugger's) are not for this thread.
    execArgv: [],
  });
}

/** The next report of the thread; undefined when it ends instead, or takes longer than it may. */
async function nextReport(worker: Worker, withinMs?: number): Promise<ServerThreadReport | undefined> {
  const done = new AbortController();
  const signal = done.signal;
  try {
    return await Promise.race([
      once(worker, "message", { signal }).then(([report]) => report as ServerThreadReport),
      once(worker, "exit", { signal }).then(() => undefined),
      ...(withinMs === undefined ? [] : [delay(withinMs, undefined, { signal })]),
    ]);
  } catch (error) {
    // `once` rejects on the thread's "error" event, whose reason the thread could not report itself.
    return { state: "failed", reason: error instanceof Error ? error.message : String(error) };
  } finally {
    done.abort();
  }
}
