import { mkdir, mkdtemp, readdir, rm, utimes } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";

/** The scripts are JavaScript, since they run before anything is built. */
const { withSetUpLock }: { withSetUpLock<Result>(lock: string, work: () => Promise<Result>): Promise<Result> } =
  await import(new URL("../../scripts/set-up-lock.mjs", import.meta.url).href);

let folder: string;
let lock: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "fenceline-lock-"));
  lock = join(folder, "lock");
});
afterEach(() => rm(folder, { recursive: true, force: true }));

/** Four set-ups at once, each of which notes how many are at work. */
async function fourAtOnce() {
  let atWork = 0;
  const seen: number[] = [];
  const setUp = () =>
    withSetUpLock(lock, async () => {
      seen.push(++atWork);
      await readdir(folder);
      atWork--;
    });
  await Promise.all([setUp(), setUp(), setUp(), setUp()]);
  return seen;
}

test("of set-ups at once in one checkout only one works at a time", async () => {
  expect(await fourAtOnce()).toEqual([1, 1, 1, 1]);
  expect(await readdir(folder)).toEqual([]);
});

test("the lock of a set-up that was killed is taken over by one of those that wait", async () => {
  await mkdir(lock);
  const aMinuteAgo = new Date(Date.now() - 60_000);
  await utimes(lock, aMinuteAgo, aMinuteAgo);
  expect(await fourAtOnce()).toEqual([1, 1, 1, 1]);
  expect(await readdir(folder)).toEqual([]);
});

test("a set-up that fails leaves the lock to the next", async () => {
  await expect(withSetUpLock(lock, () => Promise.reject(new TypeError("broken")))).rejects.toThrow("broken");
  expect(await withSetUpLock(lock, async () => "done")).toBe("done");
});
