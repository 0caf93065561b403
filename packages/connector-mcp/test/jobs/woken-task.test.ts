import { expect, test } from "vitest";
import { WokenTask } from "#src/jobs/woken-task.js";

const within = { timeout: 20_000 };

/** A task that counts its runs, and whose wakes are remembered by their times and bring no job. */
function wokenTask() {
  const wokenAt: number[] = [];
  let runs = 0;
  const task = new WokenTask(
    () => void wokenAt.push(Date.now()),
    async () => {
      runs += 1;
      return runs;
    },
  );
  return { task, wokenAt, runs: () => runs };
}

test("a job that comes after the task ran without it brings no second run; one that was added later does", async () => {
  const { task, wokenAt, runs } = wokenTask();
  task.within(0);
  await expect.poll(runs, within).toBe(1);

  expect(await task.runForJob(wokenAt[0] as number)).toBe(1);
  expect(await task.runForJob(Date.now() + 1)).toBe(2);
  await task.stop();
});

test("a job that somebody else added before the task asked for one brings a run", async () => {
  const { task, runs } = wokenTask();
  const before = Date.now() - 1;
  task.within(0);
  await expect.poll(runs, within).toBe(1);
  expect(await task.runForJob(before)).toBe(2);
  await task.stop();
});

test("what is asked for next replaces what was asked for before, also where that was sooner", async () => {
  const { task, wokenAt } = wokenTask();
  task.within(10);
  task.next(600_000);
  task.within(300);
  const askedAt = Date.now();
  await expect.poll(() => wokenAt.length, within).toBe(1);
  expect((wokenAt[0] as number) - askedAt).toBeGreaterThanOrEqual(298);
  await task.stop();
});
