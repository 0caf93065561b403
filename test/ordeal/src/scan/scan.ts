/**
 * A list of a million resources, scanned twice and published, while another connection revokes (S8, P2): what this process
 * keeps does not grow with the list, revocations do not wait for the publication, and no half catalogue is ever named.
 */
import { createHash } from "node:crypto";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Ledger, Session } from "@fenceline/ledger";
import { Gates, type Ordeal, type OrdealOptions, reportOf, Trials } from "../ordeal.js";
import { inSchemaOfItsOwn } from "../own-schema.js";

const SOURCE = "ordeal";
const READER = "svc:ordeal";
const PAGE = 1_000;
/** A full collection takes milliseconds, so that not every page of a long list is followed by one. */
const LOOKS_PER_SCAN = 50;
/** What the process may keep beyond the first pages. The same for a thousand entries and for a million. */
const MAX_KEPT_MB = 16;
/** Of the 99th percentile: what a batch under the fence may cost on a busy machine; the whole list takes minutes. */
const MAX_REVOCATION_MS = 500;
const PAUSE_BETWEEN_REVOCATIONS_MS = 50;
const DAY_MS = 86_400_000;

/** The one gate that is a time, which a machine that is busy with something else may miss. */
export const REVOCATION_GATE = "revocations_do_not_wait_for_the_publication";

const gateRules = {
  memory_does_not_grow_with_the_list: ["S8"],
  no_half_catalogue_is_named: ["S7", "S8"],
  catalogue_is_what_two_scans_listed: ["S4", "S8"],
  [REVOCATION_GATE]: ["P2"],
};

export const scan: Ordeal = {
  name: "scan",
  summary: "a list of a million resources, scanned twice and published beside revocations, in bounded memory",
  defaultEvents: 1_000_000,
  defaultConnections: 2,
  run: (options) =>
    inSchemaOfItsOwn({ ...options, connections: 2 }, (ledgers) => run(options, ledgers as [Ledger, Ledger])),
};

async function run({ events, seed, progress }: OrdealOptions, [ledger, revoker]: readonly [Ledger, Ledger]) {
  const started = performance.now();
  const gates = new Gates(gateRules);
  const trials = new Trials({ scan: ["complete"], publish: ["published"], revoke: ["EFFECTIVE"] });
  const memory = new Memory(gates, Math.ceil(events / PAGE / LOOKS_PER_SCAN));
  const figures: Record<string, number> = {};
  const session = await openSession(ledger);

  const scans: number[] = [];
  for (const name of ["first", "second"]) {
    const listed = await timed(figures, `${name} scan, pages (s)`, () =>
      recordScan(ledger, session, events, (done) => {
        progress(Math.round((done + scans.length * events) / 3));
        memory.look();
      }),
    );
    scans.push(listed);
    const finished = await timed(figures, `${name} scan, digest (s)`, () =>
      ledger.finishScan(session, listed, { complete: true }),
    );
    trials.note("scan", finished);
  }

  const [first, second] = scans as [number, number];
  const witness = new Witness(revoker, gates, trials, memory);
  const published = await timed(figures, "publication (s)", () => ledger.publishCatalog(session, { first, second }));
  const latencies = await witness.end();
  trials.note("publish", published.outcome);
  const known = await ledger.database.query<{ known: number }>(
    `select count(*) as known from ${ledger.schema}.subscription where listed_scan_id = $1`,
    [second],
  );
  gates.check(
    "catalogue_is_what_two_scans_listed",
    published.outcome === "published" && published.resources === events && known[0]?.known === events,
    () => `${events} listed, ${JSON.stringify(published)}, ${JSON.stringify(known)}`,
  );
  figures["revocations while it was published"] = latencies.length;
  figures["revocation, p50 (ms)"] = quantile(latencies, 0.5);
  const p99 = quantile(latencies, 0.99);
  figures["revocation, p99 (ms)"] = p99;
  gates.check(REVOCATION_GATE, p99 < MAX_REVOCATION_MS, () => `${p99.toFixed(0)} ms`);
  figures["revocation, longest (ms)"] = latencies.at(-1) ?? 0;
  figures["kept after the first pages, most (MB)"] = memory.mostKept;
  figures["resident set, growth (MB)"] = memory.residentGrowth;
  progress(events);

  const invariants = (await ledger.verify()).map(({ name, checked, broken }) => ({ name, checked, broken }));
  return reportOf({
    ordeal: scan.name,
    seed,
    events,
    connections: 2,
    seconds: (performance.now() - started) / 1000,
    tried: trials.tried,
    missing: [...trials.missing, ...gates.idle],
    gates: gates.all,
    figures,
    invariants,
  });
}

async function openSession(ledger: Ledger): Promise<Session> {
  await ledger.registerSource({ name: SOURCE });
  const opened = await ledger.openSession({ source: SOURCE, reader: READER, owner: "ordeal", leaseMs: DAY_MS });
  if (opened.outcome !== "opened") throw new RangeError(`The session is ${opened.outcome}.`);
  return opened.session;
}

