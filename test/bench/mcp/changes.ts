import { startWorkers } from "@fenceline/connector-mcp";
import { assert, type Ledger } from "@fenceline/ledger";
import type { Measure, Platform } from "../measure.js";
import { withCalls } from "./long-list.js";
import { configFor, type McpBench, silent } from "./mcp-bench.js";
import type { ToServer } from "./server-process.js";

const RESOURCES = 1_000;
const CHANGES = 1_000;

type Changes = Omit<Extract<ToServer, { do: "change" }>, "do">;

export const readsPerChange: readonly Measure<McpBench>[] = [
  {
    name: "reads per distinct change, 1,000 changes each announced 100 times at once",
    unit: "ratio",
    goal: { atMost: 1.05 },
    run: (bench) => readsFor(bench, { changes: CHANGES, perSecond: 50, times: 100, overMs: 50 }),
  },
  {
    name: "reads per distinct change, 1,000 changes each announced 100 times over two seconds",
    unit: "ratio",
    run: (bench) => readsFor(bench, { changes: CHANGES, perSecond: 50, times: 100, overMs: 2_000 }),
  },
];

const lastOf = new Map<Platform, readonly number[]>();

const latency = (share: number) => async (bench: McpBench) => {
  const latencies = lastOf.get(bench.platform) ?? (await latenciesOf(bench));
  lastOf.set(bench.platform, latencies);
  return latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * share))] ?? Number.NaN;
};

export const changeLatency: readonly Measure<McpBench>[] = [
  {
    name: "from change to accepted version, 1,000 subscribed resources, 100 changes a second, p50",
    unit: "ms",
    run: latency(0.5),
  },
  { name: "from change to accepted version, the same, p99.9", unit: "ms", run: latency(0.999) },
];

async function readsFor(bench: McpBench, changes: Changes): Promise<number> {
  const before = async () => {
    const [row] = await bench.sql<{ reads: number }>(
      `select count(*)::int as reads from fenceline.read where reason = 'notified'`,
    );
    return row?.reads ?? Number.NaN;
  };
  const served = await serve(bench);
  const known = await before();
  await served.change(changes);
  return ((await before()) - known) / changes.changes;
}

/** In milliseconds, ascending: from when the server changed a resource until the ledger had accepted that content. */
async function latenciesOf(bench: McpBench): Promise<readonly number[]> {
  const served = await serve(bench);
  await served.change({ changes: 3_000, perSecond: 100, times: 1, overMs: 0 });
  return served.latencies().toSorted((a, b) => a - b);
}

/** Workers that serve a server's thousand resources, all of them subscribed and read. */
async function serve(bench: McpBench) {
  const server = await bench.startServer(RESOURCES);
  const config = configFor(server);
  /** By URI: which of its changes was accepted last, named by its time. */
  const accepted = new Map<string, number>();
  const latencies: number[] = [];
  const note = (answers: Parameters<Ledger["acceptResourceVersions"]>[1]) => {
    const now = performance.timeOrigin + performance.now();
    for (const { parts } of answers) {
      const [part] = parts ?? [];
      if (!part || !("text" in part) || part.text === undefined) continue;
      const changedAt = Number.parseFloat(part.text);
      if (changedAt === 0 || accepted.get(part.uri) === changedAt) continue;
      accepted.set(part.uri, changedAt);
      latencies.push(now - changedAt);
    }
  };
  const watched = (ledger: Ledger): Ledger =>
    withCalls(ledger, {
      withReadTiming: (timing) => watched(ledger.withReadTiming(timing)),
      async acceptResourceVersions(session, answers) {
        const outcomes = await ledger.acceptResourceVersions(session, answers);
        note(answers);
        return outcomes;
      },
    });
  const pool = await startWorkers({ ledger: watched(bench.ledger), config, logger: silent });
  bench.onClose(() => pool.close());
  assert((await pool.idle({ timeoutMs: 60_000 })) === "idle", "Everything is read at first.");
  const [source] = pool.stats().sources;
  assert(source?.pushed === RESOURCES, `All ${RESOURCES} are pushed, not ${source?.pushed}.`);
  return {
    /** Resolves when every change was accepted and nothing is due any more. */
    async change(changes: Changes) {
      await server.ask({ do: "change", ...changes });
      assert((await pool.idle({ timeoutMs: 60_000 })) === "idle", "The changes are read in the end.");
      const expected = Math.min(changes.changes, RESOURCES);
      assert(accepted.size === expected, `The last content of ${expected} is accepted, not of ${accepted.size}.`);
    },
    latencies: () => latencies,
  };
}
