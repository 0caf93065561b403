import type { Ledger, Session } from "@fenceline/ledger";
import type { Measure } from "../measure.js";
import { beside, type Variant } from "../rounds.js";
import { assertAccepted, IssuedReads } from "./issued-reads.js";
import { activeSource, type LedgerBench, rawUpdate } from "./ledger-bench.js";

/** One answer per call, each caller with a ledger and a connection of its own: nothing is coalesced. */
export const acceptOne: readonly Measure<LedgerBench>[] = [
  {
    name: "one accept beside one raw update, 1 connection",
    unit: "ratio",
    goal: { atLeast: 0.65 },
    run: (bench) => acceptOnes(bench, 1),
  },
  {
    name: "one accept beside one raw update, 32 connections",
    unit: "ratio",
    goal: { atLeast: 0.4 },
    run: (bench) => acceptOnes(bench, 32),
  },
];

/** Through one ledger, which groups what waits while a statement is under way. */
export const acceptCoalesced: Measure<LedgerBench> = {
  name: "256 callers accepting at once beside 32 raw connections",
  unit: "ratio",
  goal: { atLeast: 1.8 },
  async run(bench) {
    const { session, uris } = await activeSource(bench, 20_000);
    const reads = new IssuedReads(bench.ledger, session, uris);
    const coalesced = acceptsOf([bench.ledger], session, reads, 256);
    const figures = await beside(await rawUpdate(bench, 32), { coalesced });
    return figures.coalesced.throughputRatio;
  },
};

async function acceptOnes(bench: LedgerBench, connections: number): Promise<number> {
  const { session, uris } = await activeSource(bench, 10_000);
  const reads = new IssuedReads(bench.ledger, session, uris);
  const ledgers = await Promise.all(Array.from({ length: connections }, () => bench.anotherLedger()));
  const accept = acceptsOf(ledgers, session, reads, connections);
  const figures = await beside(await rawUpdate(bench, connections), { accept });
  return figures.accept.throughputRatio;
}

function acceptsOf(ledgers: readonly Ledger[], session: Session, reads: IssuedReads, concurrency: number): Variant {
  return {
    concurrency,
    before: () => reads.stockUp(),
    async call(worker) {
      const answers = reads.take(1);
      if (answers.length === 0) return 0;
      const ledger = ledgers[worker % ledgers.length] as Ledger;
      return assertAccepted(await ledger.acceptResourceVersions(session, answers), answers.length);
    },
  };
}
