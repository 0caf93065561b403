/**
 * Two complete scans in succession, and what they agree on (S4). Scans are recorded page by page in the ledger, which
 * compares them; here is only the walking, the trying again, and the reason when it comes to nothing.
 */
import { defaultScanBudgets, type PublishResult, type RecordedPage } from "@fenceline/ledger";
import { Backoff, pause } from "../backoff.js";
import { type ScanEnd, scanPages } from "../mcp/resource-scan.js";
import type { SourceContext } from "./source-context.js";
import { WalkFaults } from "./walk-faults.js";
import type { SourceProblem } from "./worker-pool-options.js";

export type CatalogOutcome =
  | Extract<PublishResult, { outcome: "published" }>
  | { readonly outcome: "unsettled"; readonly resources: number; readonly discovered: number }
  /** Nothing may be concluded from it, least of all that anything was removed (S8, S9). */
  | { readonly outcome: "unknown"; readonly reason: string; readonly message: string }
  | { readonly outcome: "session_lost" };

type ScanResult = { readonly scanId: number } | Extract<CatalogOutcome, { outcome: "unknown" | "session_lost" }>;

export type CatalogWalk = CatalogOutcome & {
  /** What was not valid in the last walk, as far as it came. */
  readonly faults: readonly SourceProblem[];
};

/** Walks the source's list until two scans agree, or `scanAttempts` pairs did not. */
export async function reconcileCatalog(source: SourceContext): Promise<CatalogWalk> {
  const context: WalkContext = { ...source, faults: new WalkFaults() };
  const outcome = await reconcile(context);
  return { ...outcome, faults: context.faults.problems };
}

/** With what the last walk has found so far. */
interface WalkContext extends SourceContext {
  faults: WalkFaults;
}

async function reconcile(context: WalkContext): Promise<CatalogOutcome> {
  const { ledger, lease, settings, signal } = context;
  const backoff = new Backoff({ minMs: 100, maxMs: 5_000 });
  let first: number | undefined;
  let lastPair: { first: number; second: number } | undefined;
  let failure: CatalogOutcome = { outcome: "unknown", reason: "not_tried", message: "no scan was made" };

  for (let attempt = 1; attempt <= settings.scanAttempts; attempt += 1) {
    if (attempt > 1) await pause(backoff.next(), signal);
    if (signal.aborted || !lease.held) return { outcome: "session_lost" };
    const scans = await scanPair(context, first);
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
    context.logger.info({ attempt, outcome: result.outcome }, "the scans do not agree yet");
    // The later one may agree with the next; after a list_changed if that came before it began (S4), which the ledger knows.
    if (result.outcome !== "incomplete") first = scans.second;
  }
  if (!lastPair) return failure;
  const { outcome, ...counts } = await ledger.publishUnsettled(lease.session, {
    ...lastPair,
    attempts: settings.scanAttempts,
  });
  if (outcome === "session_lost") return { outcome };
  if (outcome === "published") return { outcome: "unsettled", ...counts };
  return { outcome: "unknown", reason: outcome, message: "the last two scans are no pair any more" };
}

async function scanPair(
  context: WalkContext,
  known: number | undefined,
): Promise<{ first: number; second: number } | Exclude<ScanResult, { scanId: number }>> {
  const first = known === undefined ? await scanOnce(context) : { scanId: known };
  if ("outcome" in first) return first;
  const second = await scanOnce(context);
  return "outcome" in second ? second : { first: first.scanId, second: second.scanId };
}

async function scanOnce(context: WalkContext): Promise<ScanResult> {
  const { ledger, lease } = context;
  context.faults = new WalkFaults();
  const begun = await ledger.beginScan(lease.session);
  if (begun === "session_lost") return { outcome: "session_lost" };
  if (begun === "no_resources_capability") {
    return { outcome: "unknown", reason: "capability_absent", message: "the server declares no resources capability" };
  }
  const end = await recordPages(context, begun.scanId);
  if (typeof end === "string") return stoppedByLedger(end);
  if (end.verdict === "COMPLETE") {
    const finished = await ledger.finishScan(lease.session, begun.scanId, { complete: true });
    if (finished === "session_lost") return { outcome: "session_lost" };
    if (finished === "complete" || finished === "proven") return { scanId: begun.scanId };
    return { outcome: "unknown", reason: `scan_${finished}`, message: `the ledger calls the scan ${finished}` };
  }
  const { reason, message } = end;
  await ledger.finishScan(lease.session, begun.scanId, { complete: false, verdict: "INCOMPLETE", reason });
  if (reason === "session_lost" || reason === "aborted") return { outcome: "session_lost" };
  return { outcome: "unknown", reason, message };
}

/** How the listing ended, or why the ledger took no further page. */
async function recordPages(
  { ledger, lease, connection, signal, onProgress, faults }: WalkContext,
  scanId: number,
): Promise<ScanEnd | Exclude<RecordedPage, "recorded">> {
  const pages = scanPages(connection, { kind: "resources", budgets: defaultScanBudgets, signal });
  for (let entries = 0; ; ) {
    const step = await pages.next();
    if (step.done) return step.value;
    const recorded = await ledger.recordScanPage(lease.session, scanId, step.value);
    if (recorded !== "recorded") return recorded;
    faults.addPage(step.value);
    entries += step.value.entries.length;
    onProgress({ phase: "scan", done: entries, total: entries });
  }
}

function stoppedByLedger(stop: Exclude<RecordedPage, "recorded">): ScanResult {
  if (stop === "session_lost" || stop === "scan_ended") return { outcome: "session_lost" };
  return { outcome: "unknown", reason: stop, message: `the ledger ended the scan: ${stop}` };
}

/** Trying again at once would bring the same answer: of a list that never ends, after a hundred thousand pages. */
const FINAL = new Set<string>([
  ...["capability_absent", "not_offered", "unauthorized", "forbidden"],
  ...["page_budget", "entry_budget", "byte_budget"],
]);

function isFinal({ reason }: { readonly reason: string }): boolean {
  return FINAL.has(reason);
}
