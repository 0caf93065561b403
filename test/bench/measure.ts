/** What a goal is stated in. A ratio is to the raw operation of the same run, so that it says the same on any machine. */
export type Unit = "ratio" | "ms" | "bytes" | "MB";

/** Which side of the figure is good. */
export type Goal = { readonly atLeast: number } | { readonly atMost: number };

/** One line of a benchmark. `Bench` is what its suite prepares for it. */
export interface Measure<Bench> {
  /** Says what is done, beside what: "one accept beside one raw update, 1 connection". */
  readonly name: string;
  readonly unit: Unit;
  /** Judged on PostgreSQL alone; without one the figure is only printed. */
  readonly goal?: Goal;
  /** Prepares its data, measures, and answers with the figure. What it leaves behind goes with the bench. */
  run(bench: Bench): Promise<number>;
}

/** A database that a suite measures on. */
export type Platform = "postgres" | "embedded";

/** A named set of measures, each run on every platform that there is. */
export interface Suite<Bench = unknown> {
  readonly name: string;
  readonly measures: readonly Measure<Bench>[];
  /** Why a platform is not there; `undefined` where it is. */
  missing(platform: Platform): string | undefined;
  /** Calls `use` with a bench of its own, and takes away afterwards what it held. */
  withBench<Result>(platform: Platform, use: (bench: Bench) => Promise<Result>): Promise<Result>;
}

export function isMet(goal: Goal, figure: number): boolean {
  return "atLeast" in goal ? figure >= goal.atLeast : figure <= goal.atMost;
}
