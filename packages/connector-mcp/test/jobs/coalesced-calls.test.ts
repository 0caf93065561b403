import { describe, expect, test } from "vitest";
import { CoalescedCalls } from "#src/jobs/coalesced-calls.js";

describe("coalesced calls", () => {
  test("that come while a batch is under way go out together, at most so many at once, each with its own result", async () => {
    const batches: (readonly number[])[] = [];
    const ends: (() => void)[] = [];
    const calls = new CoalescedCalls(async (items: readonly number[]) => {
      batches.push(items);
      await new Promise<void>((resolve) => ends.push(resolve));
      return items.map((item) => item * 10);
    }, 3);

    const first = calls.add(1);
    await expect.poll(() => ends.length).toBe(1);
    const rest = [2, 3, 4, 5].map((item) => calls.add(item));
    ends[0]?.();
    expect(await first).toBe(10);
    await expect.poll(() => ends.length).toBe(2);
    ends[1]?.();
    await expect.poll(() => ends.length).toBe(3);
    ends[2]?.();

    expect(await Promise.all(rest)).toEqual([20, 30, 40, 50]);
    expect(batches).toEqual([[1], [2, 3, 4], [5]]);
  });

  test("of a batch that fails all fail, and the next batch is tried", async () => {
    let batch = 0;
    const calls = new CoalescedCalls(async (items: readonly string[]) => {
      batch += 1;
      if (batch === 1) throw new TypeError("connection lost");
      return items;
    }, 10);

    const failed = await Promise.allSettled([calls.add("a"), calls.add("b")]);

    expect(failed.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    expect(await calls.add("c")).toBe("c");
  });
});
