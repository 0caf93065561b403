import type { SourceProblem } from "./worker-pool-options.js";

/** Kept of one origin, at most. */
const KEPT_PROBLEMS = 100;

/**
 * Who found a problem, and alone can tell that it is over: the connection, the last discovery (that it came to nothing, or what
 * of the list was not valid), the reading, or an index.
 */
export type ProblemOrigin = "source" | "scan" | "list" | "read" | `index ${string}`;

/**
 * What keeps something from being read or indexed, for as long as it stands. Unchanged content is read well every minute and
 * indexed never again, so a successful read says nothing about what an index left out, nor about the list.
 */
export class StandingProblems {
  readonly #byOrigin = new Map<ProblemOrigin, Map<string, SourceProblem>>();

  /** A resource that fails every minute is one problem. */
  add(origin: ProblemOrigin, problem: SourceProblem): void {
    const standing = this.#of(origin);
    const key = `${problem.uri ?? ""} ${problem.code}`;
    standing.delete(key);
    standing.set(key, problem);
    const [oldest] = standing.keys();
    if (standing.size > KEPT_PROBLEMS && oldest !== undefined) standing.delete(oldest);
  }

  /** Of this origin, these stand from now on and no other. */
  replace(origin: ProblemOrigin, problems: readonly SourceProblem[]): void {
    this.#byOrigin.set(origin, new Map(problems.map((problem, position) => [`${position}`, problem])));
  }

  /** What kept this resource (without a URI: the source) is over. */
  resolve(origin: ProblemOrigin, uri?: string): void {
    const standing = this.#byOrigin.get(origin);
    if (standing === undefined || standing.size === 0) return;
    for (const [key, problem] of standing) if (problem.uri === uri) standing.delete(key);
  }

  get all(): SourceProblem[] {
    return [...this.#byOrigin.values()].flatMap((standing) => [...standing.values()]);
  }

  #of(origin: ProblemOrigin): Map<string, SourceProblem> {
    const known = this.#byOrigin.get(origin) ?? new Map<string, SourceProblem>();
    this.#byOrigin.set(origin, known);
    return known;
  }
}
