import { formatEntryId, type IndexRef, type Session } from "@fenceline/ledger";
import { activeSource, type LedgerBench } from "./ledger-bench.js";

const GROUPS = 10_000;
const ENTRIES_PER_GROUP = 100;

export interface MillionEntries {
  readonly session: Session;
  readonly store: string;
  readonly index: IndexRef;
  readonly uris: readonly string[];
  /** Entries picked at random: so many of each of so many resources. */
  pick(resources: number, ofEach: number): { readonly ids: string[]; readonly numbers: number[] };
}

/**
 * A million entries in one store: 10,000 resources under one reader, each with a version, and a group of 100 entries
 * that is confirmed. Written as the ledger's own calls leave it, but in one statement per table.
 */
export async function millionEntries(bench: LedgerBench): Promise<MillionEntries> {
  const { ledger, sql } = bench;
  const { session, uris } = await activeSource(bench, GROUPS);
  const store = `store of ${session.source}`;
  await ledger.registerStore({ name: store, kind: "bench" });
  const index = await ledger.registerIndex({
    name: `index of ${session.source}`,
    version: 1,
    store,
    embeddings: "bench",
    configurationDigest: Buffer.alloc(32),
  });
  const { indexId } = index;
  const [first] = await sql<{ group: number; number: number }>(
    `select coalesce((select max(group_id) from fenceline.entry_group), 0) as group,
            coalesce((select max(entry_number) from fenceline.entry), 0) as number`,
  );
  await sql(
    `update fenceline.subscription
     set issued_ordinal = 1, accepted_ordinal = 1, settled_ordinal = 1, version_ordinal = 1, digest = sha256(uri::bytea),
         digest_generation = generation, seen_notification = notification_number, verified_at = fenceline.now()
     where scope_id = $1`,
    [session.scopeId],
  );
  await sql(
    `insert into fenceline.resource_version (subscription_id, ordinal, generation, policy_epoch, digest, bytes)
     select subscription_id, 1, generation, 0, digest, 100 from fenceline.subscription where scope_id = $1`,
    [session.scopeId],
  );
  await sql(
    `with numbered as (
       select s.*, row_number() over (order by s.subscription_id) as place from fenceline.subscription s where s.scope_id = $1
     ), grouped as (
       insert into fenceline.entry_group
         (group_id, index_id, store_id, resource_id, part_id, state, settled, entries)
       overriding system value
       select $2::bigint + n.place, $3, (select store_id from fenceline.store where name = $4), n.resource_id, n.resource_id, 'PRESENT', true,
              $5::int
       from numbered n
     )
     insert into fenceline.group_root (group_id, subscription_id, ordinal, part_id, scope_id, resource_id, index_id, state)
     select $2::bigint + n.place, n.subscription_id, 1, n.resource_id, n.scope_id, n.resource_id, $3, 'CURRENT' from numbered n`,
    [session.scopeId, first?.group, indexId, store, ENTRIES_PER_GROUP],
  );
  await sql(
    `insert into fenceline.entry (entry_number, group_id, position, chunk_digest)
     select $1::bigint + n, $2::bigint + 1 + (n - 1) / $3::int, (n - 1) % $3::int, sha256(n::text::bytea)
     from generate_series(1, $4::int) n`,
    [first?.number, first?.group, ENTRIES_PER_GROUP, GROUPS * ENTRIES_PER_GROUP],
  );
  await sql(
    `select setval(pg_get_serial_sequence('fenceline.entry_group', 'group_id'), max(group_id)) from fenceline.entry_group`,
  );
  await sql(`select setval('fenceline.entry_number', max(entry_number)) from fenceline.entry`);
  await ledger.database.analyze();
  const [identity] = await sql<{ mark: string }>("select mark from fenceline.identity");
  const mark = identity?.mark ?? "";
  return {
    session,
    store,
    index,
    uris,
    pick(resources, ofEach) {
      const numbers = distinct(resources, GROUPS).flatMap((group) =>
        distinct(ofEach, ENTRIES_PER_GROUP).map(
          (position) => (first?.number ?? 0) + group * ENTRIES_PER_GROUP + position + 1,
        ),
      );
      return { numbers, ids: numbers.map((number) => formatEntryId({ mark, indexId, number })) };
    },
  };
}

/** That many different numbers from 0 to below the bound. */
function distinct(count: number, bound: number): number[] {
  const found = new Set<number>();
  while (found.size < count) found.add(Math.floor(Math.random() * bound));
  return [...found];
}
