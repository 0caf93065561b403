import { expect, test } from "vitest";
import type { Derivation } from "#src/derivations.js";
import { parseEntryId } from "#src/entry-id.js";
import { queryableInSchema } from "#src/ledger-schema.js";
import {
  activeSource,
  advance,
  brokenInvariants,
  createDerivedIndex,
  createIndex,
  derive,
  describeWholeLedger,
  indexDue,
  purge,
  readNow,
  type WholeLedger,
} from "./whole-ledger.js";

const URI = "catalog://plans/basic";
const GONE = "catalog://plans/gone";

/** What breaks each invariant, by hand: statements about the subscription $1 (of URI) in the scope $2. */
const breaks: Record<string, { readonly by: string; readonly values: (world: World) => unknown[] }> = {
  watermark_not_above_issued: {
    by: "update fenceline.subscription set accepted_ordinal = issued_ordinal + 1 where subscription_id = $1",
    values: ({ id }) => [id],
  },
  accepted_subscription_has_its_version: {
    by: "delete from fenceline.resource_version where subscription_id = $1",
    values: ({ id }) => [id],
  },
  version_has_its_read: {
    by: "delete from fenceline.read where subscription_id = $1",
    values: ({ id }) => [id],
  },
  no_version_after_close: {
    by: "update fenceline.subscription set close_ordinal = 0 where subscription_id = $1",
    values: ({ revoked }) => [revoked],
  },
  transition_is_a_cell: {
    by: "update fenceline.receipt set event = 'lifted' where subscription_id = $1 and event = 'acknowledged'",
    values: ({ id }) => [id],
  },
  subscription_is_where_its_last_transition_led: {
    by: "delete from fenceline.receipt where subscription_id = $1 and event = 'acknowledged'",
    values: ({ id }) => [id],
  },
  transitions_form_a_chain: {
    by: "delete from fenceline.receipt where subscription_id = $1 and event = 'subscribe_sent'",
    values: ({ id }) => [id],
  },
  catalogue_was_reconciled: {
    by: `update fenceline.scan set set_digest = '\\x00' where scan_id =
           (select x.agreed_with from fenceline.scan x join fenceline.policy_scope c on c.catalog_scan_id = x.scan_id where c.scope_id = $1)`,
    values: ({ scope }) => [scope],
  },
  completeness_task_took_a_proven_snapshot: {
    by: "update fenceline.scan set absence_allowed = true where scope_id = $1",
    values: ({ scope }) => [scope],
  },
  one_session_holds_a_scope: {
    by: "update fenceline.policy_scope set session_generation = session_generation + 1 where scope_id = $1",
    values: ({ scope }) => [scope],
  },
  accepted_version_is_due_or_confirmed: {
    by: "update fenceline.outbox set confirmed_ordinal = 0, pending = false where subscription_id = $1",
    values: ({ id }) => [id],
  },
  entry_has_a_group: {
    by: "insert into fenceline.entry (entry_number, group_id, position, chunk_digest) values (-1, -1, 1, '')",
    values: () => [],
  },
  present_group_has_its_entries: {
    by: "delete from fenceline.entry e using fenceline.entry_group g where g.group_id = e.group_id and g.state = 'PRESENT' and g.index_id = $1",
    values: ({ index }) => [index],
  },
  purged_settled_group_has_no_entries: {
    by: `insert into fenceline.entry (entry_number, group_id, position, chunk_digest)
         select -1, max(group_id), 1, '' from fenceline.entry_group where state = 'PURGED' and settled and index_id = $1`,
    values: ({ index }) => [index],
  },
  unsettled_purged_group_is_swept_again: {
    by: "update fenceline.entry_group set settled = false, purge_due = false where state = 'PURGED' and index_id = $1",
    values: ({ index }) => [index],
  },
  dead_group_is_due_for_purge: {
    by: "update fenceline.group_root set state = 'SUPERSEDED' where subscription_id = $1 and state = 'CURRENT'",
    values: ({ id }) => [id],
  },
  edge_has_group_and_version: {
    by: "update fenceline.group_root set ordinal = 99 where subscription_id = $1 and state = 'CURRENT'",
    values: ({ id }) => [id],
  },
  current_edge_is_on_a_present_group: {
    by: "update fenceline.entry_group set state = 'PURGED' where state = 'PRESENT' and index_id = $1",
    values: ({ index }) => [index],
  },
  one_current_version_per_index: {
    by: `insert into fenceline.group_root (group_id, subscription_id, ordinal, part_id, scope_id, resource_id, index_id, state)
         select group_id, subscription_id, ordinal + 1, part_id, scope_id, resource_id, index_id, state
         from fenceline.group_root where subscription_id = $1 and state = 'CURRENT'`,
    values: ({ id }) => [id],
  },
  group_stays_in_one_source_and_uri: {
    by: "update fenceline.group_root set resource_id = -1 where subscription_id = $1",
    values: ({ id }) => [id],
  },
  derived_group_has_parents_and_roots: {
    by: "delete from fenceline.group_parent where group_id = $1",
    values: ({ derived }) => [derived],
  },
  derived_from_newest_versions_alone: {
    by: "update fenceline.group_root set ordinal = 0 where group_id = $1",
    values: ({ derived }) => [derived],
  },
  entry_for_one_audience_not_revoked_there: {
    by: "update fenceline.group_root set state = 'CURRENT' where group_id = $1",
    values: ({ made }) => [made],
  },
  exports_left_open_are_waited_for: {
    by: "update fenceline.revocation set state = 'COMPLETE_EXCEPT_EXPORTS' where revocation_id = $1",
    values: ({ revocation }) => [revocation],
  },
  retired_index_serves_nothing: {
    by: "update fenceline.index set retired_at = fenceline.now() where index_id = $1",
    values: ({ index }) => [index],
  },
  grant_names_known_subjects: {
    by: "update fenceline.access_grant set audience_id = -1 where source_id = (select source_id from fenceline.policy_scope where scope_id = $1)",
    values: ({ scope }) => [scope],
  },
  standing_revocations_are_counted: {
    by: "update fenceline.policy_scope set standing_revocations = 0 where scope_id = $1",
    values: ({ scope }) => [scope],
  },
  exactly_standing_revocations_cover: {
    by: "delete from fenceline.revocation_cover where revocation_id = $1",
    values: ({ revocation }) => [revocation],
  },
  marked_revocation_left_no_current_edge: {
    by: "update fenceline.group_root set state = 'CURRENT' where subscription_id = $1",
    values: ({ revoked }) => [revoked],
  },
  closed_by_revocation_keeps_no_body: {
    by: "insert into fenceline.body (subscription_id, ordinal, position, part_id, part_uri, text) values ($1, 1, 0, 1, 'x', 'x')",
    values: ({ revoked }) => [revoked],
  },
  complete_revocation_has_nothing_left: {
    by: `update fenceline.entry_group set state = 'PURGING'
         where group_id in (select group_id from fenceline.revocation_group where revocation_id = $1)`,
    values: ({ revocation }) => [revocation],
  },
};

