import { expect, test, vi } from "vitest";
import { ingest, within } from "./ingestion.js";
import { published } from "./published-servers.js";

vi.setConfig({ testTimeout: 60_000 });

test("tmcp, which shares no code with the SDK: three pages by offset cursors, subscriptions and updates of the modern era (S1, U2)", async () => {
  const { stats, ask, textOf } = await ingest({
    command: process.execPath,
    args: [published.tmcp],
    afterConnect: [{ tool: "bump" }],
  });
  expect(stats()).toMatchObject({
    era: "modern",
    pushed: 25,
    polled: 0,
    scan: { verdict: "SNAPSHOT_UNPROVEN", resources: 25 },
    problems: [],
  });
  expect(new Set((await ask("note number")).map(({ uri }) => uri)).size).toBe(25);

  // Two quick changes may share one read; the last value is what stays.
  await expect.poll(() => textOf("note://list/7"), within).toBe("note number 7 says 3");
  expect(stats().reads.accepted).toBeLessThanOrEqual(27);
});
