import type { IssuedRead } from "@fenceline/ledger";
import type { Measure } from "../measure.js";
import { beside, type Variant } from "../rounds.js";
import { assertAccepted, IssuedReads } from "./issued-reads.js";
import { activeSource, type LedgerBench, READ_LEASE_MS, rawUpdate } from "./ledger-bench.js";

const BATCH = 500;
const RESOURCES = 20_000;

/** The reads of a worker pool: what is due is claimed and issued, and accepted, in batches. */
export const batches: readonly Measure<LedgerBench>[] = [
  {
    name: "issue in batches of 500 beside one raw update",
    unit: "ratio",
    goal: { atLeast: 17 },
    run: (bench) => issueDue(bench, 0),
  },
  {
    name: "accept in batches of 500 beside one raw update",
    unit: "ratio",
    goal: { atLeast: 9 },
    run: (bench) => accept(bench, 0),
  },
  {
    name: "issue in batches of 500 beside one raw update, 1,000 revocations standing",
    unit: "ratio",
    goal: { atLeast: 11 },
    run: (bench) => issueDue(bench, 1000),
  },
  {
    name: "accept in batches of 500 beside one raw update, 1,000 revocations standing",
    unit: "ratio",
    goal: { atLeast: 7.5 },
    run: (bench) => accept(bench, 1000),
  },
];

async function issueDue(bench: LedgerBench, revocations: number): Promise<number> {
  const { session } = await activeSource(bench, RESOURCES);
  await revokeOthers(bench, session.source, revocations);
  let issued: IssuedRead[] = [];
  const issue: Variant = {
    // What was issued is lost, and with that due again at once.
    async before() {
      for (let start = 0; start < issued.length; start += BATCH) {
        const reads = issued.slice(start, start + BATCH).map((read) => ({ ...read, as: "lost" as const }));
        await bench.ledger.settleReads(session, reads);
      }
      issued = [];
    },
    async call() {
      const reads = await bench.ledger.issueDueReads(session, { limit: BATCH, leaseMs: READ_LEASE_MS });
      issued.push(...reads);
      return reads.length;
    },
  };
  return (await beside(await rawUpdate(bench), { issue })).issue.throughputRatio;
}

async function accept(bench: LedgerBench, revocations: number): Promise<number> {
  const { session, uris } = await activeSource(bench, RESOURCES);
  await revokeOthers(bench, session.source, revocations);
  const reads = new IssuedReads(bench.ledger, session, uris);
  const variant: Variant = {
    before: () => reads.stockUp(),
    async call() {
      const answers = reads.take(BATCH);
      return assertAccepted(await bench.ledger.acceptResourceVersions(session, answers), answers.length);
    },
  };
  return (await beside(await rawUpdate(bench), { accept: variant })).accept.throughputRatio;
}

/** Revocations of the reader that cover none of the resources, and raise the policy epoch. */
async function revokeOthers({ ledger }: LedgerBench, source: string, count: number): Promise<void> {
  for (let number = 0; number < count; number++) {
    const scope = { prefix: `mcp://other.example.test/place-${number}/` };
    await ledger.revoke({ source, subject: "svc:rag", role: "reader", scope, reason: "bench" });
  }
}
