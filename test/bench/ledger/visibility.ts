import { assert } from "@fenceline/ledger";
import type { Measure } from "../measure.js";
import { beside, type Variant } from "../rounds.js";
import type { LedgerBench } from "./ledger-bench.js";
import { type MillionEntries, millionEntries } from "./million-entries.js";

const GROUPS = Array.from({ length: 20 }, (_, number) => `group:${number}`);
/** Somebody in twenty groups. */
const ASKER = ["user:alice", ...GROUPS];
const ASKED = 50;
const SPACES = 10;
const REVOCATIONS = 1_000;

/** What an asker may see of fifty ids, p50, beside a plain `SELECT` of fifty rows of the same table by id. */
export const visibility: readonly Measure<LedgerBench>[] = [
  {
    name: "visibility of 50 ids of a million entries beside 50 rows by id: 100 grants, 1,000 revocations",
    unit: "ratio",
    goal: { atMost: 4.5 },
    run: (bench) => visible(bench, { grants: 100, documents: ASKED }),
  },
  {
    name: "visibility of 50 ids of a million entries beside 50 rows by id: 10,000 grants, 1,000 revocations",
    unit: "ratio",
    goal: { atMost: 8 },
    run: (bench) => visible(bench, { grants: 10_000, documents: ASKED }),
  },
  {
    name: "visibility of 50 ids of 5 documents beside 50 rows by id: 100 grants, 1,000 revocations",
    unit: "ratio",
    goal: { atMost: 2.2 },
    run: (bench) => visible(bench, { grants: 100, documents: 5 }),
  },
];

async function visible(
  bench: LedgerBench,
  { grants, documents }: { grants: number; documents: number },
): Promise<number> {
  const full = await millionEntries(bench);
  await grantAndRevoke(bench, full, grants);
  const guard: Variant = {
    async call() {
      const { ids } = full.pick(documents, ASKED / documents);
      const seen = await bench.ledger.visibleEntries({ index: full.index.name, entryIds: ids, asker: ASKER });
      assert(seen.length > 0, "Some of what is asked for is granted.");
      return 1;
    },
  };
  const figures = await beside(await rawSelect(bench, full, documents), { guard });
  return figures.guard.latencyRatio;
}

async function rawSelect(bench: LedgerBench, full: MillionEntries, documents: number): Promise<Variant> {
  const client = await bench.connect();
  const text = `select entry_number, group_id from ${bench.schema}.entry where entry_number = any($1::bigint[])`;
  const named = bench.platform === "postgres" ? { name: "raw_select" } : {};
  return {
    async call() {
      const { numbers } = full.pick(documents, ASKED / documents);
      await client.query({ ...named, text, values: [numbers] });
      return 1;
    },
  };
}

/** Half of many grants are for one URI, and a few dozen for prefixes; half of the revocations are of the asker for one URI. */
async function grantAndRevoke({ ledger, sql, platform, schema }: LedgerBench, full: MillionEntries, grants: number) {
  const {
    session: { source, reader },
    uris,
  } = full;
  const spaceOf = (number: number) => `mcp://docs.example.test/space-${number % SPACES}/`;
  await ledger.replaceConfiguredGrants(
    [source],
    Array.from({ length: grants }, (_, number) => {
      const one = grants > 100 && number % 2 === 0;
      const uri = uris[(number * 37) % uris.length] as string;
      const scope = one ? { uri } : { prefix: number < 100 ? spaceOf(number) : `${spaceOf(number)}x${number}/` };
      return { source, reader, audience: GROUPS[Math.floor(number / SPACES) % GROUPS.length] as string, scope };
    }),
  );
  for (let number = 0; number < REVOCATIONS; number += 1) {
    const one = number % 2 === 0;
    const scope = one
      ? { uri: uris[(number * 13) % uris.length] as string }
      : { prefix: `${spaceOf(number)}old-${number}/` };
    await ledger.revoke({ source, subject: "user:alice", role: "audience", scope, reason: "bench" });
  }
  for (const table of ["access_grant", "revocation_cover", "policy_scope"]) {
    if (platform === "postgres") await sql(`vacuum analyze ${schema}.${table}`);
  }
  await ledger.database.analyze();
}
