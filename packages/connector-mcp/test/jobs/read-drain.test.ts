import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { settingsSchema } from "#src/config/settings.js";
import { reconcileCatalog } from "#src/jobs/catalog-walk.js";
import { ReadDrain } from "#src/jobs/read-drain.js";
import { SessionLease } from "#src/jobs/session-lease.js";
import type { SourceContext } from "#src/jobs/source-context.js";
import { SourceCounts } from "#src/jobs/source-counts.js";
import { connectSource } from "#src/mcp/source-connection.js";
import { startModernServer } from "../mcp/modern-server.js";
import { newCast, useLedger } from "./pool-setup.js";

const ledgerOf = useLedger();

test("a drain that begins while another one waits for its reads leaves neither waiting for ever (U5)", async () => {
  const { drain, server } = await setUp({ resources: 40, readConcurrency: 2 });
  const uris = [...server.resources.keys()];

  const named = drain.drainUris(uris);
  await expect.poll(() => server.reads.size, { interval: 1 }).toBeGreaterThan(2);
  const due = drain.drainDue();

  expect(await Promise.all([named, due])).toEqual(["drained", "drained"]);
  expect([...server.reads.values()]).toEqual(uris.map(() => 1));
});

/** A source with that many resources, all of them listed and polled, none of them read. */
async function setUp(options: { resources: number; readConcurrency: number }) {
  const server = await startModernServer();
  onTestFinished(() => server.close());
  server.resources.clear();
  for (let n = 0; n < options.resources; n += 1) server.resources.set(`note://${n}`, `text ${n}`);
  const ledger = ledgerOf();
  const { source, reader } = newCast();
  await ledger.registerSource({ name: source });
  const taken = await SessionLease.take(ledger, { source, reader, owner: "test", leaseMs: 30_000 });
  if (taken.outcome !== "taken") return expect.fail("the session was held");
  const { lease } = taken;
  onTestFinished(() => lease.end());
  const connection = await connectSource({ url: server.url, requestTimeoutMs: 10_000 });
  onTestFinished(() => connection.close());
  const context: SourceContext = {
    ledger,
    lease,
    connection,
    settings: settingsSchema.parse({ readConcurrency: options.readConcurrency }),
    counts: new SourceCounts(source, reader),
    logger: pino({ level: "silent" }),
    onProgress: () => undefined,
    signal: new AbortController().signal,
  };
  expect(await reconcileCatalog(context)).toMatchObject({ outcome: "published" });
  const toOpen = await ledger.subscriptionsToOpen(lease.session, { limit: 1_000 });
  const polled = toOpen.map(({ subscriptionId }) => subscriptionId);
  await ledger.activateSubscriptions(lease.session, { shard: 0, pushed: [], polled });
  return { server, drain: new ReadDrain(context, () => undefined) };
}
