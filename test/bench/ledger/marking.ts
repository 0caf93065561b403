import { assert } from "@fenceline/ledger";
import type { Measure } from "../measure.js";
import { activeSource, type LedgerBench } from "./ledger-bench.js";
import { millionEntries } from "./million-entries.js";

/** As many covered resources as a batch of a revocation takes. */
const BATCH = 500;

/**
 * The part of a revocation's batches that marks: edges REVOKED, their groups due for the purge and waited for. The same calls,
 * each committed by itself; the batches also close 10,000 subscriptions, which is the next measure.
 */
export const marking: Measure<LedgerBench> = {
  name: "the edges of a million entries (10,000 groups) marked revoked",
  unit: "ms",
  goal: { atMost: 200 },
  async run(bench) {
    const { session, uris } = await millionEntries(bench);
    const ledger = await bench.anotherLedger();
    const { revocationId } = await ledger.revoke({ source: session.source, subject: session.reader, reason: "bench" });
    const covered = await bench.sql<{ subscription: number; resource: number }>(
      `select s.subscription_id as subscription, q.resource_id as resource
       from fenceline.subscription s join fenceline.resource q using (resource_id)
       where s.scope_id = $1 order by left(q.match_key, 600), q.resource_id`,
      [session.scopeId],
    );
    const text = `select ${bench.schema}.mark_edges($1, $2, '{}', $3)`;
    const begun = performance.now();
    for (let start = 0; start < covered.length; start += BATCH) {
      const batch = covered.slice(start, start + BATCH);
      const [subscriptions, resources] = [batch.map((of) => of.subscription), batch.map((of) => of.resource)];
      await ledger.database.query(text, [revocationId, subscriptions, resources]);
    }
    const ms = performance.now() - begun;
    const [marked] = await bench.sql<{ edges: number; due: number }>(
      `select count(*) filter (where r.state = 'REVOKED')::int as edges, count(*) filter (where g.purge_due)::int as due
       from fenceline.group_root r join fenceline.entry_group g using (group_id) where r.scope_id = $1`,
      [session.scopeId],
    );
    assert(
      marked?.edges === uris.length && marked.due === uris.length,
      "Every edge is marked, and every group is due.",
    );
    return ms;
  },
};

/** What makes nothing more effective (P2), but is to be done before a revocation is complete. */
export const closing: Measure<LedgerBench> = {
  name: "all batches of a revocation of 10,000 subscriptions: closed, told, marked",
  unit: "ms",
  async run(bench) {
    const { session } = await activeSource(bench, 10_000);
    const { revocationId } = await bench.ledger.revoke({
      source: session.source,
      subject: session.reader,
      reason: "bench",
    });
    const begun = performance.now();
    while ((await bench.ledger.advanceRevocation(revocationId)) === "more");
    return performance.now() - begun;
  },
};
