import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { assert, type Ledger } from "@fenceline/ledger";
import type { Client } from "@modelcontextprotocol/client";
import type { Measure, Platform } from "../measure.js";
import { reconcileCatalog } from "./connector-parts.js";
import type { McpBench } from "./mcp-bench.js";

/** On PGlite a tenth: it is one process with everything else there, and no goal is judged on it. */
const RESOURCES: Readonly<Record<Platform, number>> = { postgres: 1_000_000, embedded: 100_000 };
const PAGE = 1_000;
/** Memory is looked at after so many pages. */
const LOOK_EVERY = 20;

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** After so many pages of the scan, as many bare ones are walked: both then meet the same disturbances. */
const SLICE = 50;

interface WalkedList {
  /** A walk that is recorded, beside a bare one. */
  readonly timeRatio: number;
  /** Of the resident memory over what it was before the first page, at most. */
  readonly grownMegabytes: number;
}

/** The figures are of one run. */
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
    name: "resident memory grown while 1,000,000 resources are scanned twice",
    unit: "MB",
    goal: { atMost: 150 },
    run: figure("grownMegabytes"),
  },
];

/** Both scans as discovery makes them. Publishing what they agree on is the ledger's: `npm run ordeal -- scan`. */
async function walk(bench: McpBench): Promise<WalkedList> {
  const resources = RESOURCES[bench.platform];
  const server = await bench.startServer(resources);
  const context = await bench.hold(server);
  const bare = new BareWalk(await bench.connectBare(server));
  const memory = new ResidentMemory();
  let pages = 0;
  const recordScanPage: Ledger["recordScanPage"] = async (...page) => {
    const recorded = await bench.ledger.recordScanPage(...page);
    pages += 1;
    if (pages % LOOK_EVERY === 0) memory.look();
    if (pages % SLICE === 0) await bare.walk(SLICE);
    return recorded;
  };
  const publishCatalog: Ledger["publishCatalog"] = async () => ({ outcome: "session_lost" });
  const startedAt = performance.now();
  await reconcileCatalog({ ...context, ledger: withCalls(bench.ledger, { recordScanPage, publishCatalog }) });
  const scansMs = performance.now() - startedAt - bare.ms;
  memory.look();
  assert(pages === (2 * resources) / PAGE, `Both scans see every page, not ${pages} in all.`);
  assert(bare.entries === 2 * resources, `So do the bare walks, not ${bare.entries} entries.`);
  return { timeRatio: scansMs / bare.ms, grownMegabytes: memory.grownMegabytes };
}

/** The list as the SDK's client gives it, page by page, again and again, with nothing kept. */
class BareWalk {
  entries = 0;
  ms = 0;
  #cursor: string | undefined;

  constructor(private readonly client: Client) {}

  async walk(pages: number): Promise<void> {
    const startedAt = performance.now();
    for (let page = 0; page < pages; page++) {
      const params = this.#cursor === undefined ? {} : { params: { cursor: this.#cursor } };
      const answer = await this.client.request({ method: "resources/list", ...params });
      this.entries += answer.resources.length;
      this.#cursor = answer.nextCursor;
    }
    this.ms += performance.now() - startedAt;
  }
}

/** Growth of this process from a collected heap on. What is not yet freed counts too: it is what a machine has to have. */
class ResidentMemory {
  readonly #before = ResidentMemory.#now();
  #most = 0;

  get grownMegabytes(): number {
    return this.#most / 1024 / 1024;
  }

  look(): void {
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
