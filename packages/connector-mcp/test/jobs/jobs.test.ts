import type { AddressInfo } from "node:net";
import { connect, createServer, type Socket } from "node:net";
import { describeWithRedis } from "@fenceline/test-services";
import { createPostgresBackend, Queue, Worker } from "bullmq";
import { Redis } from "ioredis";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { FencelineConfig } from "#src/config/config-schema.js";
import { type QueueKind, queueName } from "#src/jobs/queues.js";
import { startModernServer } from "../mcp/modern-server.js";
import { ask, type Cast, configFor, newCast, startPool, useLedger } from "./pool-setup.js";

const SECONDS = 1_000;
vi.setConfig({ testTimeout: 60 * SECONDS });
const within = { timeout: 20 * SECONDS, interval: 50 };

const ledgerOf = useLedger();

async function servedNotes(queue: string = "embedded") {
  const server = await startModernServer();
  onTestFinished(() => server.close());
  const cast = newCast();
  const config = configFor(cast, server.url, { queue });
  const pool = await startPool(ledgerOf(), config);
  expect(await pool.idle({ timeoutMs: 30 * SECONDS })).toBe("idle");
  const texts = async () => (await ask(ledgerOf(), config, "note", cast.asker)).map(({ text }) => text).sort();
  return { server, cast, config, pool, texts };
}

/** A queue of an embedded pool, as any other BullMQ client opens it. */
function openQueue(kind: QueueKind, config: FencelineConfig): Queue {
  const connection = { ...ledgerOf().database.connectionOptions, schema: "public", max: 1 };
  const queue = new Queue(
    queueName(kind, config.queuePrefix),
    { connection: connection as object },
    createPostgresBackend as never,
  );
  queue.on("error", () => undefined);
  onTestFinished(() => queue.close());
  return queue;
}

describe("a job from outside", () => {
  test("that asks for a revocation is accepted when it has completed, and once however often it runs (P1)", async () => {
    const { cast, config, texts } = await servedNotes();
    const queue = openQueue("purge", config);
    const request = {
      v: 1,
      subject: cast.reader,
      source: cast.source,
      reason: "trial ended",
      requestId: `r-${cast.source}`,
    };

    const jobs = [await queue.add("revoke", request), await queue.add("revoke", request)];
    for (const job of jobs) await expect.poll(() => job.getState(), within).toBe("completed");

    expect(await texts()).toEqual([]);
    const revocations = (await ledgerOf().listRevocations()).filter(({ subject }) => subject === cast.reader);
    expect(revocations).toHaveLength(1);
    const id = revocations[0]?.revocationId as number;
    await expect.poll(async () => (await ledgerOf().revocation(id))?.state, within).toBe("COMPLETE");
  });

  test("whose payload does not fit fails at once with the field named, and is not tried again", async () => {
    const { config } = await servedNotes();
    const queue = openQueue("read", config);

    const job = await queue.add("read", { v: 1, source: 7, reader: "svc:rag" }, { attempts: 5 });
    await expect.poll(() => job.getState(), within).toBe("failed");

    const failed = await queue.getJob(job.id as string);
    expect(failed?.failedReason).toMatch(/job_payload_invalid: source: /);
    expect(failed?.attemptsMade).toBe(1);
  });
});

describe("a wake that was lost", () => {
  test("costs a moment, not the work: the reconciler finds what is due", async () => {
    const { server, cast, config, texts } = await servedNotes();
    const queue = openQueue("read", config);
    await queue.pause();

    server.resources.set("note://a", "announced, and the job lost");
    server.notify.resourceUpdated("note://a");
    const waiting = () => queue.getDeduplicationJobId(`${cast.source} ${cast.reader}`);
    await expect.poll(waiting, within).not.toBeNull();
    await queue.obliterate({ force: true });
    await queue.resume();

    await expect.poll(texts, within).toContain("announced, and the job lost");
  });
});

