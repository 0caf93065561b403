import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { lineageIdOf } from "#src/lineage-id.js";
import type { UriScope } from "#src/uri-scope.js";
import { accept, activate, issueOne, openSession } from "./ledger-under-test.js";
import {
  activeSource,
  createDerivedIndex,
  createIndex,
  derive,
  describeWholeLedger,
  indexDue,
  readNow,
  seen,
} from "./whole-ledger.js";

const BASIC = "catalog://plans/basic";
const PRO = "catalog://plans/pro";
const READER = ["svc:rag"];
const ALICE = ["user:alice", "group:sales"];

describeWholeLedger("visibility", (ledger) => {
  /** Two plans, read and indexed; each entry's text is its URI. */
  async function twoPlans(mode: "pushed" | "polled" = "pushed") {
    const { session, source } = await activeSource(ledger, [BASIC, PRO], { mode });
    const index = await createIndex(ledger);
    await readNow(ledger, session, [BASIC, PRO], (uri) => uri);
    await indexDue(ledger, index, source);
    const grant = (audience: string, scope: UriScope) => ledger.grant({ source, reader: "svc:rag", audience, scope });
    return { session, source, index, grant };
  }

  async function freshness(index: Awaited<ReturnType<typeof createIndex>>, asker = READER): Promise<string[]> {
    const visible = await ledger.visibleEntries({ index: index.ref.name, entryIds: [...index.entries.keys()], asker });
    return visible.map((entry) => entry.freshness);
  }

  test("without a grant nobody but the reader sees anything (G1)", async () => {
    const { index } = await twoPlans();
    expect(await seen(ledger, index, READER)).toEqual([BASIC, PRO]);
    expect(await seen(ledger, index, ALICE)).toEqual([]);
    expect(await seen(ledger, index, [])).toEqual([]);
  });

  test("a grant covers its scope for its audience, user or group, and nothing else (G1, G2)", async () => {
    const { index, grant } = await twoPlans();
    await grant("group:sales", { uri: BASIC });
    expect(await seen(ledger, index, ALICE)).toEqual([BASIC]);
    expect(await seen(ledger, index, ["user:bob"])).toEqual([]);
    await grant("user:bob", { prefix: "catalog://plans/" });
    expect(await seen(ledger, index, ["user:bob"])).toEqual([BASIC, PRO]);
    await grant("user:carol", { everything: true });
    expect(await seen(ledger, index, ["user:carol"])).toEqual([BASIC, PRO]);
  });

  test("a prefix grants at a segment bound, and one URI grants no children (G1, F10)", async () => {
    const uris = ["catalog://plans/pro", "catalog://plans/pro-2", "catalog://plans/pro/terms"];
    const { session, source } = await activeSource(ledger, uris);
    const index = await createIndex(ledger);
    await readNow(ledger, session, uris, (uri) => uri);
    await indexDue(ledger, index, source);
    await ledger.grant({ source, reader: "svc:rag", audience: "user:below", scope: { prefix: "catalog://plans/pro" } });
    await ledger.grant({ source, reader: "svc:rag", audience: "user:exact", scope: { uri: "catalog://plans/pro" } });
    expect(await seen(ledger, index, ["user:below"])).toEqual(["catalog://plans/pro", "catalog://plans/pro/terms"]);
    expect(await seen(ledger, index, ["user:exact"])).toEqual(["catalog://plans/pro"]);
  });

  test("a grant never reaches another spelling that leaves its prefix (F10)", async () => {
    const escaping = "catalog://plans/open/../secret";
    const { session, source } = await activeSource(ledger, [escaping]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [escaping], (uri) => uri);
    await indexDue(ledger, index, source);
    await ledger.grant({
      source,
      reader: "svc:rag",
      audience: "user:alice",
      scope: { prefix: "catalog://plans/open" },
    });
    expect(await seen(ledger, index, ["user:alice"])).toEqual([]);
    await ledger.grant({ source, reader: "svc:rag", audience: "user:alice", scope: { uri: escaping } });
    expect(await seen(ledger, index, ["user:alice"])).toEqual([escaping]);
  });

  test("a grant of one reader shows nothing that another reader read (F11, G1)", async () => {
    const { source, index } = await twoPlans();
    await ledger.grant({ source, reader: "svc:other", audience: "user:alice", scope: { everything: true } });
    expect(await seen(ledger, index, ["user:alice"])).toEqual([]);
  });

  test("a grant in one source shows nothing of another (G1)", async () => {
    const { index } = await twoPlans();
    const other = await twoPlans();
    await other.grant("user:dora", { everything: true });
    expect(await seen(ledger, index, ["user:dora"])).toEqual([]);
    expect(await seen(ledger, other.index, ["user:dora"])).toEqual([BASIC, PRO]);
  });

  test("a revoked group takes what that group granted; a revoked user is denied through every path (G2)", async () => {
    const { source, index, grant } = await twoPlans();
    await grant("group:sales", { everything: true });
    await grant("group:all", { uri: PRO });
    const asker = ["user:erin", "group:sales", "group:all"];
    expect(await seen(ledger, index, asker)).toEqual([BASIC, PRO]);
    const reason = "left";
    const sales = await ledger.revoke({ source, subject: "group:sales", role: "audience", reason });
    expect(await seen(ledger, index, asker)).toEqual([PRO]);
    await ledger.lift(sales.revocationId);
    expect(await seen(ledger, index, asker)).toEqual([BASIC, PRO]);
    await ledger.revoke({ source, subject: "user:erin", scope: { uri: PRO }, reason });
    expect(await seen(ledger, index, asker)).toEqual([BASIC]);
    expect(await seen(ledger, index, ["user:frank", "group:sales", "group:all"])).toEqual([BASIC, PRO]);
  });

  test("a revoked user is denied through every path in whatever place it is named; a group named first is one (G2)", async () => {
    const { source, index, grant } = await twoPlans();
    await grant("group:sales", { everything: true });
    await grant("group:all", { uri: PRO });
    await ledger.revoke({ source, subject: "user:gina", scope: { uri: PRO }, reason: "left" });
    expect(await seen(ledger, index, ["group:sales", "user:gina", "group:all"])).toEqual([BASIC]);
    expect(await seen(ledger, index, ["group:sales", "group:all", "user:gina"])).toEqual([BASIC]);
    await ledger.revoke({ source, subject: "group:all", role: "audience", reason: "left" });
    expect(await seen(ledger, index, ["group:sales", "group:all"])).toEqual([BASIC, PRO]);
  });

  test("a reader revoked as an audience sees nothing through itself, and its audiences still see (P1, G2)", async () => {
    const { source, index, grant } = await twoPlans();
    await grant("user:alice", { everything: true });
    await ledger.revoke({ source, subject: "svc:rag", role: "audience", reason: "no longer asks" });
    expect(await seen(ledger, index, READER)).toEqual([]);
    expect(await seen(ledger, index, ["user:alice"])).toEqual([BASIC, PRO]);
  });

  test("a revoked reader's entries are hidden from every audience before any batch ran (P2, G2)", async () => {
    const { source, index, grant } = await twoPlans();
    await grant("user:alice", { everything: true });
    await ledger.revoke({ source, subject: "svc:rag", role: "reader", scope: { uri: PRO }, reason: "r" });
    expect(await seen(ledger, index, ["user:alice"])).toEqual([BASIC]);
    expect(await seen(ledger, index, READER)).toEqual([BASIC]);
  });

  test("no re-spelling of a URI escapes its revocation (F10, P2)", async () => {
    const spelled = "catalog://plans/x/%2e%2e/secret";
    const { session, source } = await activeSource(ledger, [spelled]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [spelled], () => "secret");
    await indexDue(ledger, index, source);
    await ledger.revoke({ source, subject: "svc:rag", scope: { uri: "catalog://plans/secret" }, reason: "r" });
    expect(await seen(ledger, index, READER)).toEqual([]);
  });

  test("parts are denied and granted by their own URI (F5, G2)", async () => {
    const directory = "catalog://plans";
    const parts = { "catalog://plans/open": "open", "catalog://plans/secret": "secret" };
    const { session, source } = await activeSource(ledger, [directory]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [directory], () => parts);
    await indexDue(ledger, index, source);
    expect(await seen(ledger, index, READER)).toEqual(["open", "secret"]);
    const visible = await ledger.visibleEntries({
      index: index.ref.name,
      entryIds: [...index.entries.keys()],
      asker: READER,
    });
    expect(visible.map(({ uri }) => uri).sort()).toEqual(Object.keys(parts));
    await ledger.grant({ source, reader: "svc:rag", audience: "user:exact", scope: { uri: directory } });
    expect(await seen(ledger, index, ["user:exact"])).toEqual([]);
    await ledger.grant({ source, reader: "svc:rag", audience: "user:below", scope: { prefix: directory } });
    expect(await seen(ledger, index, ["user:below"])).toEqual(["open", "secret"]);
    await ledger.revoke({ source, subject: "user:below", scope: { uri: "catalog://plans/secret" }, reason: "r" });
    expect(await seen(ledger, index, ["user:below"])).toEqual(["open"]);
    await ledger.revoke({ source, subject: "svc:rag", scope: { prefix: "catalog://plans/secret" }, reason: "r" });
    expect(await seen(ledger, index, READER)).toEqual(["open"]);
  });

  test("where a place is granted to hundreds of others, an audience's own grant counts, and no less (G1, G2, F5)", async () => {
    const directory = "catalog://plans";
    const parts = { "catalog://plans/open": "open", "catalog://plans/secret": "secret" };
    const { session, source } = await activeSource(ledger, [directory, "catalog://other"]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [directory, "catalog://other"], (uri) => (uri === directory ? parts : "other"));
    await indexDue(ledger, index, source);
    // The asker's audiences are named last, so that an index finds their grants after all others'.
    const others = Array.from({ length: 250 }, (_, number) => `group:other-${number}`);
    const grantOf = (audience: string, scope: UriScope) => ({ source, reader: "svc:rag", audience, scope });
    await ledger.replaceConfiguredGrants(
      [source],
      [
        ...others.map((audience) => grantOf(audience, { everything: true })),
        grantOf("group:all", { everything: true }),
        grantOf("group:whole", { uri: directory }),
        grantOf("group:part", { uri: "catalog://plans/open" }),
        grantOf("user:exact", { uri: directory }),
      ],
    );
    expect(await seen(ledger, index, ["user:lee", "group:all"])).toEqual(["open", "other", "secret"]);
    expect(await seen(ledger, index, ["user:lee", "group:none"])).toEqual([]);
    expect(await seen(ledger, index, ["user:exact"])).toEqual([]);
    expect(await seen(ledger, index, ["user:lee", "group:whole", "group:part"])).toEqual([]);
    await ledger.grant(grantOf("group:part", { uri: directory }));
    expect(await seen(ledger, index, ["user:lee", "group:whole", "group:part"])).toEqual(["open"]);
    await ledger.revoke({ source, subject: "group:all", scope: { uri: "catalog://plans/secret" }, reason: "r" });
    expect(await seen(ledger, index, ["user:lee", "group:all"])).toEqual(["open", "other"]);
    expect(await seen(ledger, index, ["user:lee", "group:all", "group:other-7"])).toEqual(["open", "other", "secret"]);
  });

  test("a revocation of every source hides in each of them, also in one the subject reads later (P1, P2)", async () => {
    const reader = `svc:${randomUUID()}`;
    const one = await readAs(reader);
    expect(await seen(ledger, one, [reader])).toEqual([BASIC]);
    const { revocationId } = await ledger.revoke({ subject: reader, reason: "r" });
    expect(await seen(ledger, one, [reader])).toEqual([]);
    const source = `source-${randomUUID()}`;
    await ledger.registerSource({ name: source });
    const opened = await ledger.openSession({ source, reader, owner: "w", leaseMs: 86_400_000 });
    if (opened.outcome !== "opened") return expect.fail(opened.outcome);
    await activate(ledger, opened.session, [BASIC]);
    expect(await ledger.issueReads(opened.session, { uris: [BASIC], reason: "demand", leaseMs: 1_000 })).toEqual([]);
    await ledger.lift(revocationId);
    expect(await seen(ledger, one, [reader])).toEqual([BASIC]);
  });

  /** One plan in a source of its own, read under this reader. */
  async function readAs(reader: string) {
    const source = `source-${randomUUID()}`;
    await ledger.registerSource({ name: source });
    const opened = await ledger.openSession({ source, reader, owner: "w", leaseMs: 86_400_000 });
    if (opened.outcome !== "opened") return expect.fail(opened.outcome);
    await activate(ledger, opened.session, [BASIC]);
    const index = await createIndex(ledger);
    await readNow(ledger, opened.session, [BASIC], (uri) => uri);
    await indexDue(ledger, index, source);
    return index;
  }

  test("unknown ids, ids of another ledger and of another index are left out; the order is that of the ids (G2)", async () => {
    const { index } = await twoPlans();
    const other = await twoPlans();
    const [first, second] = [...index.entries.keys()];
    const foreign = (first as string).replace(/^......../, "00000000");
    const unknown = (first as string).replace(/..$/, "ff");
    const entryIds = [
      second,
      randomUUID(),
      foreign,
      "no id",
      unknown,
      ...other.index.entries.keys(),
      first,
      second,
    ] as string[];
    const visible = await ledger.visibleEntries({ index: index.ref.name, entryIds, asker: READER });
    expect(visible.map(({ entryId }) => entryId)).toEqual([second, first, second]);
    expect(await ledger.visibleEntries({ index: "no such index", entryIds, asker: READER })).toEqual([]);
  });

  test("a hidden resource, and one that is to be reconciled, is shown to nobody (F7, F10)", async () => {
    const { session, index } = await twoPlans();
    const hide = (column: string) =>
      ledger.sql(`update fenceline.subscription set ${column} where scope_id = $1 and uri = $2`, [
        session.scopeId,
        PRO,
      ]);
    await hide("hidden_because = 'forbidden'");
    expect(await seen(ledger, index, READER)).toEqual([BASIC]);
    await hide("hidden_because = null");
    expect(await seen(ledger, index, READER)).toEqual([BASIC, PRO]);
    await hide("lifecycle = 'RECONCILIATION_REQUIRED', lifecycle_event = 'identity_unclear'");
    expect(await seen(ledger, index, READER)).toEqual([BASIC]);
  });

  test("a reconciled resource shows nothing of its earlier generation until a read is accepted (F10)", async () => {
    const { session, source, index } = await twoPlans();
    for (const change of [
      "lifecycle = 'RECONCILIATION_REQUIRED', lifecycle_event = 'identity_unclear', digest = null",
      "lifecycle = 'ACTIVE', lifecycle_event = 'scan_settled', generation = generation + 1",
    ]) {
      await ledger.sql(`update fenceline.subscription set ${change} where scope_id = $1 and uri = $2`, [
        session.scopeId,
        PRO,
      ]);
    }
    expect(await seen(ledger, index, READER)).toEqual([BASIC]);
    await readNow(ledger, session, [PRO], (uri) => uri);
    await indexDue(ledger, index, source);
    expect(await seen(ledger, index, READER)).toEqual([BASIC, PRO]);
  });

  test("after a notification the old content is changed until the new version is confirmed (§9, F3)", async () => {
    const { session, source, index } = await twoPlans();
    await ledger.recordNotifications(session, [BASIC]);
    expect((await freshness(index)).sort()).toEqual(["changed", "fresh"]);
    await readNow(ledger, session, [BASIC], () => "120");
    expect((await freshness(index)).sort()).toEqual(["changed", "fresh"]);
    await indexDue(ledger, index, source);
    expect(await freshness(index)).toEqual(["fresh", "fresh"]);
    expect(await seen(ledger, index, READER)).toEqual(["120", PRO]);
  });

  test("an entry of which one ingredient was never confirmed says of no time that it was (§9, L1)", async () => {
    const { session } = await activeSource(ledger, [BASIC, PRO]);
    await readNow(ledger, session, [BASIC], (uri) => uri);
    const late = await issueOne(ledger, session);
    expect(late.uri).toBe(PRO);
    await ledger.recordNotifications(session, [PRO]);
    expect(await accept(ledger, session, late, "out of date already")).toBe("accepted_not_current");
    const summaries = await createDerivedIndex(ledger);
    const ingredients = await ledger.sql<{ subscriptionId: number; ordinal: number }>(
      `select subscription_id as "subscriptionId", version_ordinal as ordinal from fenceline.subscription where scope_id = $1`,
      [session.scopeId],
    );
    await derive(
      ledger,
      summaries,
      {
        kind: "summary",
        digests: [ledger.digestChunk("both")],
        parents: ingredients.map((of) => ({
          as: "ingredient",
          of: { lineageId: lineageIdOf(of.subscriptionId, of.ordinal) },
        })),
      },
      "both",
    );
    const asked = { index: summaries.ref.name, entryIds: [...summaries.entries.keys()], asker: READER };
    expect(await ledger.visibleEntries(asked)).toMatchObject([
      { freshness: "changed", verifiedAt: undefined, ageMs: undefined },
    ]);
  });

  test("pushed content is unverified once its stream broke, until it is read again; polled content is not (U4, §9)", async () => {
    const pushed = await twoPlans();
    const polled = await twoPlans("polled");
    await ledger.breakStream(pushed.session, 0);
    expect(await freshness(pushed.index)).toEqual(["unverified", "unverified"]);
    expect(await freshness(polled.index)).toEqual(["fresh", "fresh"]);
  });

  test("what was pushed and is put on the timer after a break stays unverified until it is read (U3, U4, §9)", async () => {
    const { session, index } = await twoPlans();
    await ledger.breakStream(session, 0);
    const ids = await ledger.sql<{ subscription_id: number }>(
      "select subscription_id from fenceline.subscription where scope_id = $1 order by subscription_id",
      [session.scopeId],
    );
    const polled = ids.map((row) => row.subscription_id);
    await ledger.activateSubscriptions(session, { shard: 0, pushed: [], polled });
    expect(await freshness(index)).toEqual(["unverified", "unverified"]);

    await readNow(ledger, session, [BASIC], (uri) => uri);
    expect(await freshness(index)).toEqual(["fresh", "unverified"]);
    await readNow(ledger, session, [PRO], (uri) => uri);
    expect(await freshness(index)).toEqual(["fresh", "fresh"]);
  });

  test("pushed content is unverified once its holder's lease ended without a word (U4, §9)", async () => {
    const session = await openSession(ledger, {});
    await activate(ledger, session, [BASIC]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [BASIC], (uri) => uri);
    await indexDue(ledger, index, session.source);
    expect(await freshness(index)).toEqual(["fresh"]);
    await ledger.sql("update fenceline.session set expires_at = fenceline.now() where session_id = $1", [
      session.sessionId,
    ]);
    expect(await freshness(index)).toEqual(["unverified"]);
  });

  test("a credential problem makes a scope unverified, and hides nothing (P7, §9)", async () => {
    const { session, index } = await twoPlans("polled");
    await ledger.suspendScope(session, "401");
    expect(await freshness(index)).toEqual(["unverified", "unverified"]);
    await ledger.resumeScope(session);
    expect(await freshness(index)).toEqual(["fresh", "fresh"]);
  });

  test("content past its source's staleness bound is expired, and says when it was verified and how long ago, by the ledger's clock (§9, U10)", async () => {
    const { index } = await twoPlans("polled");
    const [before] = await ledger.visibleEntries({
      index: index.ref.name,
      entryIds: [...index.entries.keys()],
      asker: READER,
    });
    await ledger.advanceClock(900_000);
    expect(await freshness(index)).toEqual(["expired", "expired"]);
    const [after] = await ledger.visibleEntries({
      index: index.ref.name,
      entryIds: [...index.entries.keys()],
      asker: READER,
    });
    expect(after?.verifiedAt).toEqual(before?.verifiedAt);
    expect(before?.ageMs).toBeLessThan(900_000);
    expect(after?.ageMs).toBeGreaterThanOrEqual(900_000);
  });

  test("of several readers of one content the freshest counts (L5, §9)", async () => {
    const { source, session, index } = await twoPlans("polled");
    const opened = await ledger.openSession({ source, reader: "svc:two", owner: "w", leaseMs: 86_400_000 });
    if (opened.outcome !== "opened") return expect.fail(opened.outcome);
    await activate(ledger, opened.session, [BASIC], "polled");
    await ledger.advanceClock(900_000);
    await readNow(ledger, opened.session, [BASIC], (uri) => uri);
    await indexDue(ledger, index, source);
    expect(await freshness(index, ["svc:two"])).toEqual(["fresh"]);
    await ledger.grant({ source, reader: "svc:rag", audience: "user:gil", scope: { everything: true } });
    await ledger.grant({ source, reader: "svc:two", audience: "user:gil", scope: { everything: true } });
    expect((await freshness(index, ["user:gil"])).sort()).toEqual(["expired", "fresh"]);
    expect(session.reader).toBe("svc:rag");
  });

  test("an entry made of several ingredients is visible only while each of them is (L1, G2)", async () => {
    const { source, session, index, grant } = await twoPlans();
    const ids = await ledger.sql<{ id: number; resource: number }>(
      "select subscription_id as id, resource_id as resource from fenceline.subscription where scope_id = $1 order by uri",
      [session.scopeId],
    );
    // A summary of both plans: the group of the first gets the version of the second as an ingredient.
    await ledger.sql(
      `insert into fenceline.group_root
         (group_id, subscription_id, ordinal, part_id, ingredient, scope_id, resource_id, index_id, state)
       select r.group_id, $2, 1, $3, 1, r.scope_id, $3, r.index_id, 'CURRENT'
       from fenceline.group_root r where r.subscription_id = $1`,
      [ids[0]?.id, ids[1]?.id, ids[1]?.resource],
    );
    await ledger.sql(
      `update fenceline.entry_group g set ingredients = 2 from fenceline.group_root r
       where r.group_id = g.group_id and r.ingredient = 1 and r.subscription_id = $1`,
      [ids[1]?.id],
    );
    await grant("user:hana", { uri: BASIC });
    expect(await seen(ledger, index, ["user:hana"])).toEqual([]);
    await grant("user:hana", { uri: PRO });
    expect(await seen(ledger, index, ["user:hana"])).toEqual([BASIC, PRO]);
    await ledger.revoke({ source, subject: "svc:rag", scope: { uri: PRO }, reason: "r" });
    expect(await seen(ledger, index, ["user:hana"])).toEqual([]);
  });
});
