import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import type { Session } from "#src/sessions.js";
import {
  activate,
  digest,
  negotiateSnapshots,
  openSession,
  publishProven,
  READ_LEASE_MS,
} from "./ledger-under-test.js";
import { type Areas, areasOn, overlapping } from "./overlapping.js";
import {
  advance,
  brokenInvariants,
  claimWork,
  createDerivedIndex,
  createIndex,
  describeWholeLedgerOnPostgres,
  indexDue,
  purge,
  readNow,
  type WholeLedger,
} from "./whole-ledger.js";

const [A, B, C] = ["catalog://a", "catalog://b", "catalog://c"];

/** The order of all locks (fence.sql): what works on the same rows at once waits, and nobody waits in a circle. */
describeWholeLedgerOnPostgres("operations that lock the same rows", (ledger) => {
  test("a read that suspends the scope, or resumes it, does not wait for a batch that removes what is absent, nor that for it (S6, P7)", async () => {
    for (const end of ["unauthorized", "accepted"]) {
      const { session, uris, ids } = await threeRead();
      await negotiateSnapshots(ledger, session);
      const [, second, third] = uris;
      await publishProven(ledger, session, [third]);
      await inSnapshot(ledger, session, "fenceline.weigh_absence($1, $2, scan_id, set_digest, mark, 25, 0.25)");
      const remove = (after: number) => (batch: Pick<WholeLedger, "sql">) =>
        inSnapshot(batch, session, `fenceline.remove_absent($1, $2, scan_id, set_digest, mark, ${after}, 1)`);
      if (end === "accepted") await ledger.suspendScope(session, "401");
      const [read] = await ledger.issueReads(session, { uris: [second], reason: "demand", leaseMs: READ_LEASE_MS });
      const { subscriptionId, ordinal, requestId } = read as NonNullable<typeof read>;
      const answered = { subscriptionId, ordinal, requestId };
      const [removed, [ended], waited] = await overlapping(
        ledger,
        remove(0),
        async (): Promise<readonly { outcome: string }[]> =>
          end === "accepted"
            ? ledger.acceptResourceVersions(session, [{ ...answered, digest: digest("new"), parts: [] }])
            : ledger.settleReads(session, [{ ...answered, as: "unauthorized" }]),
        remove(ids[0]),
      );
      expect([removed, ended?.outcome, waited]).toEqual([
        [{ objection: null, removed: 1, last_id: ids[0] }],
        end === "accepted" ? "accepted" : "settled",
        false,
      ]);
    }
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a deletion or a revocation of resources whose claims are prolonged meanwhile waits, and not in a circle (F7, P2)", async () => {
    for (const by of ["deletion", "revocation"]) {
      const index = await createIndex(ledger);
      const { session, uris, ids } = await threeRead();
      const [first, second] = ids;
      const work = await claimWork(ledger, index, session.source);
      const renew = (subscription: number) => (areas: Pick<WholeLedger, "renewIndexWork">) =>
        areas.renewIndexWork(
          index.ref,
          work.filter(({ subscriptionId }) => subscriptionId === subscription),
          { leaseMs: 10_000 },
        );
      await negotiateSnapshots(ledger, session);
      const { snapshot } = await publishProven(ledger, session, uris.slice(2));
      const { revocationId } = await ledger.revoke({
        source: session.source,
        subject: "svc:rag",
        reason: "r",
        scope: by === "revocation" ? { everything: true } : { uri: "catalog://elsewhere" },
      });
      const [, done, waited] = await overlapping(
        ledger,
        renew(first),
        () =>
          planned("bitmapscan", async (areas) =>
            by === "deletion"
              ? (await areas.removeAbsent(session, snapshot)).outcome
              : areas.advanceRevocation(revocationId, { limit: 10 }),
          ),
        renew(second),
      );
      expect([waited, done]).toEqual([true, by === "deletion" ? "removed" : "more"]);
      await advance(ledger, revocationId);
    }
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("the beginning of an incarnation waits for what repairs or prolongs something, and not in a circle (L2)", async () => {
    const index = await createIndex(ledger);
    const { session, ids } = await threeRead();
    await indexDue(ledger, index, session.source);
    const [first, second] = ids;
    const entryOf = async (subscription: number) => {
      const rows = await ledger.sql<{ number: number }>(
        `select entry_number as number from fenceline.group_root join fenceline.entry using (group_id)
         where subscription_id = $1 and index_id = $2`,
        [subscription, index.ref.indexId],
      );
      return rows.map(({ number }) => number);
    };
    const entries = [await entryOf(first), await entryOf(second)] as const;
    const repair = (numbers: readonly number[]) => (areas: Pick<WholeLedger, "sql">) =>
      areas.sql("select fenceline.requeue_lost_entries($1, $2)", [index.ref.name, numbers]);
    const [, restored, waited] = await overlapping(
      ledger,
      repair(entries[0]),
      () => ledger.sql("select r.outcome from fenceline.begin_incarnation('operator', null, null, null, 'test') r"),
      repair(entries[1]),
    );
    expect([waited, restored]).toEqual([true, [{ outcome: "restored" }]]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("the first session of a scope, opened while an incarnation begins, has a generation that no lost session had", async () => {
    const source = randomUUID();
    await ledger.registerSource({ name: source });
    const [, opened, waited] = await overlapping(
      ledger,
      ({ sql }) => sql("select fenceline.begin_incarnation('operator', null, null, null, 'test')"),
      () => ledger.openSession({ source, reader: "svc:rag", owner: "worker-1", leaseMs: 1_000 }),
    );
    expect([waited, opened.outcome]).toEqual([true, "opened"]);
    if (opened.outcome === "opened") expect(opened.session.generation).toBeGreaterThan(2 ** 32);
  });

  test("retention leaves a version in which something is being found to its next run (§5)", async () => {
    const { session, uris, ids } = await threeRead();
    for (const uri of uris) await readNow(ledger, session, [uri], () => "newer");
    const found = (subscriptionId: number) => (areas: Pick<WholeLedger, "recordFindings">) =>
      areas.recordFindings([
        { work: { subscriptionId, ordinal: 1 }, findings: [{ uri: A, code: "no_text", action: "left_out" }] },
      ]);
    const [, [pruned], waited] = await overlapping(
      ledger,
      found(ids[0]),
      () =>
        planned("bitmapscan", ({ sql }) =>
          sql("select p.deleted from fenceline.prune_versions(fenceline.now() + interval '1 day', 1000, $1, 0) p", [
            ids[0] - 1,
          ]),
        ),
      found(ids[1]),
    );
    expect([waited, pruned]).toEqual([false, { deleted: 2 }]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("retention of purged groups and of purge receipts by two processes waits, and not in a circle (L4)", async () => {
    const index = await createIndex(ledger);
    const { session, uris } = await threeRead();
    await indexDue(ledger, index, session.source);
    // The group recorded first has the last receipt.
    for (const uri of uris.toReversed()) {
      await readNow(ledger, session, [uri], () => "");
      await indexDue(ledger, index, session.source);
      await purge(ledger, index);
    }
    const rows = await ledger.sql<{ receipt: number }>(
      `select purge_receipt_id as receipt from fenceline.purge_receipt_group join fenceline.entry_group using (group_id)
       where index_id = $1 order by group_id desc`,
      [index.ref.indexId],
    );
    const before = "fenceline.now() + interval '1 day'";
    const pruneReceipt = (place: number) => (areas: Pick<WholeLedger, "sql">) =>
      areas.sql(`select p.deleted from fenceline.prune_purge_receipts(${before}, 1, $1) p`, [
        (rows[place]?.receipt as number) - 1,
      ]);
    const [first, [groups], waited] = await overlapping(
      ledger,
      pruneReceipt(0),
      () =>
        planned("indexscan", ({ sql }) => sql(`select p.deleted from fenceline.prune_groups(${before}, 1000, 0) p`)),
      pruneReceipt(1),
    );
    expect([first, groups, waited]).toEqual([[{ deleted: 1 }], { deleted: 3 }, true]);
  });

  test("derivations for new audiences in opposite orders wait for one another, and not in a circle (L1)", async () => {
    const { session, ids } = await threeRead();
    const answers = await createDerivedIndex(ledger);
    const [user1, user2] = [`user:1 ${session.source}`, `user:2 ${session.source}`];
    const forAudiences = (audiences: readonly string[]) => (areas: Pick<WholeLedger, "recordDerived">) =>
      areas.recordDerived(
        answers.ref,
        audiences.map((audience) => ({
          kind: "answer" as const,
          audience,
          parents: [{ as: "ingredient" as const, of: { lineageId: `${ids[0]}.1` } }],
          digests: [ledger.digestChunk(audience)],
        })),
        { leaseMs: 5_000 },
      );
    await forAudiences([session.source])(ledger);
    const [, recorded, waited] = await overlapping(
      ledger,
      forAudiences([user1]),
      () => forAudiences([user2, user1])(ledger),
      forAudiences([user2]),
    );
    expect([waited, recorded.map(({ outcome }) => outcome)]).toEqual([true, ["recorded", "recorded"]]);
  });

  test("keys that a store assigned, recorded while the group is purged, wait for that, and not in a circle (P3)", async () => {
    const index = await createIndex(ledger);
    const { session, uris } = await threeRead();
    await readNow(ledger, session, [uris[0]], () => "one\ntwo");
    await indexDue(ledger, index, session.source);
    const entries = [...index.entries].filter(([, text]) => text === "one" || text === "two").map(([id]) => id);
    await readNow(ledger, session, [uris[0]], () => "");
    await indexDue(ledger, index, session.source);
    const claims = await ledger.claimPurge({ store: index.ref.store, limit: 100, leaseMs: 10_000 });
    const record = (entryId: string | undefined) => (areas: Pick<WholeLedger, "recordStoreKeys">) =>
      areas.recordStoreKeys([{ entryId: entryId as string, storeKey: "key" }]);
    const [, , waited] = await overlapping(
      ledger,
      record(entries[1]),
      () => ledger.confirmPurge(index.ref.store, claims, { claim: "absent" }),
      record(entries[0]),
    );
    expect(waited).toBe(true);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("two processes that configure other grants of one source wait, one for the other, and not in a circle (G1)", async () => {
    const { source } = await openSession(ledger);
    const grants = (numbers: readonly number[]) =>
      numbers.map((n) => ({ source, reader: "svc:rag", audience: `user:${n}`, scope: { prefix: `catalog://${n}/` } }));
    const configure = (numbers: readonly number[]) => (areas: Pick<WholeLedger, "replaceConfiguredGrants">) =>
      areas.replaceConfiguredGrants([source], grants(numbers));
    await configure([1, 2])(ledger);
    const rows = await ledger.sql<{ number: number }>(
      `select right(s.name, 1)::int as number from fenceline.access_grant g join fenceline.subject s on s.subject_id = g.audience_id
       join fenceline.source src using (source_id) where src.name = $1 order by g.cover_hash`,
      [source],
    );
    const [low, high] = rows.map(({ number }) => number) as [number, number];
    await configure([high])(ledger);
    const [, changes, waited] = await overlapping(
      ledger,
      configure([]),
      () => configure([low, high])(ledger),
      configure([low]),
    );
    expect(waited).toBe(true);
    expect(changes).toEqual({ added: 1, withdrawn: 0 });
    expect(await ledger.listGrants({ source })).toHaveLength(2);
  });

  test("an export that a revocation lists while retention is about to delete it stays until nobody waits for it (L6)", async () => {
    const { session, uris } = await threeRead();
    await ledger.exportVersions({ source: session.source, reader: "svc:rag", destination: "wiki", limit: 10 });
    const exported = (await ledger.exports()).filter(({ versions }) => versions[0]?.source === session.source);
    for (const { exportId } of exported) await ledger.acknowledgeExport(exportId);
    const { revocationId } = await ledger.revoke({
      source: session.source,
      subject: "svc:rag",
      reason: "r",
      scope: { uri: uris[0] },
    });
    const [, [pruned], waited] = await overlapping(
      ledger,
      (areas) => areas.advanceRevocation(revocationId, { limit: 10 }),
      () =>
        ledger.sql("select p.deleted from fenceline.prune_exports(fenceline.now() + interval '1 day', 1000, $1) p", [
          (exported[0]?.exportId as number) - 1,
        ]),
    );
    expect([waited, pruned]).toEqual([false, { deleted: 2 }]);
    expect(
      await ledger.sql(
        `select count(*) as n from fenceline.revocation_export x
         where not exists (select 1 from fenceline.export e where e.export_id = x.export_id)`,
      ),
    ).toEqual([{ n: 0 }]);
  });

  /** In a transaction of its own, whose rows come in the order of an index (`indexscan`) or as they lie (`bitmapscan`). */
  function planned<T>(scan: "indexscan" | "bitmapscan", step: (areas: Areas) => Promise<T>): Promise<T> {
    return ledger.database.transaction(async (transaction) => {
      const areas = await areasOn(transaction, ledger.schema);
      await areas.sql("discard plans");
      for (const other of ["seqscan", "indexscan", "indexonlyscan", "bitmapscan"])
        if (other !== scan) await areas.sql(`set local enable_${other} = off`);
      return step(areas);
    });
  }

  /** Three resources of a source that were read, in the order of their subscriptions. */
  async function threeRead(): Promise<{
    session: Session;
    uris: [string, string, string];
    ids: [number, number, number];
  }> {
    const session = await openSession(ledger);
    await activate(ledger, session, [A, B, C], "polled");
    const rows = await ledger.sql<{ uri: string; id: number }>(
      "select uri, subscription_id as id from fenceline.subscription where scope_id = $1 order by 2",
      [session.scopeId],
    );
    // What lies in a table does so the other way round.
    for (const { uri } of rows.toReversed()) await readNow(ledger, session, [uri], () => uri);
    return {
      session,
      uris: rows.map(({ uri }) => uri) as [string, string, string],
      ids: rows.map(({ id }) => id) as [number, number, number],
    };
  }
});

/** Calls a function with what proves the session's snapshot: `scan_id`, `set_digest`, `mark`. */
function inSnapshot(areas: Pick<WholeLedger, "sql">, { scopeId, generation }: Session, call: string) {
  return areas.sql(`select r.* from fenceline.proven_snapshot($1, $2) cross join lateral ${call} r`, [
    scopeId,
    generation,
  ]);
}