describe("a queue that takes wakes and keeps them to itself", () => {
  /** Takes a job of each kind, as a worker that is killed at once: while its lock of 10 min stands, nobody gets one about the same. */
  async function takeJobs(cast: Cast, config: FencelineConfig): Promise<void> {
    const { source, reader } = cast;
    const connection = { ...ledgerOf().database.connectionOptions, schema: "public", migrate: true, max: 1 } as object;
    const about: [QueueKind, string, object][] = [
      ["read", `${source} ${reader}`, { source, reader }],
      ["discovery", `${source} ${reader}`, { source, reader }],
      ["index", "main", { index: "main" }],
      ["purge", "\n", {}],
      ["purge", "embedded", { store: "embedded" }],
    ];
    for (const [kind, id, payload] of about) {
      const name = queueName(kind, config.queuePrefix);
      const queue = new Queue(name, { connection }, createPostgresBackend as never);
      const killed = new Worker(
        name,
        null,
        { connection, lockDuration: 10 * 60 * SECONDS },
        createPostgresBackend as never,
      );
      queue.on("error", () => undefined);
      killed.on("error", () => undefined);
      onTestFinished(async () => void (await Promise.all([queue.close(), killed.close()])));
      await queue.add(kind, { v: 1, ...payload }, { deduplication: { id, keepLastIfActive: true } });
      expect((await killed.getNextJob("killed", { block: false }))?.data).toMatchObject(payload);
    }
  }

  test("costs a moment each: everything is read, found, indexed and purged without it (P4)", async () => {
    const server = await startModernServer();
    onTestFinished(() => server.close());
    const ledger = ledgerOf();
    const cast = newCast();
    const config = configFor(cast, server.url);
    await takeJobs(cast, config);
    const texts = async () => (await ask(ledger, config, "note", cast.asker)).map(({ text }) => text).sort();

    await startPool(ledger, config);
    await expect.poll(texts, within).toEqual(["first", "second", "third"]);
    server.resources.set("note://a", "changed");
    server.notify.resourceUpdated("note://a");
    await expect.poll(texts, within).toEqual(["changed", "second", "third"]);
    server.resources.set("note://d", "listed");
    server.notify.resourcesChanged();
    await expect.poll(texts, within).toContain("listed");
    const { revocationId } = await ledger.revoke({ source: cast.source, subject: cast.reader, reason: "trial ended" });
    await expect.poll(async () => (await ledger.revocation(revocationId))?.state, within).toBe("COMPLETE");
  });
});

describe("a revocation from another ledger handle", () => {
  test("reaches a running worker by notification and is carried through within a second or so (P4, P6)", async () => {
    const { cast, texts } = await servedNotes();
    const { openLedger } = await import("@fenceline/ledger");
    const other = await openLedger(ledgerOf().address);
    onTestFinished(() => other.close());

    const { revocationId } = await other.revoke({ source: cast.source, subject: cast.reader, reason: "trial ended" });
    expect(await texts()).toEqual([]);
    const startedAt = performance.now();
    await expect
      .poll(async () => (await other.revocation(revocationId))?.state, { timeout: 20 * SECONDS, interval: 20 })
      .toBe("COMPLETE");

    expect(performance.now() - startedAt).toBeLessThan(5 * SECONDS);
  });
});

describeWithRedis("a pool whose Redis goes away", (redisUrl) => {
  test("goes on reading and indexing by itself, and takes jobs again when it is back", async () => {
    const proxy = await startProxy(redisUrl);
    // Hooks run last first: the keys go when the pool that writes them is closed.
    const prefixes: string[] = [];
    onTestFinished(async () => {
      for (const prefix of prefixes) await removeKeys(redisUrl, prefix);
    });
    const { server, config, texts } = await servedNotes(proxy.url);
    prefixes.push(config.queuePrefix);

    proxy.cut();
    server.resources.set("note://a", "read without a queue");
    server.notify.resourceUpdated("note://a");
    await expect.poll(texts, within).toContain("read without a queue");

    await proxy.restore();
    server.resources.set("note://a", "read with the queue again");
    server.notify.resourceUpdated("note://a");
    await expect.poll(texts, within).toContain("read with the queue again");
  });
});

/** Stands between a pool and Redis, and can go away. */
async function startProxy(redisUrl: string): Promise<{ url: string; cut(): void; restore(): Promise<void> }> {
  const { hostname, port } = new URL(redisUrl);
  const sockets = new Set<Socket>();
  const accept = (client: Socket): void => {
    const upstream = connect(Number(port || 6379), hostname);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        sockets.delete(socket);
        client.destroy();
        upstream.destroy();
      });
    }
    client.pipe(upstream).pipe(client);
  };
  let server = createServer(accept);
  const listen = (at: number) => new Promise<void>((resolve) => server.listen(at, "127.0.0.1", resolve));
  await listen(0);
  const { port: own } = server.address() as AddressInfo;
  const cut = (): void => {
    server.close();
    for (const socket of sockets) socket.destroy();
  };
  onTestFinished(cut);
  return {
    url: `redis://127.0.0.1:${own}`,
    cut,
    async restore() {
      server = createServer(accept);
      await listen(own);
    },
  };
}

async function removeKeys(redisUrl: string, prefix: string): Promise<void> {
  const redis = new Redis(redisUrl);
  const keys = await redis.keys(`bull:${prefix}-*`);
  if (keys.length > 0) await redis.del(keys);
  redis.disconnect();
}
