/**
 * Entry of the worker thread that holds an embedded database, apart from the host's event loop and JavaScript heap.
 *
 * It is started with {@link ServerThreadData}, says `serving` when clients can connect, and is stopped in two steps
 * (`drain`, answered `drained`, then `disconnect`), between which the holder gives up its lock.
 */
import { utimes } from "node:fs";
import { parentPort, workerData } from "node:worker_threads";
import { assert } from "../../errors.js";
import { readLock } from "./directory-lock.js";
import { Engine } from "./engine.js";
import { SocketServer } from "./socket-server.js";

export interface ServerThreadData {
  dataDirectory: string;
  socketPath: string;
  lockPath: string;
  /** Of the holding that this thread serves for. */
  lockId: string | undefined;
}

export type ServerThreadOrder = "drain" | "disconnect";
export type ServerThreadReport = { state: "serving" } | { state: "drained" } | { state: "failed"; reason: string };

/** How often the lock file is touched, for processes that cannot see this one (another container's). */
const SIGN_EVERY_MS = 5_000;
/** Exit code when the directory is gone, or held by another process. */
const NOT_HELD_EXIT_CODE = 71;

/** Ends where the lock is no longer ours: what is acknowledged from then on would be in no database. */
function showSign(lockPath: string, lockId: string | undefined): void {
  if (lockIdOf(lockPath, lockId) !== lockId) process.exit(NOT_HELD_EXIT_CODE);
  const now = new Date();
  utimes(lockPath, now, now, () => {});
}

function lockIdOf(lockPath: string, whereUnreadable: string | undefined): string | undefined {
  try {
    return readLock(lockPath)?.id;
  } catch {
    return whereUnreadable;
  }
}

assert(parentPort, "server-thread.js must run as a worker thread");
const port = parentPort;
const report = (message: ServerThreadReport) => port.postMessage(message);

try {
  const { dataDirectory, socketPath, lockPath, lockId } = workerData as ServerThreadData;
  const server = new SocketServer(await Engine.open(dataDirectory));
  await server.listen(socketPath);
  const sign = setInterval(showSign, SIGN_EVERY_MS, lockPath, lockId);
  port.on("message", async (order: ServerThreadOrder) => {
    switch (order) {
      case "drain":
        clearInterval(sign);
        await server.drain();
        report({ state: "drained" });
        return;
      case "disconnect":
        await server.disconnect();
        process.exit();
    }
  });
  report({ state: "serving" });
} catch (error) {
  report({ state: "failed", reason: error instanceof Error ? error.message : String(error) });
}
