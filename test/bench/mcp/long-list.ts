import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { assert, type Ledger } from "@fenceline/ledger";
import type { Measure, Platform } from "../measure.js";
import { reconcileCatalog } from "./connector-parts.js";
import type { McpBench } from "./mcp-bench.js";

/** On PGlite a tenth: it is one process with everything else there, and no goal is judged on it. */
const RESOURCES: Readonly<Record<Platform, number>> = { postgres: 1_000_000, embedded: 100_000 };
/** Memory is looked at after so many pages. */
const LOOK_EVERY = 20;

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

interface WalkedList {
  /** A walk that is recorded, beside a bare one. */
  readonly timeRatio: number;
  /** Of the resident memory over what it was before the first page, at most. */
  readonly grownMegabytes: number;
  readonly publicationMs: number;
}

/** The three figures are of one run. */
const lastOf = new Map<Platform, WalkedList>();

const figure = (of: keyof WalkedList) => async (bench: McpBench) => {
  const known = lastOf.get(bench.platform) ?? (await walk(bench));
  lastOf.set(bench.platform, known);
  return known[of];
};

export const longList: readonly Measure<McpBench>[] = [
  {
    name: "a scan of 1,000,000 resources in pages of 1,000 beside a bare page walk, per walk",
    unit: "ratio",
    goal: { atMost: 1.5 },
    run: figure("timeRatio"),
  },
  {
    name: "resident memory grown while 1,000,000 resources are scanned twice and published",
    unit: "MB",
    goal: { atMost: 150 },
    run: figure("grownMegabytes"),
  },
  { name: "publication of 1,000,000 resources that two scans agree on", unit: "ms", run: figure("publicationMs") },
];

async function walk(bench: McpBench): Promise<WalkedList> {
  const resources = RESOURCES[bench.platform];
  const server = await bench.startServer(resources);
  const context = await bench.hold(server);
  const memory = new ResidentMemory();
  let publicationMs = 0;
  const publishCatalog: Ledger["publishCatalog"] = async (...request) => {
    const startedAt = performance.now();
    const published = await bench.ledger.publishCatalog(...request);
    publicationMs = performance.now() - startedAt;
    return published;
  };
  const startedAt = performance.now();
  const outcome = await reconcileCatalog({
    ...context,
    ledger: withCalls(bench.ledger, { publishCatalog }),
    onProgress: () => memory.look(),
  });
  const totalMs = performance.now() - startedAt;
  memory.look(true);
  const published = outcome.outcome === "published" && outcome.resources === resources;
  assert(published, `All ${resources} are published, not ${JSON.stringify(outcome)}.`);
  // Last: what it leaves behind would hide what the scan takes.
  const bareMs = await bareWalk(bench, server, resources);
  return {
    timeRatio: (totalMs - publicationMs) / 2 / bareMs,
    grownMegabytes: memory.grownMegabytes,
    publicationMs,
  };
}

/** The list as the SDK's client gives it, page by page, with nothing kept. */
async function bareWalk(
  bench: McpBench,
  server: Awaited<ReturnType<McpBench["startServer"]>>,
  resources: number,
): Promise<number> {
  const client = await bench.connectBare(server);
  const startedAt = performance.now();
  let seen = 0;
  for (let cursor: string | undefined; ; ) {
    const params = cursor === undefined ? {} : { params: { cursor } };
    const page = await client.request({ method: "resources/list", ...params });
    seen += page.resources.length;
    cursor = page.nextCursor;
    if (cursor === undefined) break;
  }
  assert(seen === resources, `The bare walk sees ${resources}, not ${seen}.`);
  return performance.now() - startedAt;
}

/** Growth of this process from a collected heap on. What is not yet freed counts too: it is what a machine has to have. */
class ResidentMemory {
  readonly #before = ResidentMemory.#now();
  #most = 0;
  #pages = 0;

  get grownMegabytes(): number {
    return this.#most / 1024 / 1024;
  }

  look(always = false): void {
    if (!always && this.#pages++ % LOOK_EVERY !== 0) return;
    this.#most = Math.max(this.#most, process.memoryUsage.rss() - this.#before);
  }

  static #now(): number {
    collectGarbage();
    return process.memoryUsage.rss();
  }
}

/** The ledger with some of its calls replaced. */
export function withCalls(ledger: Ledger, calls: Partial<Ledger>): Ledger {
  return new Proxy(ledger, {
    get(target, name) {
      const own: unknown = Reflect.get(calls, name) ?? Reflect.get(target, name, target);
      return typeof own === "function" ? own.bind(target) : own;
    },
  });
}
