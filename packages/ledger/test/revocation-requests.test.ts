import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { parseRecordAs } from "#src/records/parse-record.js";
import { purgeReceipt, purgeReceiptOf } from "#src/records/purge-receipt.js";
import type { Session } from "#src/sessions.js";
import { activate } from "./ledger-under-test.js";
import { activeSource, advance, createIndex, describeWholeLedger, indexDue, purge, readNow } from "./whole-ledger.js";

const DIRECTORY = "catalog://plans";
const PART = "catalog://elsewhere/part";

describeWholeLedger("what a revocation answers and leaves", (ledger) => {
  test("one request in two spellings of its scope is one request (P1)", async () => {
    const { source } = await activeSource(ledger, [DIRECTORY]);
    const request = { requestId: randomUUID(), source, subject: "svc:rag", reason: "r" };
    const first = await ledger.revoke({ ...request, scope: { prefix: "catalog://plans/a%2Db" } });
    const again = await ledger.revoke({ ...request, scope: { prefix: "CATALOG://plans/a-b/" } });
    expect(again.revocationId).toBe(first.revocationId);
    await expect(ledger.revoke({ ...request, scope: { uri: "catalog://plans/a-b" } })).rejects.toMatchObject({
      code: "request_id_reused",
    });
  });

  test("one without a subject or a reason is refused, and leaves nothing (P1)", async () => {
    const before = (await ledger.listRevocations()).length;
    for (const empty of [
      { subject: " ", reason: "r" },
      { subject: "user:alice", reason: "" },
    ]) {
      await expect(ledger.revoke(empty)).rejects.toMatchObject({ code: "input_invalid" });
    }
    expect(await ledger.listRevocations()).toHaveLength(before);
  });

  test("a part that was read covers something, whether or not it was indexed (F5, P1)", async () => {
    for (const indexed of [false, true]) {
      const { session, source } = await activeSource(ledger, [DIRECTORY]);
      const index = await createIndex(ledger);
      await readNow(ledger, session, [DIRECTORY], () => ({ [PART]: "part", [DIRECTORY]: "rest" }));
      if (indexed) await indexDue(ledger, index, source);
      const revoked = await ledger.revoke({ source, subject: "svc:rag", scope: { uri: PART }, reason: "r" });
      expect(revoked.nothingCovered).toBe(false);
      await advance(ledger, revoked.revocationId);
      expect(await ledger.revocation(revoked.revocationId)).toMatchObject({
        covered: { resources: 1, entries: indexed ? 1 : 0 },
      });
    }
  });

  test("a version read without a revoked part keeps no digest of what that part was (P8, F3)", async () => {
    const { session, source, ids } = await activeSource(ledger, [DIRECTORY]);
    await ledger.revoke({ source, subject: "svc:rag", scope: { uri: PART }, reason: "r" });
    await readNow(ledger, session, [DIRECTORY], () => ({ [PART]: "part", [DIRECTORY]: "rest" }));
    const kept = await ledger.sql(
      "select digest from fenceline.resource_version where subscription_id = $1 and digest is not null",
      [ids[0]],
    );
    expect(kept).toEqual([]);
  });

  test("a later revocation of one source is newer than an earlier one of every source, however they were counted (F2)", async () => {
    const reader = `svc:${randomUUID()}`;
    const [much, little] = [await sourceOf(reader), await sourceOf(reader)];
    const revokeAndLift = async (request: { source?: string }) => {
      const { revocationId } = await ledger.revoke({ ...request, subject: reader, reason: "r" });
      await ledger.lift(revocationId);
    };
    for (let times = 0; times < 3; times += 1) await revokeAndLift({ source: much.source });
    await revokeAndLift({});
    const before = await tagOfNextVersion(little);
    await revokeAndLift({ source: little.source });
    expect(await tagOfNextVersion(little)).toBeGreaterThan(before);
  });

  test("what was verified absent leaves a purgeReceipt.v1 (P3)", async () => {
    const { session, source } = await activeSource(ledger, [DIRECTORY]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [DIRECTORY], () => "one line");
    await indexDue(ledger, index, source);
    const { revocationId } = await ledger.revoke({ source, subject: "svc:rag", reason: "r" });
    await advance(ledger, revocationId);
    await purge(ledger, index);
    const records = (await ledger.purgeReceipts(revocationId)).map((row) =>
      parseRecordAs(purgeReceipt, purgeReceiptOf(row)),
    );
    expect(records).toMatchObject([
      { revocationId, store: index.ref.store, cause: "revoked", entries: 1, remaining: 0, claim: "absent" },
    ]);
  });

  async function sourceOf(reader: string): Promise<Session> {
    const source = `source-${randomUUID()}`;
    await ledger.registerSource({ name: source });
    const opened = await ledger.openSession({ source, reader, owner: "worker", leaseMs: 86_400_000 });
    if (opened.outcome !== "opened") return expect.fail(opened.outcome);
    await activate(ledger, opened.session, [DIRECTORY]);
    return opened.session;
  }

  async function tagOfNextVersion(session: Session): Promise<number> {
    await activate(ledger, session, [DIRECTORY]);
    await readNow(ledger, session, [DIRECTORY], () => randomUUID());
    const [version] = await ledger.sql<{ epoch: number }>(
      `select v.policy_epoch as epoch from fenceline.resource_version v join fenceline.subscription s using (subscription_id)
       where s.scope_id = $1 order by v.ordinal desc limit 1`,
      [session.scopeId],
    );
    return version?.epoch as number;
  }
});
