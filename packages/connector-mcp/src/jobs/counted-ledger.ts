import type { IndexWork, Ledger } from "@fenceline/ledger";
import type { SourceCounts } from "./source-counts.js";

/** Of which (source, reader) a version is, as far as this pool serves it. */
export type CountsOf = (source: string, reader: string) => SourceCounts | undefined;

export interface IndexCounting {
  /** The ledger, for an index: every call goes through. */
  readonly ledger: Ledger;
  /** Attributes what a run says about a URI to those sources it was claimed for, and forgets the claims. */
  attribute(problems: readonly { readonly uri: string; readonly code: string; readonly message: string }[]): void;
}

/**
 * Counts per source what an index writes, keeps and drops, where it passes: an index works for all sources at once and
 * reports in total.
 *
 * @param onConfirmed versions claimed and versions confirmed since the pool began
 */
export function countingLedger(
  ledger: Ledger,
  countsOf: CountsOf,
  onConfirmed: (done: number, total: number) => void,
): IndexCounting {
  const claimedBy = new Map<string, Set<SourceCounts>>();
  let claimed = 0;
  let confirmed = 0;

  const claimIndexWork: Ledger["claimIndexWork"] = async (...request) => {
    const works = await ledger.claimIndexWork(...request);
    for (const { uri, source, reader } of works) {
      const counts = countsOf(source, reader);
      if (counts) claimedBy.set(uri, (claimedBy.get(uri) ?? new Set()).add(counts));
    }
    claimed += works.length;
    if (works.length > 0) onConfirmed(confirmed, claimed);
    return works;
  };

  const confirmVersions: Ledger["confirmVersions"] = async (index, versions) => {
    const outcomes = await ledger.confirmVersions(index, versions);
    const outcomeOf = new Map(outcomes.map(({ lineageId, outcome }) => [lineageId, outcome]));
    for (const { work, written, reused } of versions) {
      confirmed += 1;
      if (outcomeOf.get(work.lineageId) !== "confirmed") continue;
      countsOf(work.source, work.reader)?.indexed({
        written: written.reduce((sum, { entryIds }) => sum + entryIds.length, 0),
        reused: reused.length,
        removed: replacedBy(work, reused),
      });
    }
    onConfirmed(confirmed, claimed);
    return outcomes;
  };

  const counted: Partial<Ledger> = { claimIndexWork, confirmVersions };
  return {
    ledger: new Proxy(ledger, {
      get(target, name) {
        const own: unknown = Reflect.get(counted, name) ?? Reflect.get(target, name, target);
        return typeof own === "function" ? own.bind(target) : own;
      },
    }),
    attribute(problems) {
      for (const problem of problems) {
        for (const counts of claimedBy.get(problem.uri) ?? []) counts.problem(problem);
      }
      claimedBy.clear();
    },
  };
}

/** Entries of the version before that the new one does not keep. They go unless another reader's version holds them (L5). */
function replacedBy(work: IndexWork, reused: readonly string[]): number {
  return work.present.length - new Set(reused).size;
}
