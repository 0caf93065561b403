import { describe, expect, test } from "vitest";
import { SingleFlight } from "#src/jobs/single-flight.js";

/** A task whose runs end when the test says so. */
function steeredTask() {
  const ends: (() => void)[] = [];
  let running = 0;
  let most = 0;
  const task = async () => {
    running += 1;
    most = Math.max(most, running);
    await new Promise<void>((resolve) => ends.push(resolve));
    running -= 1;
    return ends.length;
  };
  return { task, ends, most: () => most };
}

describe("a single flight", () => {
  test("asked for many times while it runs, runs once more, and never twice at once", async () => {
    const { task, ends, most } = steeredTask();
    const flight = new SingleFlight(task);

    const first = flight.run();
    const again = [flight.run(), flight.run(), flight.run()];
    ends[0]?.();
    await first;
    await expect.poll(() => ends.length).toBe(2);
    ends[1]?.();

    expect(await Promise.all(again)).toEqual([2, 2, 2]);
    expect(most()).toBe(1);
  });

  test("that failed runs again for those who asked meanwhile", async () => {
    let runs = 0;
    const flight = new SingleFlight(async () => {
      runs += 1;
      if (runs === 1) throw new TypeError("no luck");
      return "done";
    });

    const first = flight.run();
    const second = flight.run();

    await expect(first).rejects.toThrow("no luck");
    expect(await second).toBe("done");
  });

  test("is settled only when also the run that was asked for meanwhile has ended", async () => {
    const { task, ends } = steeredTask();
    const flight = new SingleFlight(task);
    void flight.run();
    void flight.run();

    let settled = false;
    const settling = flight.settled().then(() => {
      settled = true;
    });
    ends[0]?.();
    await expect.poll(() => ends.length).toBe(2);
    expect(settled).toBe(false);
    ends[1]?.();
    await settling;

    expect(settled).toBe(true);
  });
});
