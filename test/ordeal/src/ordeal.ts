/** What an ordeal is: a long random run against a real database whose promises a checker of its own counts. */

export interface OrdealOptions {
  readonly postgresUrl: string;
  /** Of everything that is drawn. Several connections overlap as they will: the draws repeat, their order does not. */
  readonly seed: number;
  readonly events: number;
  readonly connections: number;
  /** Called now and then with the events done so far. */
  progress(done: number): void;
}

/** A promise, how often it was put to the test, and how often it was broken. */
export interface Gate {
  readonly name: string;
  /** Of the specification. */
  readonly rules: readonly string[];
  readonly evaluated: number;
  readonly violations: number;
  /** Of the rate of violations where none was seen: 3/n, with a confidence of 95 %. */
  readonly upperBound: number | null;
  /** The first few violations. */
  readonly examples: readonly string[];
}

/** Serialises to the one document of `--json`. */
export interface OrdealReport {
  readonly ordeal: string;
  /** No gate and no invariant was broken, and nothing is missing. */
  readonly ok: boolean;
  readonly seed: number;
  readonly events: number;
  readonly connections: number;
  readonly seconds: number;
  /** How often each kind was tried, by what came of it. */
  readonly tried: Readonly<Record<string, Readonly<Record<string, number>>>>;
  /** Kinds never tried, and outcomes that never came although they have to: such a run proves nothing. */
  readonly missing: readonly string[];
  readonly gates: readonly Gate[];
  /** What was measured, by name with its unit; judged by gates alone. */
  readonly figures?: Readonly<Record<string, number>>;
  /** Of `ledger.verify()` at the end. */
  readonly invariants: readonly { readonly name: string; readonly checked: number; readonly broken: number }[];
}

export interface Ordeal {
  readonly name: string;
  /** One line for the usage. */
  readonly summary: string;
  readonly defaultEvents: number;
  readonly defaultConnections: number;
  run(options: OrdealOptions): Promise<OrdealReport>;
}

/** Puts a report together; whether it is `ok` follows from its parts. */
export function reportOf(parts: Omit<OrdealReport, "ok">): OrdealReport {
  const held = parts.gates.every(({ violations }) => violations === 0);
  const sound = parts.invariants.every(({ broken }) => broken === 0);
  return { ...parts, ok: held && sound && parts.missing.length === 0 };
}

/** Counts what was tried of each kind and what came of it. */
export class Trials {
  readonly #counts = new Map<string, Map<string, number>>();

  /** @param required the outcomes without which a run proves nothing, by kind */
  constructor(private readonly required: Readonly<Record<string, readonly string[]>>) {}

  note(kind: string, outcome: string, times = 1): void {
    const outcomes = this.#counts.get(kind) ?? new Map<string, number>();
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + times);
    this.#counts.set(kind, outcomes);
  }

  get tried(): Record<string, Record<string, number>> {
    const kinds = [...this.#counts].sort(([one], [other]) => one.localeCompare(other));
    return Object.fromEntries(kinds.map(([kind, outcomes]) => [kind, Object.fromEntries([...outcomes].sort())]));
  }

  get missing(): string[] {
    return Object.entries(this.required).flatMap(([kind, outcomes]) =>
      outcomes.filter((outcome) => !this.#counts.get(kind)?.get(outcome)).map((outcome) => `${kind}: ${outcome}`),
    );
  }
}

const EXAMPLES = 5;

/** Counts, for each promise, how often it was put to the test and broken. */
export class Gates {
  readonly #gates = new Map<
    string,
    { rules: readonly string[]; evaluated: number; broken: string[]; violations: number }
  >();

  constructor(rules: Readonly<Record<string, readonly string[]>>) {
    for (const [name, cited] of Object.entries(rules)) {
      this.#gates.set(name, { rules: cited, evaluated: 0, broken: [], violations: 0 });
    }
  }

  /** @param example tells what broke it; asked only if it is broken */
  check(name: string, holds: boolean, example: () => string): void {
    const gate = this.#gates.get(name);
    if (gate === undefined) throw new RangeError(`There is no gate ${name}.`);
    gate.evaluated += 1;
    if (holds) return;
    gate.violations += 1;
    if (gate.broken.length < EXAMPLES) gate.broken.push(example());
  }

  get all(): Gate[] {
    return [...this.#gates].map(([name, { rules, evaluated, broken, violations }]) => ({
      name,
      rules,
      evaluated,
      violations,
      upperBound: violations === 0 && evaluated > 0 ? 3 / evaluated : null,
      examples: broken,
    }));
  }

  /** Gates that nothing was put to: what they promise was not tried. */
  get idle(): string[] {
    return this.all.filter(({ evaluated }) => evaluated === 0).map(({ name }) => `${name}: never evaluated`);
  }
}
