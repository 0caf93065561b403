/**
 * Two complete scans in succession, and what they agree on (S4); or one that is proven (S3). Here is only the trying again, and
 * the reason when it comes to nothing: what a scan is, and whether two agree, the ledger decides.
 */
import type { PublishResult } from "@fenceline/ledger";
import { Backoff, pause } from "../backoff.js";
import { type ListScan, ListWalk } from "./list-scan.js";
import type { SourceContext } from "./source-context.js";
import type { SourceProblem } from "./worker-pool-options.js";

export type CatalogOutcome =
  | Extract<PublishResult, { outcome: "published" }>
  | { readonly outcome: "unsettled"; readonly resources: number; readonly discovered: number }
  /** Nothing may be concluded from it, least of all that anything was removed (S8, S9). */
  | { readonly outcome: "unknown"; readonly reason: string; readonly message: string }
  | { readonly outcome: "session_lost" };

export type CatalogWalk = CatalogOutcome & {
  /** What was not valid in the last walk, as far as it came. */
  readonly faults: readonly SourceProblem[];
  /** Snapshot ids contradicted one another: from then on they count for nothing in this session (S3). */
  readonly distrusted: SourceProblem | undefined;
};

/** What is known of a source's resources, and what to do about them. */
export interface KnownResources {
  has(uri: string): boolean;
  /** They are listed such that the configuration leaves them out: closed before a catalogue lacks them. */
  leaveOut(uris: readonly string[]): Promise<void>;
}

const NOTHING_KNOWN: KnownResources = { has: () => false, leaveOut: () => Promise.resolve() };

/**
 * Walks the source's list until two scans agree, or `scanAttempts` pairs did not.
 *
 * @param known default: nothing is
 */
export async function reconcileCatalog(
  context: SourceContext,
  known: KnownResources = NOTHING_KNOWN,
): Promise<CatalogWalk> {
  const reconciliation = new Reconciliation(context, known);
  const outcome = await reconciliation.run();
  return { ...outcome, faults: reconciliation.faults, distrusted: reconciliation.distrusted };
}

interface ScanPair {
  readonly first: number;
  readonly second: number;
}

type Failure = Extract<CatalogOutcome, { outcome: "unknown" | "session_lost" }>;

class Reconciliation {
  faults: readonly SourceProblem[] = [];
  distrusted: SourceProblem | undefined;

  constructor(
    private readonly context: SourceContext,
    private readonly known: KnownResources,
  ) {}

  async run(): Promise<CatalogOutcome> {
    const { ledger, lease, settings, signal, logger } = this.context;
    const backoff = new Backoff({ minMs: 100, maxMs: 5_000 });
    let first: number | undefined;
    let lastPair: ScanPair | undefined;
    let failure: CatalogOutcome = { outcome: "unknown", reason: "not_tried", message: "no scan was made" };

    for (let attempt = 1; attempt <= settings.scanAttempts; attempt += 1) {
      if (attempt > 1) await pause(backoff.next(), signal);
      if (signal.aborted || !lease.held) return { outcome: "session_lost" };
      const scans = await this.#scanPair(first);
      first = undefined;
      if ("outcome" in scans) {
        if (scans.outcome === "session_lost" || isFinal(scans)) return scans;
        failure = scans;
        continue;
      }
      lastPair = scans;
      const { removalFloor: floor, reviewMs } = settings;
      const result = await ledger.publishCatalog(lease.session, { ...scans, floor, reviewMs });
      if (result.outcome === "published") return result;
      if (result.outcome === "session_lost") return { outcome: "session_lost" };
      logger.info({ attempt, outcome: result.outcome }, "the scans do not agree yet");
      // The later one may agree with the next; after a list_changed if that came before it began (S4), which the ledger knows.
      if (result.outcome !== "incomplete") first = scans.second;
    }
    return lastPair ? this.#publishUnsettled(lastPair) : failure;
  }

  async #publishUnsettled(pair: ScanPair): Promise<CatalogOutcome> {
    const { ledger, lease, settings } = this.context;
    const attempts = settings.scanAttempts;
    const { outcome, ...counts } = await ledger.publishUnsettled(lease.session, { ...pair, attempts });
    if (outcome === "session_lost") return { outcome };
    if (outcome === "published") return { outcome: "unsettled", ...counts };
    return { outcome: "unknown", reason: outcome, message: "the last two scans are no pair any more" };
  }

  /** A proven snapshot is a pair by itself (S3). */
  async #scanPair(known: number | undefined): Promise<ScanPair | Failure> {
    const first = known === undefined ? await this.#scan() : { outcome: "complete" as const, scanId: known };
    if (!("scanId" in first)) return first;
    const second = first.outcome === "proven" ? first : await this.#scan();
    if (!("scanId" in second)) return second;
    return { first: second.outcome === "proven" ? second.scanId : first.scanId, second: second.scanId };
  }

  async #scan(): Promise<Extract<ListScan, { scanId: number }> | Failure> {
    const walk = new ListWalk(this.context, (uri) => this.known.has(uri));
    const scan = await walk.run();
    this.faults = walk.faults.problems;
    if (walk.leftOut.size > 0) await this.known.leaveOut([...walk.leftOut]);
    if (scan.outcome !== "void") return scan;
    this.distrusted = {
      code: "snapshot_distrusted",
      message: `The server's snapshot ids are not used: ${scan.message}.`,
    };
    return { outcome: "unknown", reason: "scan_void", message: scan.message };
  }
}

/** Trying again at once would bring the same answer: of a list that never ends, after a hundred thousand pages. */
const FINAL = new Set<string>([
  ...["capability_absent", "not_offered", "unauthorized", "forbidden"],
  ...["page_budget", "entry_budget", "byte_budget"],
]);

function isFinal({ reason }: { readonly reason: string }): boolean {
  return FINAL.has(reason);
}
