// Takes the lock in argv[2] once, proves that it is alone, and dies holding it. Exit by SIGKILL is the good end.
import { rmSync, writeFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { DirectoryLock } from "#src/database/embedded/directory-lock.js";

const [, , lockPath, markerPath] = process.argv;
const lock = new DirectoryLock(lockPath, "/nowhere");
process.send("ready");
process.once("message", async () => {
  while (lock.tryAcquire()) await delay(1);
  writeFileSync(markerPath, `${process.pid}`, { flag: "wx" }); // fails, and the process with it, when two hold
  await delay(2);
  rmSync(markerPath);
  process.kill(process.pid, "SIGKILL");
});
