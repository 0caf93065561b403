import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import type { Derivation, DerivedParent, RecordedDerivation } from "#src/derivations.js";
import {
  activeSource,
  advance,
  brokenInvariants,
  claimWork,
  createDerivedIndex,
  createIndex,
  derive,
  describeWholeLedger,
  type IndexUnderTest,
  indexDue,
  purge,
  readNow,
  seen,
} from "./whole-ledger.js";

const BASIC = "catalog://plans/basic";
const PRO = "catalog://plans/pro";
const READER = ["svc:rag"];

describeWholeLedger("derivations", (ledger) => {
  test("a summary of versions is recorded before it is written, and seen only once confirmed (L1, L2)", async () => {
    const { lineage } = await twoPlans();
    const answers = await createDerivedIndex(ledger);
    const [recorded] = await ledger.recordDerived(answers.ref, [summaryOf([lineage.basic, lineage.pro])], LEASE);
    const { groupId, entryIds } = recordedOf(recorded);
    answers.entries.set(entryIds[0] as string, "both plans");
    expect(await seen(ledger, answers, READER)).toEqual([]);
    expect(await ledger.confirmDerived([groupId])).toEqual(["confirmed"]);
    expect(await ledger.confirmDerived([groupId])).toEqual(["confirmed"]);
    expect(await seen(ledger, answers, READER)).toEqual(["both plans"]);
    expect(await purge(ledger, answers)).toBe(0);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a summary dies with any of its ingredients when a newer version is accepted, and is purged (L1, P3)", async () => {
    const { session, lineage } = await twoPlans();
    const answers = await createDerivedIndex(ledger);
    await derive(ledger, answers, summaryOf([lineage.basic, lineage.pro]), "both plans");
    await derive(ledger, answers, summaryOf([lineage.basic]), "basic alone");
    await readNow(ledger, session, [PRO], () => "pro costs 40");
    expect(await seen(ledger, answers, READER)).toEqual(["basic alone"]);
    expect(await purge(ledger, answers)).toBe(1);
    expect([...answers.entries.values()]).toEqual(["basic alone"]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("alternatives keep an entry until the last of them dies (L1, L5)", async () => {
    const { session, lineage } = await twoPlans();
    const answers = await createDerivedIndex(ledger);
    const either = {
      ...summaryOf([]),
      parents: [alternative(lineage.basic), alternative(lineage.pro)],
    };
    await derive(ledger, answers, either, "either plan");
    await readNow(ledger, session, [PRO], () => "pro costs 40");
    expect(await seen(ledger, answers, READER)).toEqual(["either plan"]);
    expect(await purge(ledger, answers)).toBe(0);
    await readNow(ledger, session, [BASIC], () => "basic costs 20");
    expect(await seen(ledger, answers, READER)).toEqual([]);
    expect(await purge(ledger, answers)).toBe(1);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a summary of entries stands on their versions through every derivation, and dies with one of them (L1)", async () => {
    const { session, index } = await twoPlans();
    const answers = await createDerivedIndex(ledger);
    const chunks = [...index.entries.keys()];
    const first = await derive(ledger, answers, summaryOf(chunks), "of chunks");
    const second = await derive(ledger, answers, summaryOf([first]), "of a summary");
    await derive(ledger, answers, summaryOf([second]), "of a summary of a summary");
    expect(await seen(ledger, answers, READER)).toHaveLength(3);
    await readNow(ledger, session, [PRO], () => "pro costs 40");
    expect(await seen(ledger, answers, READER)).toEqual([]);
    expect(await purge(ledger, answers)).toBe(3);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a revocation of the reader for one ingredient purges what was made of it at any depth, and waits for it (P3)", async () => {
    const { source, index } = await twoPlans();
    const answers = await createDerivedIndex(ledger);
    const first = await derive(ledger, answers, summaryOf([...index.entries.keys()]), "of chunks");
    await derive(ledger, answers, summaryOf([first]), "of a summary");
    const { revocationId } = await ledger.revoke({ source, subject: "svc:rag", scope: { uri: PRO }, reason: "r" });
    expect(await seen(ledger, answers, READER)).toEqual([]);
    await advance(ledger, revocationId);
    expect(await purge(ledger, index)).toBe(1);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "EFFECTIVE" });
    expect(await purge(ledger, answers)).toBe(2);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE", covered: { entries: 3 } });
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a parent that is superseded, revoked, purged, hidden or unknown is named, and leaves no row (L1)", async () => {
    const { session, source, index, lineage, work } = await twoPlans();
    const answers = await createDerivedIndex(ledger);
    const rows = () => ledger.sql("select * from fenceline.entry_group where index_id = $1", [answers.ref.indexId]);
    const outcomeOf = async (...parents: string[]) => {
      const [recorded] = await ledger.recordDerived(answers.ref, [summaryOf(parents)], LEASE);
      return recorded?.outcome;
    };
    expect(await outcomeOf(lineage.basic, "4711.1")).toBe("parent_unknown");
    expect(await outcomeOf("no lineage id")).toBe("parent_unknown");
    expect(await outcomeOf(randomUUID())).toBe("parent_unknown");
    const part = { lineageId: lineage.basic, part: "catalog://plans/none" };
    expect(
      await ledger.recordDerived(answers.ref, [{ ...summaryOf([]), parents: [{ as: "ingredient", of: part }] }], LEASE),
    ).toEqual([{ outcome: "parent_unknown" }]);
    const chunk = [...index.entries].find(([, text]) => text === "basic costs 10")?.[0] as string;
    await ledger.sql(
      "update fenceline.subscription set hidden_because = 'tombstone_pending' where subscription_id = $1",
      [work.basic],
    );
    expect(await outcomeOf(lineage.pro, lineage.basic)).toBe("parent_hidden");
    await readNow(ledger, session, [BASIC], () => "basic costs 20");
    expect(await outcomeOf(lineage.basic)).toBe("parent_superseded");
    expect(await outcomeOf(chunk)).toBe("parent_superseded");
    await indexDue(ledger, index, source);
    expect(await outcomeOf(chunk)).toBe("parent_superseded");
    await purge(ledger, index);
    expect(await outcomeOf(chunk)).toBe("parent_gone");
    const { revocationId } = await ledger.revoke({ source, subject: "svc:rag", scope: { uri: PRO }, reason: "r" });
    expect(await outcomeOf(lineage.pro)).toBe("parent_revoked");
    await advance(ledger, revocationId);
    expect(await outcomeOf(lineage.pro)).toBe("parent_revoked");
    expect(await rows()).toEqual([]);
  });

  test("what dies between record and confirm is not served; what was written is purged (L2, P4)", async () => {
    const { session, source, lineage } = await twoPlans();
    const answers = await createDerivedIndex(ledger);
    const recorded = await ledger.recordDerived(
      answers.ref,
      [summaryOf([lineage.basic]), summaryOf([lineage.pro]), summaryOf([lineage.pro])],
      LEASE,
    );
    const [superseded, revoked, late] = recorded.map(recordedOf);
    for (const group of [superseded, revoked, late]) answers.entries.set(group?.entryIds[0] as string, "written");
    await readNow(ledger, session, [BASIC], () => "basic costs 20");
    await ledger.revoke({ source, subject: "svc:rag", scope: { uri: PRO }, reason: "r" });
    expect(await ledger.confirmDerived([superseded?.groupId as number, revoked?.groupId as number])).toEqual([
      "parent_superseded",
      "parent_revoked",
    ]);
    await ledger.advanceClock(LEASE.leaseMs + 1);
    expect(await purge(ledger, answers)).toBe(3);
    expect(await ledger.confirmDerived([late?.groupId as number])).toEqual(["group_gone"]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a summary of a directory stands on all of its parts, or on the part that was named (F5, L1)", async () => {
    const directory = "catalog://plans/";
    const { session, source } = await activeSource(ledger, [directory]);
    await readNow(ledger, session, [directory], () => ({ [BASIC]: "basic costs 10", [PRO]: "pro costs 30" }));
    const index = await createIndex(ledger);
    const [work] = await claimWork(ledger, index, source);
    const lineageId = work?.lineageId as string;
    const answers = await createDerivedIndex(ledger);
    await derive(ledger, answers, summaryOf([lineageId]), "of all");
    const ofOne: Derivation = {
      ...summaryOf([]),
      parents: [{ as: "ingredient", of: { lineageId, part: BASIC } }],
    };
    await derive(ledger, answers, ofOne, "of basic");
    const { revocationId } = await ledger.revoke({ source, subject: "svc:rag", scope: { uri: PRO }, reason: "r" });
    expect(await seen(ledger, answers, READER)).toEqual(["of basic"]);
    await advance(ledger, revocationId);
    expect(await purge(ledger, answers)).toBe(1);
    expect([...answers.entries.values()]).toEqual(["of basic"]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("what is made of a version after a revocation took a part of it stands on that part, also once it is lifted (P4, L1)", async () => {
    const directory = "catalog://plans/";
    for (const parts of [{ [PRO]: "pro costs 30" }, { [BASIC]: "basic costs 10", [PRO]: "pro costs 30" }]) {
      const { session, source } = await activeSource(ledger, [directory]);
      await readNow(ledger, session, [directory], () => parts);
      const [work] = await claimWork(ledger, await createIndex(ledger), source);
      const lineageId = work?.lineageId as string;
      const answers = await createDerivedIndex(ledger);
      const revoke = () => ledger.revoke({ source, subject: "svc:rag", scope: { uri: PRO }, reason: "r" });
      const { revocationId } = await revoke();
      await advance(ledger, revocationId);
      const part: Derivation = { ...summaryOf([]), parents: [{ as: "ingredient", of: { lineageId, part: PRO } }] };
      expect(await ledger.recordDerived(answers.ref, [summaryOf([lineageId]), part], LEASE)).toEqual([
        { outcome: "parent_revoked" },
        { outcome: "parent_revoked" },
      ]);
      await ledger.lift(revocationId);
      await derive(ledger, answers, summaryOf([lineageId]), "of all");
      await revoke();
      expect(await seen(ledger, answers, READER)).toEqual([]);
    }
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("an asker sees what was made of several only with a grant for each of them (G2, L1)", async () => {
    const { source, lineage } = await twoPlans();
    const answers = await createDerivedIndex(ledger);
    await derive(ledger, answers, summaryOf([lineage.basic, lineage.pro]), "both plans");
    const grant = (uri: string) => ledger.grant({ source, reader: "svc:rag", audience: "group:sales", scope: { uri } });
    await grant(BASIC);
    expect(await seen(ledger, answers, ["user:alice", "group:sales"])).toEqual([]);
    await grant(PRO);
    expect(await seen(ledger, answers, ["user:alice", "group:sales"])).toEqual(["both plans"]);
    await ledger.revoke({ source, subject: "user:alice", role: "audience", scope: { uri: PRO }, reason: "r" });
    expect(await seen(ledger, answers, ["user:alice", "group:sales"])).toEqual([]);
    expect(await seen(ledger, answers, ["user:bob", "group:sales"])).toEqual(["both plans"]);
    expect(await purge(ledger, answers)).toBe(0);
  });

  test("an entry made for one audience is seen by it alone, and purged when that audience is revoked (P3)", async () => {
    const { source, lineage, index } = await twoPlans();
    const answers = await createDerivedIndex(ledger);
    for (const audience of ["user:alice", "user:bob", "group:sales"]) {
      await ledger.grant({ source, reader: "svc:rag", audience, scope: { everything: true } });
    }
    const alice = await derive(ledger, answers, { ...summaryOf([lineage.basic]), audience: "user:alice" }, "for alice");
    await derive(ledger, answers, { ...summaryOf([lineage.basic]), audience: "group:sales" }, "for sales");
    await derive(ledger, answers, summaryOf([lineage.basic]), "for whoever is granted it");
    const others = await ledger.recordDerived(answers.ref, [{ ...summaryOf([alice]), audience: "user:bob" }], LEASE);
    expect(others).toEqual([{ outcome: "parent_for_others" }]);
    expect(await seen(ledger, answers, ["user:bob"])).toEqual(["for whoever is granted it"]);
    expect(await seen(ledger, answers, READER)).toEqual(["for whoever is granted it"]);
    expect(await seen(ledger, answers, ["user:alice", "group:sales"])).toHaveLength(3);

    const revoked = await ledger.revoke({ source, subject: "user:alice", scope: { uri: BASIC }, reason: "left" });
    expect(await seen(ledger, answers, ["user:alice", "group:sales"])).toEqual([]);
    await advance(ledger, revoked.revocationId);
    expect(await ledger.revocation(revoked.revocationId)).toMatchObject({
      state: "EFFECTIVE",
      covered: { entries: 1 },
    });
    expect(await purge(ledger, answers)).toBe(1);
    expect(await purge(ledger, index)).toBe(0);
    expect(await ledger.revocation(revoked.revocationId)).toMatchObject({ state: "COMPLETE" });
    expect(await seen(ledger, answers, ["user:carol", "group:sales"])).toHaveLength(2);

    const sales = await ledger.revoke({ source, subject: "group:sales", role: "audience", reason: "left" });
    expect(await seen(ledger, answers, ["user:bob", "group:sales"])).toEqual(["for whoever is granted it"]);
    await advance(ledger, sales.revocationId);
    expect(await purge(ledger, answers)).toBe(1);
    expect([...answers.entries.values()]).toEqual(["for whoever is granted it"]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("an audience that has no grant of its own is revoked with what was made for it (P3)", async () => {
    const { source, lineage } = await twoPlans();
    const answers = await createDerivedIndex(ledger);
    const alice = `user:${randomUUID()}`;
    await ledger.grant({ source, reader: "svc:rag", audience: "group:sales", scope: { everything: true } });
    await derive(ledger, answers, { ...summaryOf([lineage.basic]), audience: alice }, "for alice");
    const { revocationId } = await ledger.revoke({ subject: alice, reason: "left" });
    expect(await seen(ledger, answers, [alice, "group:sales"])).toEqual([]);
    await advance(ledger, revocationId);
    expect(await purge(ledger, answers)).toBe(1);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE" });
  });

  test("a confirmed deletion of a resource ends what was made of it (F7, L1)", async () => {
    const { source, lineage, work } = await twoPlans();
    const answers = await createDerivedIndex(ledger);
    await derive(ledger, answers, summaryOf([lineage.basic, lineage.pro]), "both plans");
    await ledger.sql(
      `select fenceline.confirm_tombstones(s.scope_id, array[s.subscription_id], 'not found twice', fenceline.now())
       from fenceline.subscription s where s.subscription_id = $1`,
      [work.basic],
    );
    expect(await seen(ledger, answers, READER)).toEqual([]);
    expect(await purge(ledger, answers)).toBe(1);
    expect(source).toBeTruthy();
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a trace leads from an entry to all it came from and all that came from it, also after the purge (L4, P8)", async () => {
    const { session, source, index, lineage } = await twoPlans();
    const answers = await createDerivedIndex(ledger);
    const chunks = [...index.entries.keys()];
    const summary = await derive(ledger, answers, summaryOf(chunks), "of chunks");
    const made = { ...summaryOf([summary, lineage.basic]), kind: "answer" as const, audience: "svc:rag" };
    const answer = await derive(ledger, answers, made, "of the summary");

    const ofSummary = await ledger.trace({ entry: summary });
    expect(ofSummary.derivations.map(({ step, kind, id }) => [step, kind, id])).toEqual([
      ...chunks.map((id) => [-1, "chunk", id]),
      [0, "summary", summary],
      [1, "answer", answer],
    ]);
    expect(ofSummary.versions.map(({ lineageId }) => lineageId).sort()).toEqual([lineage.basic, lineage.pro].sort());
    expect(ofSummary.versions[0]).toMatchObject({ source, reader: "svc:rag", session: session.sessionId });
    const ofChunk = await ledger.trace({ entry: chunks[0] as string });
    expect(ofChunk.derivations.map(({ step, id }) => [step, id])).toEqual([
      [0, chunks[0]],
      [1, summary],
      [2, answer],
    ]);
    const ofUri = (await ledger.trace({ uri: PRO })).versions.filter((version) => version.source === source);
    expect(ofUri[0]?.entries.map(({ kind }) => kind).sort()).toEqual(["answer", "chunk", "summary"]);

    await readNow(ledger, session, [BASIC, PRO], (uri) => `${uri} changed`);
    await indexDue(ledger, index, source);
    for (const each of [index, answers]) await purge(ledger, each);
    const gone = await ledger.trace({ entry: answer });
    expect(gone.versions.map(({ lineageId }) => lineageId).sort()).toEqual([lineage.basic, lineage.pro].sort());
    expect(gone.derivations.map(({ step, id, state }) => [step, id, state])).toEqual([
      ...chunks.map((id) => [-2, id, "PURGED"]),
      [-1, summary, "PURGED"],
      [0, answer, "PURGED"],
    ]);
    const [last] = gone.derivations.slice(-1);
    expect(last).toMatchObject({
      audience: "svc:rag",
      parents: [
        { as: "ingredient", ingredient: 0, entryId: summary },
        { as: "ingredient", ingredient: 1, lineageId: lineage.basic },
      ],
    });
    expect(last?.purgedAt).toBeInstanceOf(Date);
    const receipts = (await ledger.purgeReceipts()).map(({ purgeReceiptId }) => purgeReceiptId);
    expect(last?.purgeReceipts).toHaveLength(1);
    expect(receipts).toContain(last?.purgeReceipts[0]);
    expect(JSON.stringify(gone)).not.toContain("costs");
    expect((await ledger.trace({ entry: randomUUID() })).derivations).toEqual([]);
  });

  const LEASE = { leaseMs: 5_000 };

  /** Two plans, indexed. */
  async function twoPlans() {
    const { session, source } = await activeSource(ledger, [BASIC, PRO]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [BASIC, PRO], (uri) => (uri === BASIC ? "basic costs 10" : "pro costs 30"));
    const found = new Map((await peek(index, source)).map((each) => [each.uri, each]));
    await indexDue(ledger, index, source);
    const lineage = { basic: found.get(BASIC)?.lineageId as string, pro: found.get(PRO)?.lineageId as string };
    const work = { basic: found.get(BASIC)?.subscriptionId, pro: found.get(PRO)?.subscriptionId };
    return { session, source, index, lineage, work };
  }

  async function peek(index: IndexUnderTest, source: string) {
    const work = await claimWork(ledger, index, source);
    for (const each of work) await ledger.releaseIndexWork(index.ref, each);
    return work;
  }

  function recordedOf(recorded: RecordedDerivation | undefined) {
    if (recorded?.outcome !== "recorded") return expect.fail(`the derivation is ${recorded?.outcome}`);
    return recorded;
  }

  /** Of these entries and versions, each an ingredient. */
  function summaryOf(of: readonly string[]): Derivation {
    const parents = of.map(
      (id): DerivedParent => ({ as: "ingredient", of: id.includes("-") ? { entryId: id } : { lineageId: id } }),
    );
    return { kind: "summary", parents, digests: [ledger.digestChunk(randomUUID())] };
  }

  function alternative(lineageId: string): DerivedParent {
    return { as: "alternative", of: { lineageId } };
  }
});
