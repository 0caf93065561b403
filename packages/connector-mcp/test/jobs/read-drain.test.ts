import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { settingsSchema } from "#src/config/settings.js";
import { reconcileCatalog } from "#src/jobs/catalog-walk.js";
import { ReadDrain } from "#src/jobs/read-drain.js";
import { SessionLease } from "#src/jobs/session-lease.js";
import type { SourceContext } from "#src/jobs/source-context.js";
import { SourceCounts } from "#src/jobs/source-counts.js";
import { ResourceChoice } from "#src/mcp/resource-choice.js";
import { connectSource } from "#src/mcp/source-connection.js";
import type { HttpServer } from "../mcp/http-server.js";
import { type ModernServer, startModernServer } from "../mcp/modern-server.js";
import { startScriptedServer } from "../mcp/scripted-server.js";
import { newCast, useLedger } from "./pool-setup.js";

const ledgerOf = useLedger();

test("a drain that begins while another one waits for its reads leaves neither waiting for ever (U5)", async () => {
  const server = await notes(40);
  const { drain } = await setUp({ server, readConcurrency: 2 });
  const uris = [...server.resources.keys()];

  const named = drain.drainUris(uris);
  await expect.poll(() => server.reads.size, { interval: 1 }).toBeGreaterThan(2);
  const due = drain.drainDue();

  expect(await Promise.all([named, due])).toEqual(["drained", "drained"]);
  expect([...server.reads.values()]).toEqual(uris.map(() => 1));
});

test("Retry-After: what the server refuses with 429 is read when it may be, and nothing is sent meanwhile", async () => {
  const uris = Array.from({ length: 12 }, (_, n) => `note://${n}`);
  const read: string[] = [];
  const refusedAt: number[] = [];
  const server = await startScriptedServer({
    reply: (method, params) => {
      if (method === "resources/templates/list") return { result: { resourceTemplates: [] } };
      if (method === "resources/list") return { result: { resources: uris.map((uri) => ({ uri, name: uri })) } };
      if (method !== "resources/read") return undefined;
      const isTooSoon = refusedAt.length > 0 && performance.now() < (refusedAt[0] as number) + 990;
      if (isTooSoon || (read.length === 5 && refusedAt.length === 0)) {
        refusedAt.push(performance.now());
        return { status: 429, headers: { "Retry-After": "1" } };
      }
      read.push(params["uri"] as string);
      return { result: { contents: [{ uri: params["uri"], text: "x" }] } };
    },
  });
  const { drain } = await setUp({ server, readConcurrency: 3 });

  expect(await drain.drainUris(uris)).toBe("drained");

  expect(read.sort()).toEqual([...uris].sort());
  // Those that were under way together.
  expect(refusedAt.length).toBeGreaterThan(0);
  expect(refusedAt.length).toBeLessThanOrEqual(3);
});

test("a server that answers every read with 429 ends a drain for named URIs, which are due", async () => {
  const server = await startScriptedServer({
    reply: (method) => {
      if (method === "resources/templates/list") return { result: { resourceTemplates: [] } };
      if (method === "resources/list") return { result: { resources: [{ uri: "note://0", name: "0" }] } };
      return method === "resources/read" ? { status: 429, headers: { "Retry-After": "0" } } : undefined;
    },
  });
  const { drain, context } = await setUp({ server, readConcurrency: 3 });

  expect(await drain.drainUris(["note://0"])).toBe("drained");

  expect(server.requests.filter(({ method }) => method === "resources/read")).toHaveLength(10);
  expect(context.counts.snapshot().problems).toMatchObject([{ uri: "note://0", code: "read_throttled" }]);
  expect(await context.ledger.millisecondsToNextRead(context.lease.session)).toBe(0);
});

test("a read that times out frees its slot, and the others are read", async () => {
  const server = await notes(4);
  server.hanging.add("note://0");
  const { drain, context } = await setUp({ server, readConcurrency: 1, requestTimeoutMs: 500 });

  expect(await drain.drainUris([...server.resources.keys()])).toBe("drained");

  expect(context.counts.snapshot()).toMatchObject({
    reads: { accepted: 3, failed: 1 },
    problems: [{ uri: "note://0", code: "read_timed_out" }],
  });
});

test("as many reads in flight as are configured lead to no warning of a leak", async () => {
  const warnings: string[] = [];
  const note = (warning: Error) => warnings.push(warning.name);
  process.on("warning", note);
  onTestFinished(() => void process.off("warning", note));
  const server = await notes(40);
  const { drain } = await setUp({ server, readConcurrency: 32 });

  expect(await drain.drainUris([...server.resources.keys()])).toBe("drained");
  expect(warnings).toEqual([]);
});

test("readsPerSecond bounds how often the server is asked", async () => {
  const server = await notes(8);
  const { drain } = await setUp({ server, readConcurrency: 8, readsPerSecond: 4 });
  const startedAt = performance.now();

  expect(await drain.drainUris([...server.resources.keys()])).toBe("drained");

  // Four at once, then one each 250 ms.
  expect(performance.now() - startedAt).toBeGreaterThanOrEqual(990);
});

async function notes(count: number): Promise<ModernServer> {
  const server = await startModernServer();
  server.resources.clear();
  for (let n = 0; n < count; n += 1) server.resources.set(`note://${n}`, `text ${n}`);
  return server;
}

/** A source whose resources are listed and polled, none of them read. */
async function setUp(options: {
  server: HttpServer;
  readConcurrency: number;
  readsPerSecond?: number;
  requestTimeoutMs?: number;
}) {
  const { server, requestTimeoutMs = 10_000, ...settings } = options;
  onTestFinished(() => server.close());
  const ledger = ledgerOf();
  const { source, reader } = newCast();
  await ledger.registerSource({ name: source });
  const taken = await SessionLease.take(ledger, { source, reader, owner: "test", leaseMs: 30_000 });
  if (taken.outcome !== "taken") return expect.fail("the session was held");
  const { lease } = taken;
  onTestFinished(() => lease.end());
  const connection = await connectSource({ url: server.url, requestTimeoutMs });
  onTestFinished(() => connection.close());
  const context: SourceContext = {
    ledger,
    lease,
    connection,
    settings: settingsSchema.parse(settings),
    choice: new ResourceChoice(),
    counts: new SourceCounts(source, reader),
    logger: pino({ level: "silent" }),
    onProgress: () => undefined,
    signal: new AbortController().signal,
  };
  expect(await reconcileCatalog(context)).toMatchObject({ outcome: "published" });
  const toOpen = await ledger.subscriptionsToOpen(lease.session, { limit: 1_000 });
  const polled = toOpen.map(({ subscriptionId }) => subscriptionId);
  await ledger.activateSubscriptions(lease.session, { shard: 0, pushed: [], polled });
  return { context, drain: new ReadDrain(context, () => undefined) };
}
