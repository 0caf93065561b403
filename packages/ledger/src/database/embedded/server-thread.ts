/**
 * Entry of the worker thread that holds an embedded database, apart from the host's event loop and JavaScript heap.
 *
 * It is started with {@link ServerThreadData}, says `serving` when clients can connect, and is stopped in two steps
 * (`drain`, answered `drained`, then `disconnect`), between which the holder gives up its lock.
 */
import { utimes } from "node:fs";
import { parentPort, workerData } from "node:worker_threads";
import { assert } from "../../errors.js";
import { Engine } from "./engine.js";
import { SocketServer } from "./socket-server.js";

export interface ServerThreadData {
  dataDirectory: string;
  socketPath: string;
  lockPath: string;
}

export type ServerThreadOrder = "drain" | "disconnect";
export type ServerThreadReport = { state: "serving" } | { state: "drained" } | { state: "failed"; reason: string };

/** How often the lock file is touched, for processes that cannot see this one (another container's). */
const SIGN_EVERY_MS = 5_000;

function showSign(lockPath: string): void {
  const now = new Date();
  utimes(lockPath, now, now, () => {});
}

assert(parentPort, "server-thread.js must run as a worker thread");
const port = parentPort;
const report = (message: ServerThreadReport) => port.postMessage(message);

try {
  const { dataDirectory, socketPath, lockPath } = workerData as ServerThreadData;
  const server = new SocketServer(await Engine.open(dataDirectory));
  await server.listen(socketPath);
  port.on("message", async (order: ServerThreadOrder) => {
    switch (order) {
      case "drain":
        await server.drain();
        report({ state: "drained" });
        return;
      case "disconnect":
        await server.disconnect();
        process.exit();
    }
  });
  setInterval(showSign, SIGN_EVERY_MS, lockPath);
  report({ state: "serving" });
} catch (error) {
  report({ state: "failed", reason: error instanceof Error ? error.message : String(error) });
}
