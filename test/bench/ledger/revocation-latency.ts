import type { Measure } from "../measure.js";
import { assertAccepted, IssuedReads } from "./issued-reads.js";
import { activeSource, type LedgerBench } from "./ledger-bench.js";

const WORKERS = 4;
const BATCH = 100;
const REVOCATIONS = 200;

/** From the request to the commit, in the scope that the workers accept in; each revokes what nobody reads. */
export const revocationLatency: Measure<LedgerBench> = {
  name: "a revocation's own transaction while four workers accept in batches of 100, p99",
  unit: "ms",
  goal: { atMost: 50 },
  async run(bench) {
    const { session, uris } = await activeSource(bench, 4_000);
    const revoker = await bench.connect();
    const text = `select * from ${bench.schema}.fenceline_revoke(
      request_id => $1, subject => $2, source => $3, prefix => 'mcp://elsewhere.example.test/', reason => 'bench')`;
    let done = false;
    const accepting = async (worker: number) => {
      const ledger = await bench.anotherLedger();
      const reads = new IssuedReads(
        ledger,
        session,
        uris.slice((worker * uris.length) / WORKERS, ((worker + 1) * uris.length) / WORKERS),
      );
      while (!done) {
        const answers = reads.take(BATCH);
        // An issue holds the scope fence as well; one of 500 works twice as long as an acceptance of 100.
        if (answers.length === 0) await reads.stockUp(BATCH);
        else assertAccepted(await ledger.acceptResourceVersions(session, answers), answers.length);
      }
    };
    const workers = Array.from({ length: WORKERS }, (_, worker) => accepting(worker));
    const latencies: number[] = [];
    for (let round = 0; round < REVOCATIONS; round++) {
      const begun = performance.now();
      await revoker.query(text, [`request ${round}`, session.reader, session.source]);
      latencies.push(performance.now() - begun);
      // Standing ones are another measure's matter.
      await revoker.query(
        `select ${bench.schema}.lift_revocation(revocation_id) from ${bench.schema}.revocation where state <> 'LIFTED'`,
      );
    }
    done = true;
    await Promise.all(workers);
    latencies.sort((one, other) => one - other);
    return latencies[Math.floor(latencies.length * 0.99)] ?? Number.NaN;
  },
};
