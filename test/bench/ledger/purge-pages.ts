import { assert } from "@fenceline/ledger";
import type { Measure } from "../measure.js";
import { beside } from "../rounds.js";
import type { LedgerBench } from "./ledger-bench.js";
import { millionEntries } from "./million-entries.js";

const ENTRIES = 5_000;
const GROUPS = 50;

/**
 * The purge's pages of entry ids, claims included, beside the entries alone read by key. Rounds wrap around: a claim whose
 * lease has ended is claimed again, so the pages are warm.
 */
export const purgePages: Measure<LedgerBench> = {
  name: "pages of 5,000 ids beside a raw keyset read, warm",
  unit: "ratio",
  goal: { atLeast: 0.4 },
  async run(bench) {
    const { session, store } = await millionEntries(bench);
    const { revocationId } = await bench.ledger.revoke({
      source: session.source,
      subject: session.reader,
      reason: "bench",
    });
    while ((await bench.ledger.advanceRevocation(revocationId)) === "more");
    if (bench.platform === "postgres") {
      for (const table of ["entry", "entry_group", "group_root"])
        await bench.sql(`vacuum analyze ${bench.schema}.${table}`);
    }
    const ledger = await bench.anotherLedger();
    const figures = await beside(await keysetRead(bench), {
      pages: {
        before: () =>
          bench.sql(
            "update fenceline.entry_group set claim_until = null, claim_token = null where claim_token is not null",
          ),
        async call() {
          const claims = await ledger.claimPurge({ store, limit: GROUPS, leaseMs: 60_000 });
          const ids = claims.reduce((sum, { entries }) => sum + entries.length, 0);
          assert(ids === 0 || ids === ENTRIES, "A page is whole.");
          return ids;
        },
      },
    });
    return figures.pages.throughputRatio;
  },
};

async function keysetRead(bench: LedgerBench) {
  const client = await bench.connect();
  const text = `select entry_number from ${bench.schema}.entry where entry_number > $1 order by entry_number limit ${ENTRIES}`;
  const named = bench.platform === "postgres" ? { name: "keyset" } : {};
  let after = "0";
  return {
    async call() {
      const { rows } = await client.query<{ entry_number: string }>({ ...named, text, values: [after] });
      after = rows.length < ENTRIES ? "0" : (rows.at(-1)?.entry_number ?? "0");
      return rows.length;
    },
  };
}