interface World {
  readonly id: number;
  readonly revoked: number;
  readonly scope: number;
  readonly index: number;
  readonly revocation: number;
  /** A summary of the resource that is served, and an answer whose audience was revoked. */
  readonly derived: number;
  readonly made: number;
}

describeWholeLedger("verify", (ledger) => {
  test("every invariant has a way to break it here, and breaks when that is done", async () => {
    expect((await ledger.verify()).map(({ name }) => name).sort()).toEqual(Object.keys(breaks).sort());
    const world = await build(ledger);
    expect(await brokenInvariants(ledger)).toEqual([]);
    expect((await ledger.verify()).filter(({ checked }) => checked === 0)).toEqual([]);
    await ledger.sql(
      `alter table fenceline.subscription drop constraint watermark_not_above_issued, drop constraint nothing_issued_after_close`,
    );
    for (const [name, { by, values }] of Object.entries(breaks)) {
      const broken = await brokenAfter(ledger, by, values(world));
      expect(broken, by).toContain(name);
    }
    expect(await brokenInvariants(ledger)).toEqual([]);
  });
});

/** A resource that is served, a second version of it that replaced the first, and one that was revoked and purged. */
async function build(ledger: WholeLedger): Promise<World> {
  const { session, source } = await activeSource(ledger, [URI, GONE]);
  const index = await createIndex(ledger);
  await readNow(ledger, session, [URI, GONE], (uri) => `${uri} 1`);
  await indexDue(ledger, index, source);
  await ledger.grant({ source, reader: "svc:rag", audience: "user:alice", scope: { everything: true } });
  const answers = await createDerivedIndex(ledger);
  const summary: Derivation = {
    kind: "summary",
    parents: [...index.entries]
      .filter(([, text]) => text.startsWith(URI))
      .map(([id]) => ({ as: "ingredient", of: { entryId: id } })),
    digests: [ledger.digestChunk("summary")],
  };
  const derived = await derive(ledger, answers, summary, "summary");
  const made = await derive(ledger, answers, { ...summary, audience: "user:carol" }, "answer");
  const carol = await ledger.revoke({ source, subject: "user:carol", reason: "r" });
  const { revocationId } = await ledger.revoke({ source, subject: "svc:rag", scope: { uri: GONE }, reason: "r" });
  for (const each of [carol.revocationId, revocationId]) await advance(ledger, each);
  for (const each of [index, answers]) await purge(ledger, each);
  const retired = await createDerivedIndex(ledger);
  await derive(ledger, retired, summary, "summary");
  await ledger.retireIndex(retired.ref.name);
  // A group that was purged and never settled.
  await ledger.sql(
    `insert into fenceline.entry_group (index_id, store_id, resource_id, part_id, state, entries, purge_due, claim_until)
     select index_id, store_id, 1, 1, 'PURGED', 1, true, 'infinity' from fenceline.index where index_id = $1`,
    [index.ref.indexId],
  );
  const subscriptionOf = async (uri: string) => {
    const [row] = await ledger.sql<{ id: number }>(
      "select subscription_id as id from fenceline.subscription where scope_id = $1 and uri = $2",
      [session.scopeId, uri],
    );
    return row?.id as number;
  };
  const groupOf = async (entryId: string) => {
    const number = parseEntryId(entryId)?.number;
    const [row] = await ledger.sql<{ id: number }>("select fenceline.group_of_entry($1) as id", [number]);
    return row?.id as number;
  };
  return {
    id: await subscriptionOf(URI),
    revoked: await subscriptionOf(GONE),
    scope: session.scopeId,
    index: index.ref.indexId,
    revocation: revocationId,
    derived: await groupOf(derived),
    made: await groupOf(made),
  };
}

/** The invariants broken after a statement, which is undone. */
async function brokenAfter(ledger: WholeLedger, statement: string, values: unknown[]): Promise<string[]> {
  const undo = new Error("undo");
  let broken: string[] = [];
  await ledger.database
    .transaction(async (transaction) => {
      const queryable = queryableInSchema(transaction, ledger.schema);
      await queryable.query(statement, values);
      const rows = await queryable.query<{ name: string }>("select name from fenceline.verify() where broken > 0");
      broken = rows.map(({ name }) => name);
      throw undo;
    })
    .catch((error: unknown) => {
      if (error !== undo) throw error;
    });
  return broken;
}
