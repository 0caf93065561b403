/**
 * The method of every ratio: closed loops in short rounds, the variants one after the other in each round, the raw operation
 * among them. What disturbs the machine for longer than a round disturbs all of them, so the ratio of a round is steadier
 * than any figure in it, and the median over the rounds is steadier than the ratio of one.
 */

export interface Variant {
  /** Callers in the loop at once. Default 1. */
  readonly concurrency?: number;
  /** Untimed, before each round: stocks up what the round uses. */
  before?(): Promise<unknown>;
  /** Untimed, after each round. */
  after?(): Promise<unknown>;
  /** One call. Answers with the number of items it did; 0 ends the round, as there is nothing left to do. */
  call(worker: number): Promise<number>;
}

export interface VariantFigures {
  /** Median over the rounds. */
  readonly itemsPerSecond: number;
  /** Median over the rounds of the median call, in milliseconds. */
  readonly p50Ms: number;
  /** Over all calls of all rounds, in milliseconds. */
  readonly p99Ms: number;
  /** Median over the rounds of this variant's items per second by the raw operation's. Above 1: more than raw. */
  readonly throughputRatio: number;
  /** Median over the rounds of this variant's median call by the raw operation's. Above 1: slower than raw. */
  readonly latencyRatio: number;
}

export interface RoundOptions {
  readonly rounds?: number;
  readonly roundMs?: number;
  /** Milliseconds that only rise. */
  readonly now?: () => number;
}

interface Round {
  readonly itemsPerSecond: number;
  readonly callsMs: readonly number[];
}

/** Runs the variants beside the raw operation; the first round warms up and does not count. */
export async function beside<Name extends string>(
  raw: Variant,
  variants: Readonly<Record<Name, Variant>>,
  { rounds = 9, roundMs = 250, now = () => performance.now() }: RoundOptions = {},
): Promise<Record<Name, VariantFigures>> {
  const names = Object.keys(variants) as Name[];
  const rawRounds: Round[] = [];
  const roundsOf = new Map<Name, Round[]>(names.map((name) => [name, []]));
  for (let round = 0; round <= rounds; round++) {
    const counts = round > 0;
    const rawRound = await runRound(raw, roundMs, now);
    if (counts) rawRounds.push(rawRound);
    for (const name of names) {
      const done = await runRound(variants[name], roundMs, now);
      if (counts) roundsOf.get(name)?.push(done);
    }
  }
  const figures = names.map((name) => [name, figuresOf(roundsOf.get(name) ?? [], rawRounds)] as const);
  return Object.fromEntries(figures) as Record<Name, VariantFigures>;
}

async function runRound(variant: Variant, roundMs: number, now: () => number): Promise<Round> {
  await variant.before?.();
  const callsMs: number[] = [];
  let items = 0;
  const begin = now();
  const loop = async (worker: number) => {
    for (let at = now(); at < begin + roundMs; ) {
      const done = await variant.call(worker);
      if (done === 0) return;
      items += done;
      const ended = now();
      callsMs.push(ended - at);
      at = ended;
    }
  };
  await Promise.all(Array.from({ length: variant.concurrency ?? 1 }, (_, worker) => loop(worker)));
  const seconds = (now() - begin) / 1000;
  await variant.after?.();
  return { itemsPerSecond: items / seconds, callsMs };
}

function figuresOf(rounds: readonly Round[], raw: readonly Round[]): VariantFigures {
  const ratios = (figure: (round: Round) => number) =>
    rounds.map((round, index) => figure(round) / figure(raw[index] as Round));
  const p50 = (round: Round) => percentile(round.callsMs, 0.5);
  const throughput = (round: Round) => round.itemsPerSecond;
  return {
    itemsPerSecond: percentile(rounds.map(throughput), 0.5),
    p50Ms: percentile(rounds.map(p50), 0.5),
    p99Ms: percentile(
      rounds.flatMap((round) => round.callsMs),
      0.99,
    ),
    throughputRatio: percentile(ratios(throughput), 0.5),
    latencyRatio: percentile(ratios(p50), 0.5),
  };
}

/** Nearest rank; NaN of nothing. */
function percentile(figures: readonly number[], share: number): number {
  const sorted = Float64Array.from(figures).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}
