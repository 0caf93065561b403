import type { IndexWork, Ledger } from "@fenceline/ledger";
import type { SourceCounts } from "./source-counts.js";

/** Of which (source, reader) a version is, as far as this pool serves it. */
export type CountsOf = (source: string, reader: string) => SourceCounts | undefined;

export interface IndexCounting {
  /** The ledger, for an index: every call goes through. */
  readonly ledger: Ledger;
  /** Attributes what a run of an index says about a URI to those sources it was claimed for, and forgets the claims. */
  attribute(
    index: string,
    problems: readonly { readonly uri: string; readonly code: string; readonly message: string }[],
  ): void;
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
  const idByName = new Map<string, number>();
  /** URIs that were claimed for each, by the id of the index. */
  const claimedBy = new Map<number, Map<SourceCounts, Set<string>>>();
  let claimed = 0;
  let confirmed = 0;

  const registerIndex: Ledger["registerIndex"] = async (index) => {
    const ref = await ledger.registerIndex(index);
    idByName.set(index.name, ref.indexId);
    return ref;
  };

  const claimIndexWork: Ledger["claimIndexWork"] = async (index, page) => {
    const works = await ledger.claimIndexWork(index, page);
    const claims = claimedBy.get(index.indexId) ?? new Map<SourceCounts, Set<string>>();
    claimedBy.set(index.indexId, claims);
    for (const { uri, source, reader } of works) {
      const counts = countsOf(source, reader);
      if (counts) claims.set(counts, (claims.get(counts) ?? new Set()).add(uri));
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

  const counted: Partial<Ledger> = { registerIndex, claimIndexWork, confirmVersions };
  return {
    ledger: new Proxy(ledger, {
      get(target, name) {
        const own: unknown = Reflect.get(counted, name) ?? Reflect.get(target, name, target);
        return typeof own === "function" ? own.bind(target) : own;
      },
    }),
    attribute(index, problems) {
      const id = idByName.get(index);
      if (id === undefined) return;
      for (const [counts, uris] of claimedBy.get(id) ?? []) {
        counts.passedIndex(
          index,
          uris,
          problems.filter(({ uri }) => uris.has(uri)),
        );
      }
      claimedBy.delete(id);
    },
  };
}

/** Entries of the version before that the new one does not keep. They go unless another reader's version holds them (L5). */
function replacedBy(work: IndexWork, reused: readonly string[]): number {
  return work.present.length - new Set(reused).size;
}