/** Pages as a server would send them: each is made when it is asked for, and forgotten when it is recorded. */
async function recordScan(
  ledger: Ledger,
  session: Session,
  entries: number,
  onPage: (done: number) => void,
): Promise<number> {
  const begun = await ledger.beginScan(session);
  if (typeof begun === "string") throw new RangeError(`The scan is ${begun}.`);
  for (let start = 0; start < entries; start += PAGE) {
    const size = Math.min(PAGE, entries - start);
    const recorded = await ledger.recordScanPage(session, begun.scanId, {
      cursorDigest: digestOf(`cursor ${start}`),
      nextCursorDigest: start + size < entries ? digestOf(`cursor ${start + size}`) : null,
      entries: Array.from({ length: size }, (_, place) => {
        const uri = `${SOURCE}://shelf/${Math.floor((start + place) / 100)}/${start + place}`;
        return { uri, name: `Resource ${start + place}`, mimeType: "text/plain", descriptorDigest: digestOf(uri) };
      }),
    });
    if (recorded !== "recorded") throw new RangeError(`The page at ${start} is ${recorded}.`);
    onPage(start + size);
  }
  return begun.scanId;
}

/** Revokes in the scope that is being published, one after the other, and looks at what is named the catalogue meanwhile. */
class Witness {
  readonly #stop = new AbortController();
  readonly #latencies: number[] = [];
  readonly #running: Promise<void>;

  constructor(
    private readonly ledger: Ledger,
    private readonly gates: Gates,
    private readonly trials: Trials,
    private readonly memory: Memory,
  ) {
    this.#running = this.#run();
  }

  /** Sorted, in milliseconds. */
  async end(): Promise<number[]> {
    this.#stop.abort();
    await this.#running;
    return this.#latencies.sort((one, other) => one - other);
  }

  async #run(): Promise<void> {
    for (let number = 0; number === 0 || !this.#stop.signal.aborted; number += 1) {
      const began = performance.now();
      // Nothing listed is covered: what is measured is how long the fence is held.
      const request = {
        source: SOURCE,
        subject: READER,
        scope: { uri: `${SOURCE}://elsewhere/${number}` },
        reason: "ordeal",
      };
      const { state } = await this.ledger.revoke(request);
      const ms = performance.now() - began;
      this.#latencies.push(ms);
      this.trials.note("revoke", state);
      await this.#lookAtTheCatalogue();
      this.memory.look();
      await new Promise((resolve) => setTimeout(resolve, PAUSE_BETWEEN_REVOCATIONS_MS));
    }
  }

  async #lookAtTheCatalogue(): Promise<void> {
    const { schema, database } = this.ledger;
    const [row] = await database.query<{ catalogue: number | null; settled: boolean }>(
      `select c.catalog_scan_id as catalogue, exists (
         select 1 from ${schema}.receipt r where r.scope_id = c.scope_id and r.kind = 'catalog_published') as settled
       from ${schema}.policy_scope c join ${schema}.source o using (source_id) where o.name = $1`,
      [SOURCE],
    );
    this.gates.check("no_half_catalogue_is_named", row !== undefined && (row.catalogue !== null) === row.settled, () =>
      JSON.stringify(row),
    );
  }
}

/** What is kept, asked after a full collection: what garbage waits for one says nothing about a bound. */
class Memory {
  readonly #collect: () => void;
  readonly #firstResident = process.memoryUsage.rss();
  #baseline: number | undefined;
  #looks = 0;
  mostKept = 0;
  residentGrowth = 0;

  constructor(
    private readonly gates: Gates,
    private readonly every: number,
  ) {
    setFlagsFromString("--expose-gc");
    this.#collect = runInNewContext("gc") as () => void;
  }

  look(): void {
    this.#looks += 1;
    this.residentGrowth = Math.max(this.residentGrowth, (process.memoryUsage.rss() - this.#firstResident) / 2 ** 20);
    if (this.#looks > 4 && this.#looks % this.every !== 0) return;
    this.#collect();
    const { heapUsed, external } = process.memoryUsage();
    const megabytes = (heapUsed + external) / 2 ** 20;
    if (this.#looks < 2) return;
    this.#baseline ??= megabytes;
    const kept = megabytes - this.#baseline;
    this.mostKept = Math.max(this.mostKept, kept);
    this.gates.check("memory_does_not_grow_with_the_list", kept < MAX_KEPT_MB, () => `${kept.toFixed(1)} MB`);
  }
}

async function timed<Result>(
  figures: Record<string, number>,
  name: string,
  step: () => Promise<Result>,
): Promise<Result> {
  const began = performance.now();
  const result = await step();
  figures[name] = (performance.now() - began) / 1000;
  return result;
}

function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

function digestOf(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
