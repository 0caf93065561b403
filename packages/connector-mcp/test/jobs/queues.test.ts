import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Database, openDatabase } from "@fenceline/ledger";
import { copyDatabase, describeWithPostgres, describeWithRedis } from "@fenceline/test-services";
import type { Job } from "bullmq";
import { Redis } from "ioredis";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { QueueAddress } from "#src/config/config-schema.js";
import { type JobQueues, openQueues, QUEUE_KINDS, type QueueKind } from "#src/jobs/queues.js";

/** The promises of the port, over whichever backend `open` opens. */
function queueConformance(open: () => Promise<JobQueues>): void {
  const opened = async () => {
    const queues = await open();
    onTestFinished(() => queues.close({ deadlineMs: 2_000 }));
    return queues;
  };

  test("a wake reaches an idle worker at once, in milliseconds and not at its next look, each of the four in turn", async () => {
    const queues = await opened();
    let arrived: () => void = () => undefined;
    for (const kind of QUEUE_KINDS) await queues.work(kind, async () => arrived(), { concurrency: 1 });
    const elapsed: number[] = [];
    // While the other three take their turn, a worker is long through its own last look and really waits to be woken.
    for (let round = 0; round < 20; round += 1) {
      const startedAt = performance.now();
      const arrival = new Promise<void>((resolve) => {
        arrived = resolve;
      });
      expect(await queues.wake(QUEUE_KINDS[round % 4] as QueueKind, `wake ${round}`, { v: 1 })).toBe(true);
      await arrival;
      elapsed.push(performance.now() - startedAt);
    }
    elapsed.sort((a, b) => a - b);

    // A worker that looks on a timer is found by luck now and then, never by half of them: BullMQ's own look is 5 s apart.
    // A busy machine may take longer for some, never for each.
    expect(elapsed[0]).toBeLessThan(50);
    expect(elapsed[10]).toBeLessThan(500);
  });

  test("wakes sent while their job runs cause exactly one more run", async () => {
    const queues = await opened();
    const runs: (() => void)[] = [];
    await queues.work("index", () => new Promise<void>((resolve) => runs.push(resolve)), { concurrency: 4 });

    await queues.wake("index", "main", { v: 1, index: "main" });
    await expect.poll(() => runs.length, { timeout: 5_000, interval: 5 }).toBe(1);
    for (let repeat = 0; repeat < 5; repeat += 1) await queues.wake("index", "main", { v: 1, index: "main" });
    expect(runs.length).toBe(1);
    runs[0]?.();
    await expect.poll(() => runs.length, { timeout: 5_000, interval: 5 }).toBe(2);
    runs[1]?.();
    // Whatever else was added for "main" would have to run before this one ends.
    await queues.wake("index", "other", { v: 1, index: "other" });
    await expect.poll(() => runs.length, { timeout: 5_000, interval: 5 }).toBe(3);
    runs[2]?.();

    expect(runs.length).toBe(3);
  });

  test("a wake after the queues were closed reports that it was not taken, and does not throw", async () => {
    const queues = await open();
    await queues.close({ deadlineMs: 2_000 });

    expect(await queues.wake("purge", "main", { v: 1 })).toBe(false);
  });

  test("closing waits for a job that runs, and takes no other", async () => {
    const queues = await opened();
    const done: string[] = [];
    let release: () => void = () => undefined;
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    const started = new Promise<void>((resolve) => {
      void queues.work(
        "discovery",
        async (job: Job) => {
          resolve();
          await released;
          done.push(job.data["source"] as string);
        },
        { concurrency: 1 },
      );
    });
    await queues.wake("discovery", "first", { v: 1, source: "first" });
    await started;
    await queues.wake("discovery", "second", { v: 1, source: "second" });
    const closing = queues.close({ deadlineMs: 10_000 });
    release();
    await closing;

    expect(done).toEqual(["first"]);
  });
}

/** A prefix that no other test run uses. */
const prefixOf = (test: string) => `test-${test}-${process.pid}-${Math.random().toString(36).slice(2, 8)}`;

const noDatabase = undefined as unknown as Database;

describe("queues in the ledger's embedded database", () => {
  let folder: string;
  let database: Database;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "fenceline-queues-"));
    await copyDatabase("database", openDatabase, folder);
    database = await openDatabase(`file:${folder}`);
  });

  afterAll(async () => {
    await database.close();
    await rm(folder, { recursive: true, force: true });
  });

  queueConformance(() => openQueues({ queue: "embedded", database, prefix: prefixOf("embedded") }));
});

describeWithRedis("queues on Redis", (redisUrl) => {
  const prefixes: string[] = [];

  afterAll(async () => {
    const redis = new Redis(redisUrl);
    for (const prefix of prefixes) {
      const keys = await redis.keys(`bull:${prefix}-*`);
      if (keys.length > 0) await redis.del(keys);
    }
    redis.disconnect();
  });

  queueConformance(() => {
    const prefix = prefixOf("redis");
    prefixes.push(prefix);
    return openQueues({ queue: redisUrl, database: noDatabase, prefix });
  });
});

describeWithPostgres("queues on PostgreSQL", (postgresUrl) => {
  const schema = prefixOf("queues").replaceAll("-", "_");

  afterAll(async () => {
    const client = new pg.Client({ connectionString: postgresUrl });
    await client.connect();
    await client.query(`drop schema if exists ${schema} cascade`);
    await client.end();
  });

  queueConformance(() =>
    openQueues({ queue: postgresUrl, database: noDatabase, schema, prefix: prefixOf("postgres") }),
  );
});

describe("queues that nobody answers for", () => {
  test.each<[string, QueueAddress]>([
    ["Redis", "redis://user:hunter2@127.0.0.1:9/0"],
    ["PostgreSQL", "postgres://user:hunter2@127.0.0.1:9/none"],
  ])("on %s are refused with their address and without their password", async (_, queue) => {
    const error: unknown = await openQueues({ queue, database: noDatabase, timeoutMs: 500 }).catch(
      (thrown: unknown) => thrown,
    );

    expect(error).toMatchObject({ code: "queue_unreachable" });
    expect((error as Error).message).toContain("127.0.0.1:9");
    expect((error as Error).message).not.toContain("hunter2");
  });
});
