import { randomUUID } from "node:crypto";
import { type Ledger, openLedger } from "@fenceline/ledger";
import pg from "pg";
import type { OrdealOptions } from "./ordeal.js";

/** A ledger per connection, each with that one connection, over a schema that goes when the run ends. */
export async function inSchemaOfItsOwn<Result>(
  { postgresUrl, connections }: Pick<OrdealOptions, "postgresUrl" | "connections">,
  body: (ledgers: readonly Ledger[], schema: string) => Promise<Result>,
): Promise<Result> {
  const schema = `fenceline_ordeal_${randomUUID().slice(0, 8)}`;
  const pools = Array.from(
    { length: connections },
    () =>
      new pg.Pool({
        connectionString: postgresUrl,
        max: 1,
        application_name: schema,
        // As a pool of the ledger's own has them.
        options: "-c plan_cache_mode=force_generic_plan -c jit=off",
      }),
  );
  try {
    const ledgers: Ledger[] = [];
    for (const pool of pools) ledgers.push(await openLedger(pool, { schema }));
    return await body(ledgers, schema);
  } finally {
    await pools[0]?.query(`drop schema if exists ${schema} cascade`);
    await Promise.all(pools.map((pool) => pool.end()));
  }
}
