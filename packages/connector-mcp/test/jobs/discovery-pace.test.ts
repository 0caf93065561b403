import { expect, test } from "vitest";
import { DiscoveryPace } from "#src/jobs/discovery-pace.js";

const MINUTE = 60_000;

/** Discoveries begun in `durationMs` under a `list_changed` every `everyMs`, each taking `tookMs`. */
function discoveries(options: {
  everyMs: number;
  durationMs: number;
  tookMs: number;
  came: "news" | "same" | "to_nothing";
}): number[] {
  let now = 0;
  const pace = new DiscoveryPace(10 * MINUTE, () => now);
  const begun: number[] = [];
  let endsAt: number | undefined;
  for (; now < options.durationMs; now += 10) {
    if (now % options.everyMs === 0) pace.announced();
    if (endsAt === undefined && pace.untilNext === 0) {
      pace.begun();
      begun.push(now);
      endsAt = now + options.tookMs;
    } else if (endsAt !== undefined && now >= endsAt) {
      pace.ended(options.came);
      endsAt = undefined;
    }
  }
  return begun;
}

test("one list_changed every 100 ms for a minute neither starves the walk nor is it walked without a pause (S9)", () => {
  const begun = discoveries({ everyMs: 100, durationMs: MINUTE, tookMs: 300, came: "to_nothing" });
  expect(begun[0]).toBeLessThanOrEqual(2_000);
  expect(begun.length).toBeGreaterThan(3);
  expect(begun.length).toBeLessThan(9);
});

test("a server that announces a change after each list, and lists the same, is walked ever more rarely (S9)", () => {
  const begun = discoveries({ everyMs: 300, durationMs: 60 * MINUTE, tookMs: 20, came: "same" });
  expect(begun.length).toBeLessThan(20);
  const pauses = begun.slice(1).map((at, position) => at - (begun[position] as number));
  expect(pauses.at(-1)).toBeGreaterThan(5 * MINUTE);
});

test("changes that are found are looked for at once, and never for more than half of the time (S9)", () => {
  const begun = discoveries({ everyMs: 5_000, durationMs: MINUTE, tookMs: 20, came: "news" });
  expect(begun).toHaveLength(12);
  const long = discoveries({ everyMs: 1_000, durationMs: MINUTE, tookMs: 10_000, came: "news" });
  expect(long.length).toBeLessThanOrEqual(3);
});

test("two hundred in a burst lead to one discovery, after they fell silent (S9)", () => {
  let now = 0;
  const pace = new DiscoveryPace(10 * MINUTE, () => now);
  for (let sent = 0; sent < 200; sent += 1, now += 5) pace.announced();
  expect(pace.untilNext).toBeGreaterThan(0);
  now += 250;
  expect(pace.untilNext).toBe(0);
  pace.begun();
  expect(pace.untilNext).toBeUndefined();
});
