import { expect, test, vi } from "vitest";
import { queryableInSchema } from "#src/ledger-schema.js";
import { overlapping } from "./overlapping.js";
import {
  activeSource,
  advance,
  brokenInvariants,
  createDerivedIndex,
  createIndex,
  derive,
  describeWholeLedgerOnPostgres,
  indexDue,
  purge,
  readNow,
  seen,
} from "./whole-ledger.js";

const BASIC = "catalog://plans/basic";
const PRO = "catalog://plans/pro";
const READER = ["svc:rag"];
const LEASE = { leaseMs: 5_000 };

describeWholeLedgerOnPostgres("derivations on overlapping transactions", (ledger) => {
  test("a derivation that overlaps a revocation of one of its roots waits, and is refused (P2, L1)", async () => {
    const { source, summary, answers } = await twoPlans();
    const [, [recorded], waited] = await overlapping(
      ledger,
      (areas) => areas.revoke({ source, subject: "svc:rag", scope: { uri: PRO }, reason: "r" }),
      () => ledger.recordDerived(answers.ref, [summary], LEASE),
    );
    expect([waited, recorded?.outcome]).toEqual([true, "parent_revoked"]);
  });

  test("a confirm that overlaps a revocation of the audience waits, and serves nothing (P2, P3)", async () => {
    const { source, summary, answers } = await twoPlans();
    const [recorded] = await ledger.recordDerived(answers.ref, [{ ...summary, audience: "user:alice" }], LEASE);
    if (recorded?.outcome !== "recorded") return expect.fail(recorded?.outcome);
    answers.entries.set(recorded.entryIds[0] as string, "for alice");
    const [revoked, outcomes, waited] = await overlapping(
      ledger,
      (areas) => areas.revoke({ source, subject: "user:alice", reason: "r" }),
      () => ledger.confirmDerived([recorded.groupId]),
    );
    expect([waited, outcomes]).toEqual([true, ["parent_revoked"]]);
    await advance(ledger, revoked.revocationId);
    await ledger.advanceClock(LEASE.leaseMs + 1);
    expect(await purge(ledger, answers)).toBe(1);
    expect(await ledger.revocation(revoked.revocationId)).toMatchObject({ state: "COMPLETE" });
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a revocation of the audience waits for an export of what was made for it, and lists it (L6)", async () => {
    const { source, summary, answers } = await twoPlans();
    await ledger.grant({ source, reader: "svc:rag", audience: "user:alice", scope: { everything: true } });
    const id = await derive(ledger, answers, { ...summary, audience: "user:alice" }, "for alice");
    const leaving = { index: answers.ref.name, entryIds: [id], asker: ["user:alice"], destination: "mail" };
    const [exported, revocationId, waited] = await overlapping(
      ledger,
      (areas) => areas.exportEntries(leaving),
      async () => {
        const revoked = await ledger.revoke({ source, subject: "user:alice", role: "audience", reason: "r" });
        await advance(ledger, revoked.revocationId);
        return revoked.revocationId;
      },
    );
    expect([waited, exported.length]).toEqual([true, 1]);
    await purge(ledger, answers);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE_EXCEPT_EXPORTS", exports: 1 });
  });

  test("a confirm that overlaps the acceptance of a newer version of a root waits, and is refused (L1)", async () => {
    const { session, summary, answers } = await twoPlans();
    const [recorded] = await ledger.recordDerived(answers.ref, [summary], LEASE);
    if (recorded?.outcome !== "recorded") return expect.fail(recorded?.outcome);
    const answer = await answerOf(session);
    const [, outcomes, waited] = await overlapping(
      ledger,
      (areas) => areas.acceptResourceVersions(session, [answer]),
      () => ledger.confirmDerived([recorded.groupId]),
    );
    expect([waited, outcomes]).toEqual([true, ["parent_superseded"]]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("what is recorded and confirmed beside the acceptance of a newer version, which did not see it, is refused (L1)", async () => {
    const { session, summary, answers } = await twoPlans();
    const answer = await answerOf(session);
    const [, outcomes, waited] = await overlapping(
      ledger,
      (areas) => areas.acceptResourceVersions(session, [answer]),
      async () => {
        const [recorded] = await ledger.recordDerived(answers.ref, [summary], LEASE);
        return recorded?.outcome === "recorded" ? ledger.confirmDerived([recorded.groupId]) : [recorded?.outcome];
      },
    );
    expect([waited, outcomes]).toEqual([true, ["parent_superseded"]]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("an acceptance that overlaps the confirm of what was derived from the version before ends it (L1)", async () => {
    const { session, summary, answers } = await twoPlans();
    const [recorded] = await ledger.recordDerived(answers.ref, [summary], LEASE);
    if (recorded?.outcome !== "recorded") return expect.fail(recorded?.outcome);
    answers.entries.set(recorded.entryIds[0] as string, "both");
    const [outcomes, , waited] = await overlapping(
      ledger,
      (areas) => areas.confirmDerived([recorded.groupId]),
      () => readNow(ledger, session, [PRO], () => "pro costs 40"),
    );
    expect([waited, outcomes]).toEqual([true, ["confirmed"]]);
    expect(await seen(ledger, answers, READER)).toEqual([]);
    expect(await purge(ledger, answers)).toBe(1);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a confirm that overlaps the retirement of its index waits, and serves nothing (L3)", async () => {
    const { summary, answers } = await twoPlans();
    const [recorded] = await ledger.recordDerived(answers.ref, [summary], LEASE);
    if (recorded?.outcome !== "recorded") return expect.fail(recorded?.outcome);
    const [, outcomes, waited] = await overlapping(
      ledger,
      (areas) => areas.retireIndex(answers.ref.name),
      () => ledger.confirmDerived([recorded.groupId]),
    );
    expect(waited).toBe(true);
    expect(outcomes).not.toEqual(["confirmed"]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a retirement that overlaps a confirm waits for it, and ends what it made current (L3, P3)", async () => {
    const { summary, answers } = await twoPlans();
    const [recorded] = await ledger.recordDerived(answers.ref, [summary], LEASE);
    if (recorded?.outcome !== "recorded") return expect.fail(recorded?.outcome);
    answers.entries.set(recorded.entryIds[0] as string, "summary");
    const [outcomes, retired, waited] = await overlapping(
      ledger,
      (areas) => areas.confirmDerived([recorded.groupId]),
      () => ledger.retireIndex(answers.ref.name),
    );
    expect([outcomes, retired, waited]).toEqual([["confirmed"], true, true]);
    expect(await purge(ledger, answers)).toBe(1);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("an index that is registered or retired holds the fences of a batch of scopes at a time, however many there are", async () => {
    const { session, answers } = await twoPlans();
    await ledger.sql(
      `with s as (insert into fenceline.subject (name) select $1 || n from generate_series(1, 500) n returning subject_id)
       insert into fenceline.policy_scope (source_id, subject_id) select $2, subject_id from s`,
      [`${session.source} `, session.sourceId],
    );
    const [last] = await ledger.sql<{ scope: number }>("select max(scope_id) as scope from fenceline.policy_scope");
    /** Fences that `step` holds when it comes to the last one. */
    async function heldBy(step: () => Promise<unknown>): Promise<number> {
      const held = await ledger.database.transaction(async (transaction) => {
        const sql = queryableInSchema(transaction, ledger.schema);
        await sql.query("select fenceline.fence_shared($1)", [last?.scope]);
        const stepped = step();
        const locks = await vi.waitFor(async () => {
          const rows = await ledger.sql<{ locks: number }>(
            `select count(*) filter (where l.granted) as locks from pg_locks l
             where l.locktype = 'advisory' and l.pid in (
               select w.pid from pg_locks w
               where w.locktype = 'advisory' and not w.granted
                 and w.classid = hashtext('fenceline.policy_scope')::oid and w.objid = $1::int::oid)
             having count(*) > 0`,
            [last?.scope],
          );
          expect(rows).toHaveLength(1);
          return rows[0]?.locks as number;
        });
        return { locks, stepped };
      });
      await held.stepped;
      return held.locks;
    }
    const store = { name: answers.ref.store, kind: "embedded" };
    await ledger.registerStore(store);
    const index = {
      name: `${session.source} new`,
      version: 1,
      store: store.name,
      embeddings: "local",
      configurationDigest: Buffer.alloc(32),
    };
    expect(await heldBy(() => ledger.registerIndex(index))).toBeLessThan(100);
    expect(await heldBy(() => ledger.retireIndex(index.name))).toBeLessThan(100);
  });

  test("an acknowledgement that overlaps the batch that lists the export completes the revocation, whoever comes first (L6)", async () => {
    for (const acknowledgeFirst of [true, false]) {
      const { source, index } = await twoPlans();
      await ledger.exportVersions({ source, reader: "svc:rag", destination: "wiki", limit: 10 });
      const exported = (await ledger.exports()).filter(({ versions }) => versions[0]?.source === source);
      expect(exported).toHaveLength(2);
      const { revocationId } = await ledger.revoke({ source, subject: "svc:rag", reason: "r" });
      const [first, second] = exported.map(({ exportId }) => exportId) as [number, number];
      await ledger.acknowledgeExport(second);
      const acknowledge = (areas: Pick<typeof ledger, "acknowledgeExport">) => areas.acknowledgeExport(first);
      const batches = async (areas: Pick<typeof ledger, "advanceRevocation">) => {
        while ((await areas.advanceRevocation(revocationId)) === "more");
      };
      const [, , waited] = acknowledgeFirst
        ? await overlapping(ledger, acknowledge, () => batches(ledger))
        : await overlapping(ledger, batches, () => acknowledge(ledger));
      expect(waited).toBe(true);
      await purge(ledger, index);
      expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE", exports: 0 });
    }
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  /** An answer to a read of one of the plans, not yet accepted. */
  async function answerOf(session: Parameters<typeof readNow>[1]) {
    const [read] = await ledger.issueReads(session, { uris: [PRO], reason: "demand", leaseMs: 30_000 });
    const { subscriptionId, ordinal, requestId } = read as NonNullable<typeof read>;
    const parts = [{ uri: PRO, text: "pro costs 40" }];
    return { subscriptionId, ordinal, requestId, digest: Buffer.alloc(32, 7), parts };
  }

  /** Two plans, indexed; a summary of their entries, and an index for it. */
  async function twoPlans() {
    const { session, source } = await activeSource(ledger, [BASIC, PRO]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [BASIC, PRO], (uri) => uri);
    await indexDue(ledger, index, source);
    const parents = [...index.entries.keys()].map((entryId) => ({ as: "ingredient" as const, of: { entryId } }));
    const summary = { kind: "summary" as const, parents, digests: [ledger.digestChunk("summary")] };
    const answers = await createDerivedIndex(ledger);
    // Scopes and flags that the first derivation creates: what is tested is the second.
    await derive(ledger, answers, { ...summary, audience: "user:alice" }, "before");
    answers.entries.clear();
    await ledger.retireIndex(answers.ref.name);
    await purge(ledger, answers);
    return { session, source, index, summary, answers: await createDerivedIndex(ledger) };
  }
});
