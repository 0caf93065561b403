import type { AcceptOutcome, LedgerStatus } from "@fenceline/ledger";
import type { SourceProblem, SourceStats } from "./worker-pool-options.js";

const KEPT_PROBLEMS = 100;

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
  /** By URI and code, so that a resource that fails every minute is one problem. */
  readonly #problems = new Map<string, SourceProblem>();
  era: SourceStats["era"];
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
    this.resolved(uri);
  }

  failed(problem: SourceProblem): void {
    this.#reads.failed += 1;
    this.problem(problem);
  }

  indexed(entries: { readonly written: number; readonly reused: number; readonly removed: number }): void {
    this.#entries.written += entries.written;
    this.#entries.reused += entries.reused;
    this.#entries.removed += entries.removed;
  }

  problem(problem: SourceProblem): void {
    const key = `${problem.uri ?? ""} ${problem.code}`;
    this.#problems.delete(key);
    this.#problems.set(key, problem);
    const [oldest] = this.#problems.keys();
    if (this.#problems.size > KEPT_PROBLEMS && oldest !== undefined) this.#problems.delete(oldest);
  }

  /** Whatever kept this resource (or, without a URI, the source) from being read is over. */
  resolved(uri?: string): void {
    if (this.#problems.size === 0) return;
    for (const [key, problem] of this.#problems) if (problem.uri === uri) this.#problems.delete(key);
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
      problems: [...this.#problems.values()],
    };
  }
}
