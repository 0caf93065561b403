import type { AcceptOutcome, LedgerStatus } from "@fenceline/ledger";
import { StandingProblems } from "./standing-problems.js";
import type { SourceProblem, SourceStats } from "./worker-pool-options.js";

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

const COUNTED_AS: Record<AcceptOutcome, "accepted" | "unchanged" | "refused"> = {
  accepted: "accepted",
  accepted_not_current: "accepted",
  unchanged: "unchanged",
  unchanged_not_current: "unchanged",
  stale: "refused",
  stale_after_close: "refused",
  revoked: "refused",
  not_issued: "refused",
};

/** What happened with one (source, reader) since the pool began. */
export class SourceCounts {
  readonly #reads: Mutable<SourceStats["reads"]> = { issued: 0, accepted: 0, unchanged: 0, refused: 0, failed: 0 };
  readonly #entries: Mutable<SourceStats["entries"]> = { written: 0, reused: 0, removed: 0 };
  readonly #problems = new StandingProblems();
  era: SourceStats["era"];
  notificationsIgnored = 0;
  pushed = 0;
  polled = 0;
  scan: SourceStats["scan"];

  constructor(
    readonly name: string,
    readonly reader: string,
  ) {}

  issued(count: number): void {
    this.#reads.issued += count;
  }

  answered(uri: string, outcome: AcceptOutcome): void {
    this.#reads[COUNTED_AS[outcome]] += 1;
    this.#problems.resolve("read", uri);
  }

  failed(problem: SourceProblem): void {
    this.#reads.failed += 1;
    this.#problems.add("read", problem);
  }

  /**
   * A discovery ended.
   *
   * @param scan why it came to nothing, and what is to be said of its catalogue
   * @param list what of the list was not valid; where the list did not end, of as much of it as came
   */
  discovered(end: { scan: readonly SourceProblem[]; list: readonly SourceProblem[]; listEnded: boolean }): void {
    this.#problems.replace("scan", end.scan);
    if (end.listEnded) this.#problems.replace("list", end.list);
    else for (const problem of end.list) this.#problems.add("list", problem);
  }

  indexed(entries: { readonly written: number; readonly reused: number; readonly removed: number }): void {
    this.#entries.written += entries.written;
    this.#entries.reused += entries.reused;
    this.#entries.removed += entries.removed;
  }

  /** These versions passed an index; what it left out of them, or of some. */
  passedIndex(index: string, uris: Iterable<string>, problems: readonly SourceProblem[]): void {
    for (const uri of uris) this.#problems.resolve(`index ${index}`, uri);
    for (const problem of problems) this.#problems.add(`index ${index}`, problem);
  }

  /** What keeps the source as a whole from being used. */
  problem(problem: SourceProblem): void {
    this.#problems.add("source", problem);
  }

  /** The source can be used. */
  resolved(): void {
    this.#problems.resolve("source");
  }

  /** What the ledger knows of a source that another process holds. */
  adopt({ era, pushed, polled, scan }: LedgerStatus["sources"][number]): void {
    this.era = era === "modern" || era === "legacy" ? era : undefined;
    this.pushed = pushed;
    this.polled = polled;
    this.scan = scan === undefined ? undefined : { verdict: scan, resources: pushed + polled };
  }

  snapshot(): SourceStats {
    return {
      name: this.name,
      reader: this.reader,
      era: this.era,
      pushed: this.pushed,
      polled: this.polled,
      scan: this.scan,
      reads: { ...this.#reads },
      entries: { ...this.#entries },
      notificationsIgnored: this.notificationsIgnored,
      problems: this.#problems.all,
    };
  }
}
