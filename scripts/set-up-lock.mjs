/**
 * A lock on the set-up of one checkout: a folder, since making one is atomic everywhere. The holder touches it while it
 * works; one that has gone untouched belongs to a process that was killed, and is taken over. (A process id would not
 * tell: it means nothing in another container on the same files.)
 */

import { mkdir, rename, rm, stat, utimes } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";

const touchEveryMs = 1000;
const abandonedAfterMs = 15_000;

/**
 * Runs `work` while no other process holds the lock.
 *
 * @template Result
 * @param {string} lock The folder to make.
 * @param {() => Promise<Result>} work
 */
export async function withSetUpLock(lock, work) {
  await acquire(lock);
  const touch = setInterval(() => utimes(lock, new Date(), new Date()).catch(() => {}), touchEveryMs);
  try {
    return await work();
  } finally {
    clearInterval(touch);
    await rm(lock, { recursive: true, force: true });
  }
}

/** @param {string} lock */
async function acquire(lock) {
  for (let waited = false; !(await make(lock)); waited = true) {
    if (!waited) console.error("Another set-up is running in this checkout; waiting for it …");
    if (await isAbandoned(lock)) await takeAway(lock);
    else await delay(200);
  }
}

/** @param {string} lock */
async function make(lock) {
  try {
    await mkdir(lock);
    return true;
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code === "EEXIST") return false;
    throw error;
  }
}

/** @param {string} lock */
async function isAbandoned(lock) {
  const found = await stat(lock).catch(() => undefined);
  return found !== undefined && Date.now() - found.mtimeMs > abandonedAfterMs;
}

/**
 * Of two processes that found the lock abandoned only one moves it away; had the other one made it anew meanwhile, it
 * is put back.
 *
 * @param {string} lock
 */
async function takeAway(lock) {
  const aside = `${lock}.${process.pid}`;
  const moved = await rename(lock, aside).then(
    () => true,
    () => false,
  );
  if (!moved) return;
  if (await isAbandoned(aside)) await rm(aside, { recursive: true, force: true });
  else await rename(aside, lock);
}
