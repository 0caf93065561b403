import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { activate, receipts, subscriptionRow } from "./ledger-under-test.js";
import {
  activeSource,
  advance,
  brokenInvariants,
  claimWork,
  createIndex,
  describeWholeLedger,
  indexDue,
  purge,
  readNow,
  seen,
  unsubscribeClosed,
  writeVersion,
} from "./whole-ledger.js";

const URIS = ["catalog://plans/basic", "catalog://plans/pro", "catalog://plans/team", "catalog://other/terms"];
const PLANS = { prefix: "catalog://plans/" };
const READER = ["svc:rag"];

describeWholeLedger("revocations", (ledger) => {
  /** Four resources, read and indexed in two stores; each entry's text is its URI. */
  async function indexed() {
    const { session, source, ids } = await activeSource(ledger, URIS);
    const index = await createIndex(ledger);
    const second = await createIndex(ledger);
    await readNow(ledger, session, URIS, (uri) => uri);
    await indexDue(ledger, index, source);
    await indexDue(ledger, second, source);
    return { session, source, ids, index, second };
  }

  const revokePlans = (source: string) =>
    ledger.revoke({ source, subject: "svc:rag", role: "reader", scope: PLANS, reason: "contract ended" });

  test("a revocation hides at once, closes and marks in batches, and is complete when every store verified (P1 to P3)", async () => {
    const { session, source, index, second } = await indexed();
    const revoked = await revokePlans(source);
    expect(revoked).toMatchObject({ state: "EFFECTIVE", nothingCovered: false, source, scope: PLANS, role: "reader" });
    expect(await seen(ledger, index, READER)).toEqual(["catalog://other/terms"]);
    expect(await ledger.revocationsToAdvance()).toContain(revoked.revocationId);
    await advance(ledger, revoked.revocationId);
    expect(await ledger.revocationsToAdvance()).not.toContain(revoked.revocationId);
    const marked = await ledger.revocation(revoked.revocationId);
    expect(marked).toMatchObject({ state: "EFFECTIVE", covered: { resources: 3, entries: 6 } });
    expect(marked?.stores.map(({ remaining, claim, absentAt }) => ({ remaining, claim, absentAt }))).toEqual([
      { remaining: 3, claim: "hidden", absentAt: undefined },
      { remaining: 3, claim: "hidden", absentAt: undefined },
    ]);
    expect(await purge(ledger, index)).toBe(3);
    expect(await ledger.revocation(revoked.revocationId)).toMatchObject({ state: "EFFECTIVE" });
    expect(await purge(ledger, second)).toBe(3);
    const complete = await ledger.revocation(revoked.revocationId);
    expect(complete).toMatchObject({ state: "COMPLETE", exports: 0 });
    expect(complete?.completedAt).toBeInstanceOf(Date);
    expect(
      complete?.stores.map(({ remaining, claim, absentAt }) => [remaining, claim, absentAt instanceof Date]),
    ).toEqual([
      [0, "absent", true],
      [0, "absent", true],
    ]);
    expect([...index.entries.values()]).toEqual(["catalog://other/terms"]);
    const proofs = await ledger.purgeReceipts(revoked.revocationId);
    expect(proofs.map(({ cause, entries, claim }) => ({ cause, entries, claim }))).toEqual([
      { cause: "revoked", entries: 3, claim: "absent" },
      { cause: "revoked", entries: 3, claim: "absent" },
    ]);
    expect(await receipts(ledger, session)).toContain("revoked");
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a polled subscription that a revocation closed at once is no longer among those still open (U7, P2)", async () => {
    const { session, source, ids: all } = await activeSource(ledger, URIS, { mode: "polled" });
    expect((await ledger.subscriptionsStillOpen(session, all)).sort((a, b) => a - b)).toEqual(all);
    await advance(ledger, (await revokePlans(source)).revocationId);
    const open = await ledger.subscriptionsStillOpen(session, all);
    expect(open).toHaveLength(1);
    expect(await subscriptionRow(ledger, open[0] as number)).toMatchObject({ lifecycle: "ACTIVE" });
    const lost = { ...session, generation: session.generation + 1 };
    expect(await ledger.subscriptionsStillOpen(lost, all)).toEqual([]);
  });

  test("bodies and plain digests of what a reader lost are gone, its other resources keep theirs (P3, P8)", async () => {
    const { session, source } = await indexed();
    const { revocationId } = await revokePlans(source);
    await advance(ledger, revocationId);
    const left = await ledger.sql<{ uri: string }>(
      `select s.uri from fenceline.subscription s join fenceline.body b using (subscription_id) where s.scope_id = $1`,
      [session.scopeId],
    );
    expect(left).toEqual([{ uri: "catalog://other/terms" }]);
    const digests = await ledger.sql<{ uri: string }>(
      `select s.uri from fenceline.subscription s join fenceline.resource_version v using (subscription_id)
       where s.scope_id = $1 and (v.digest is not null or s.digest is not null)`,
      [session.scopeId],
    );
    expect(digests).toEqual([{ uri: "catalog://other/terms" }]);
  });

  test("the receipt's digest is the keyed digest of the sorted entry ids (P3, P8)", async () => {
    const { source, index } = await indexed();
    const ids = [...index.entries].filter(([, text]) => text.startsWith("catalog://plans/")).map(([id]) => id);
    const { revocationId } = await revokePlans(source);
    await advance(ledger, revocationId);
    await purge(ledger, index);
    const [proof] = await ledger.purgeReceipts(revocationId);
    expect(proof?.idsDigest).toBe(ledger.digestChunk(ids.sort().join(",")));
  });

  test("a request is answered once however often it is made; other contents under its id are refused (P1)", async () => {
    const { source } = await indexed();
    const request = { requestId: randomUUID(), source, subject: "svc:rag", scope: PLANS, reason: "r" };
    const first = await ledger.revoke(request);
    expect((await ledger.revoke(request)).revocationId).toBe(first.revocationId);
    await expect(ledger.revoke({ ...request, scope: { everything: true } })).rejects.toMatchObject({
      code: "request_id_reused",
    });
    await expect(ledger.revoke({ ...request, subject: "svc:two" })).rejects.toMatchObject({
      code: "request_id_reused",
    });
    const standing = await ledger.sql(
      `select standing_revocations as standing from fenceline.policy_scope p join fenceline.source s using (source_id)
       join fenceline.subject u using (subject_id) where s.name = $1 order by u.name`,
      [source],
    );
    expect(standing).toEqual([{ standing: 1 }, { standing: 0 }].slice(0, standing.length));
  });

  test("a revocation of a source nobody registered, or of an empty URI, is refused by name (P1)", async () => {
    const request = { source: "nowhere", subject: "svc:rag", reason: "r" };
    await expect(ledger.revoke(request)).rejects.toMatchObject({ code: "source_unknown" });
    await expect(ledger.revoke({ ...request, scope: { uri: "" } })).rejects.toMatchObject({ code: "uri_invalid" });
  });

  test("one that covers nothing known still stands, and says so (P1)", async () => {
    const { session, source } = await indexed();
    const nobody = await ledger.revoke({ source, subject: `user:${randomUUID()}`, reason: "r" });
    expect(nobody).toMatchObject({ nothingCovered: true, state: "EFFECTIVE" });
    const scope = { prefix: "catalog://future/" };
    expect(await ledger.revoke({ source, subject: "svc:rag", scope, reason: "r" })).toMatchObject({
      nothingCovered: true,
    });
    await ledger.grant({ source, reader: "svc:rag", audience: "user:ina", scope: { uri: URIS[0] as string } });
    expect(await ledger.revoke({ source, subject: "user:ina", scope: PLANS, reason: "r" })).toMatchObject({
      nothingCovered: false,
    });
    await activate(ledger, session, [...URIS, "catalog://future/plan"]);
    expect(
      await ledger.issueReads(session, { uris: ["catalog://future/plan"], reason: "demand", leaseMs: 1_000 }),
    ).toEqual([]);
    await advance(ledger, nobody.revocationId);
    expect(await ledger.revocation(nobody.revocationId)).toMatchObject({ state: "COMPLETE", stores: [] });
  });

  test("an audience's revocation hides, purges nothing and is complete at once (P3)", async () => {
    const { source, index } = await indexed();
    await ledger.grant({ source, reader: "svc:rag", audience: "user:jon", scope: { everything: true } });
    const { revocationId } = await ledger.revoke({
      source,
      subject: "user:jon",
      role: "audience",
      scope: PLANS,
      reason: "r",
    });
    expect(await seen(ledger, index, ["user:jon"])).toEqual(["catalog://other/terms"]);
    await advance(ledger, revocationId);
    expect(await ledger.revocation(revocationId)).toMatchObject({
      state: "COMPLETE",
      covered: { resources: 3, entries: 0 },
    });
    expect(await purge(ledger, index)).toBe(0);
    expect(index.entries.size).toBe(4);
  });

  test("covered subscriptions close with their ordinal frozen, and late content leaves only a receipt (U7, U8)", async () => {
    const { session, source, ids } = await indexed();
    const uri = URIS[0] as string;
    const [read] = await ledger.issueReads(session, { uris: [uri], reason: "demand", leaseMs: 30_000 });
    const { revocationId } = await revokePlans(source);
    await advance(ledger, revocationId);
    const id = read?.subscriptionId as number;
    expect(await subscriptionRow(ledger, id)).toMatchObject({
      lifecycle: "CLOSED",
      close_ordinal: 2,
      issued_ordinal: 2,
    });
    const { subscriptionId, ordinal, requestId } = read as NonNullable<typeof read>;
    const late = { subscriptionId, ordinal, requestId, digest: Buffer.alloc(32), parts: [{ uri, text: "late" }] };
    expect(await ledger.acceptResourceVersions(session, [late])).toMatchObject([{ outcome: "stale_after_close" }]);
    expect(await ledger.issueReads(session, { uris: [uri], reason: "demand", leaseMs: 1_000 })).toEqual([]);
    expect(ids).toContain(id);
  });

  test("a lift reopens under a new generation, and content is served once read again, also if unchanged (P2, F6)", async () => {
    const { session, source, index } = await indexed();
    const { revocationId } = await revokePlans(source);
    await advance(ledger, revocationId);
    await purge(ledger, index);
    expect(await ledger.lift(revocationId)).toMatchObject({ state: "LIFTED" });
    expect(await seen(ledger, index, READER)).toEqual(["catalog://other/terms"]);
    const reopened = await activate(ledger, session, URIS);
    expect(reopened).toHaveLength(3);
    expect(await subscriptionRow(ledger, reopened[0] as number)).toMatchObject({ lifecycle: "ACTIVE", generation: 2 });
    const outcomes = await readNow(ledger, session, URIS, (uri) => uri);
    expect(outcomes.filter((outcome) => outcome === "accepted")).toHaveLength(3);
    await indexDue(ledger, index, source);
    expect(await seen(ledger, index, READER)).toEqual([...URIS].sort());
    expect((await ledger.lift(revocationId)).state).toBe("LIFTED");
    await expect(ledger.lift(1_000_000)).rejects.toMatchObject({ code: "revocation_unknown" });
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a lift before the batches leaves everything as it was, and a late batch does nothing (P2)", async () => {
    const { source, index, ids } = await indexed();
    const { revocationId } = await revokePlans(source);
    await ledger.lift(revocationId);
    expect(await ledger.advanceRevocation(revocationId)).toBe("done");
    expect(await seen(ledger, index, READER)).toEqual([...URIS].sort());
    for (const id of ids)
      expect(await subscriptionRow(ledger, id)).toMatchObject({ lifecycle: "ACTIVE", generation: 1 });
  });

  test("what another standing revocation covers stays closed after a lift, and opens when that one is lifted (P2)", async () => {
    const { session, source, ids } = await indexed();
    const plans = await revokePlans(source);
    await advance(ledger, plans.revocationId);
    const pro = await ledger.revoke({ source, subject: "svc:rag", scope: { uri: URIS[1] as string }, reason: "r" });
    await advance(ledger, pro.revocationId);
    const closed = async () => {
      const rows = await Promise.all(ids.map((id) => subscriptionRow(ledger, id)));
      return rows.filter(({ lifecycle }) => lifecycle === "CLOSED").length;
    };
    expect(await closed()).toBe(3);
    await ledger.lift(plans.revocationId);
    expect(await closed()).toBe(1);
    await ledger.lift(pro.revocationId);
    expect(await closed()).toBe(0);
    expect(session.source).toBe(source);
  });

  test("the lineage tag of a version names the newest revocation or lift that covers it (F2)", async () => {
    const { session, source } = await indexed();
    const { revocationId } = await revokePlans(source);
    await advance(ledger, revocationId);
    await ledger.lift(revocationId);
    await activate(ledger, session, URIS);
    await readNow(ledger, session, URIS, (uri) => `${uri} again`);
    const versions = await ledger.sql<{ uri: string; policy_epoch: number }>(
      `select s.uri, v.policy_epoch from fenceline.subscription s join fenceline.resource_version v using (subscription_id)
       where s.scope_id = $1 and v.ordinal = s.version_ordinal order by s.uri`,
      [session.scopeId],
    );
    expect(versions.map(({ policy_epoch }) => policy_epoch)).toEqual([0, 2, 2, 2]);
  });

  test("a revocation between write and confirm refuses the confirm, and waits for the writer's lease to purge (P4)", async () => {
    const { session, source } = await activeSource(ledger, URIS.slice(0, 1));
    const index = await createIndex(ledger);
    await readNow(ledger, session, URIS.slice(0, 1), () => "text");
    const [work] = await claimWork(ledger, index, source);
    const planned = await writeVersion(ledger, index, work as NonNullable<typeof work>);
    const { revocationId } = await revokePlans(source);
    await advance(ledger, revocationId);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "EFFECTIVE", covered: { entries: 1 } });
    expect(await purge(ledger, index)).toBe(0);
    expect(await ledger.confirmVersions(index.ref, [planned])).toMatchObject([{ outcome: "revoked" }]);
    await ledger.advanceClock(5_000);
    expect(await purge(ledger, index)).toBe(1);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE" });
    expect(await seen(ledger, index, READER)).toEqual([]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("an intent recorded after the revocation is dead from the start and gone with the next sweep (P4, L2)", async () => {
    const { session, source } = await activeSource(ledger, URIS.slice(0, 1));
    const index = await createIndex(ledger);
    await readNow(ledger, session, URIS.slice(0, 1), () => "text");
    const [work] = await claimWork(ledger, index, source);
    const { revocationId } = await revokePlans(source);
    const planned = await writeVersion(ledger, index, work as NonNullable<typeof work>);
    expect(index.entries.size).toBe(1);
    await ledger.lift(revocationId);
    expect(await ledger.confirmVersions(index.ref, [planned])).toMatchObject([{ outcome: "group_gone" }]);
    await ledger.advanceClock(5_000);
    expect(await purge(ledger, index)).toBe(1);
  });

  test("content that another reader still has stays for that one, and the revocation does not wait for it (L5, P3)", async () => {
    const { source, index } = await indexed();
    const opened = await ledger.openSession({ source, reader: "svc:two", owner: "w", leaseMs: 86_400_000 });
    if (opened.outcome !== "opened") return expect.fail(opened.outcome);
    await activate(ledger, opened.session, URIS.slice(0, 1));
    await readNow(ledger, opened.session, URIS.slice(0, 1), (uri) => uri);
    await indexDue(ledger, index, source);
    const { revocationId } = await revokePlans(source);
    await advance(ledger, revocationId);
    expect(await purge(ledger, index)).toBe(2);
    expect(await seen(ledger, index, ["svc:two"])).toEqual(URIS.slice(0, 1));
    expect(await seen(ledger, index, READER)).toEqual(["catalog://other/terms"]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("a reader who attaches before the purge keeps the group, and the revocation completes without it (L5, P3)", async () => {
    const { session, source } = await activeSource(ledger, URIS.slice(0, 1));
    const index = await createIndex(ledger);
    await readNow(ledger, session, URIS.slice(0, 1), () => "shared");
    await indexDue(ledger, index, source);
    const opened = await ledger.openSession({ source, reader: "svc:two", owner: "w", leaseMs: 86_400_000 });
    if (opened.outcome !== "opened") return expect.fail(opened.outcome);
    await activate(ledger, opened.session, URIS.slice(0, 1));
    await readNow(ledger, opened.session, URIS.slice(0, 1), () => "shared");
    const { revocationId } = await revokePlans(source);
    await advance(ledger, revocationId);
    expect(await ledger.revocation(revocationId)).toMatchObject({ covered: { entries: 1 } });
    await indexDue(ledger, index, source);
    expect(await purge(ledger, index)).toBe(0);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE" });
    expect(await seen(ledger, index, ["svc:two"])).toEqual(["shared"]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("exports that a revocation could not reach keep it from being complete until each is acknowledged (L6)", async () => {
    const { source, index, second } = await indexed();
    const page = { source, reader: "svc:rag", destination: "notebook", limit: 100 };
    expect(await ledger.exportVersions(page)).toHaveLength(4);
    const { revocationId } = await ledger.revoke({
      source,
      subject: "svc:rag",
      scope: { uri: URIS[0] as string },
      reason: "r",
    });
    expect(await ledger.exportVersions(page)).toHaveLength(3);
    await advance(ledger, revocationId);
    for (const each of [index, second]) await purge(ledger, each);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE_EXCEPT_EXPORTS", exports: 1 });
    const [unreached] = await ledger.exports({ revocationId, open: true });
    expect(unreached).toMatchObject({
      revocations: [revocationId],
      versions: [{ source, reader: "svc:rag", uri: URIS[0] }],
      destination: "notebook",
    });
    const exportId = unreached?.exportId as number;
    expect(await ledger.acknowledgeExport(exportId)).toBe(true);
    expect(await ledger.acknowledgeExport(exportId)).toBe(false);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE", exports: 0 });
    expect(await ledger.exports({ revocationId, open: true })).toEqual([]);
  });

  test("many covered resources are closed batch by batch, in whatever order their keys are (P2)", async () => {
    const uris = Array.from({ length: 23 }, (_, number) => `catalog://many/${(number * 7) % 23}/x`);
    const { source, ids } = await activeSource(ledger, [...uris, "catalog://few/1"]);
    const { revocationId } = await ledger.revoke({
      source,
      subject: "svc:rag",
      scope: { prefix: "catalog://many" },
      reason: "r",
    });
    let batches = 0;
    while ((await ledger.advanceRevocation(revocationId, { limit: 5 })) === "more") batches += 1;
    expect(batches).toBe(5);
    await unsubscribeClosed(ledger);
    const rows = await Promise.all(ids.map((id) => subscriptionRow(ledger, id)));
    expect(rows.filter(({ lifecycle }) => lifecycle === "CLOSED")).toHaveLength(23);
    expect(await ledger.revocation(revocationId)).toMatchObject({ covered: { resources: 23 }, state: "COMPLETE" });
  });

  test("spellings that only meet when folded are closed as well (F10, P2)", async () => {
    const spellings = ["catalog://a//b/one", "catalog://a/x/../b/two", "catalog://a/b/../c"];
    const { source, ids } = await activeSource(ledger, spellings);
    const { revocationId } = await ledger.revoke({
      source,
      subject: "svc:rag",
      scope: { prefix: "catalog://a//b" },
      reason: "r",
    });
    await advance(ledger, revocationId);
    const rows = await Promise.all(ids.map((id) => subscriptionRow(ledger, id)));
    expect(rows.map(({ lifecycle }) => lifecycle)).toEqual(["CLOSED", "CLOSED", "CLOSED"]);
  });

  test("revocations are listed newest first, open ones apart (P1)", async () => {
    const { source } = await indexed();
    const first = await ledger.revoke({ source, subject: "user:kim", reason: "r" });
    const second = await revokePlans(source);
    const all = (await ledger.listRevocations()).map(({ revocationId }) => revocationId);
    expect(all.slice(0, 2)).toEqual([second.revocationId, first.revocationId]);
    await advance(ledger, first.revocationId);
    const open = (await ledger.listRevocations({ open: true })).map(({ revocationId }) => revocationId);
    expect(open).toContain(second.revocationId);
    expect(open).not.toContain(first.revocationId);
    expect(await ledger.revocation(1_000_000)).toBeUndefined();
  });
});
