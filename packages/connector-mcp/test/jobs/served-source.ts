import type { Ledger } from "@fenceline/ledger";
import type { FencelineConfigInput } from "#src/config/config-schema.js";
import { ask, type Cast, configFor, newCast, startPool } from "./pool-setup.js";

/** A serving pool for the server at `url`; what it knows and what it shows. */
export async function servedSource(ledger: Ledger, url: string, settings: FencelineConfigInput["settings"] = {}) {
  const cast = newCast();
  const config = configFor(cast, url, { settings });
  const pool = await startPool(ledger, config);
  return {
    cast,
    pool,
    /** How many are pushed and polled, for the pool. */
    modes: () => {
      const [source] = pool.stats().sources;
      return { pushed: source?.pushed, polled: source?.polled };
    },
    texts: async () => (await ask(ledger, config, "price", cast.asker)).map(({ text }) => text).sort(),
    freshness: async () => (await ask(ledger, config, "price", cast.asker)).map((hit) => hit.freshness),
    receipts: (kind: string) => receiptsOf(ledger, cast, kind),
  };
}

async function receiptsOf(ledger: Ledger, { source }: Cast, kind: string): Promise<number> {
  const [row] = await ledger.database.query<{ count: number }>(
    `select count(*)::int as count from fenceline.receipt r join fenceline.policy_scope p using (scope_id)
     join fenceline.source s using (source_id) where s.name = $1 and r.kind = $2`,
    [source, kind],
  );
  return row?.count ?? 0;
}
