import { randomUUID } from "node:crypto";
import { expect, test, vi } from "vitest";
import type { ContentFinding } from "#src/records/content-finding.js";
import { parseRecord } from "#src/records/parse-record.js";
import type { ResourceDiscoveryScan } from "#src/records/resource-discovery-scan.js";
import { answer, digest, issueOne, openSession, READ_LEASE_MS, scan } from "./ledger-under-test.js";
import { expectToFitItsJsonSchema } from "./records/record-validator.js";
import {
  activeSource,
  advance,
  createDerivedIndex,
  createIndex,
  derive,
  describeWholeLedger,
  indexDue,
  purge,
  readNow,
} from "./whole-ledger.js";

const URI = "catalog://plans/basic";
const SERVER = { name: "catalog", version: "1.0.0" };

describeWholeLedger("the records of a ledger", (ledger) => {
  async function readResource() {
    const { session, source, ids } = await activeSource(ledger, [URI]);
    await ledger.recordCapabilities(session, {
      era: "modern",
      protocolVersion: "2026-07-28",
      server: SERVER,
      resources: true,
      subscribe: true,
      listChanged: false,
    });
    const read = await issueOne(ledger, session);
    const [accepted] = await ledger.acceptResourceVersions(session, [answer(read, "price=100")]);
    return { session, source, id: ids[0] as number, read, lineageId: accepted?.lineageId as string };
  }

  test("a scan's says how it ended, what it saw and what may be concluded from it (S2, S4, S5)", async () => {
    const { session, source } = await activeSource(ledger, []);
    const first = await scan(ledger, session, [URI]);
    const common = {
      source,
      subject: "svc:rag",
      sessionId: session.sessionId,
      pages: 1,
      resources: 1,
      notificationsObserved: 0,
    };
    const undecided = await ledger.scanRecord(first);
    expectToFitItsJsonSchema(undecided);
    expect(undecided).toMatchObject({ ...common, verdict: null });
    const second = await scan(ledger, session, [URI]);
    await ledger.publishCatalog(session, { first, second, reviewMs: 600_000 });
    const published = await ledger.scanRecord(second);
    expect(published).toMatchObject({
      ...common,
      verdict: "SNAPSHOT_UNPROVEN",
      agreedWithScanId: first,
      stalenessBoundMs: 900_000,
    });
    expectToFitItsJsonSchema(published);
    expect(published?.cursorDigests).toEqual([digest("cursor 0").toString("hex")]);
    const { measuredAt, nextReviewAt } = published as ResourceDiscoveryScan & {
      measuredAt: string;
      nextReviewAt: string;
    };
    expect(Date.parse(nextReviewAt) - Date.parse(measuredAt)).toBe(600_000);
    expect(await ledger.scanRecord(first)).toMatchObject({ agreedWithScanId: second, measuredAt, nextReviewAt });

    const begun = await ledger.beginScan(session);
    if (typeof begun === "string") return expect.fail(begun);
    expect(await ledger.scanRecord(begun.scanId)).toBeUndefined();
    await ledger.recordListChanged(session);
    await ledger.finishScan(session, begun.scanId, { complete: false, verdict: "INCOMPLETE", reason: "cursor_loop" });
    expect(await ledger.scanRecord(begun.scanId)).toMatchObject({
      verdict: "INCOMPLETE",
      reason: "cursor_loop",
      notificationsObserved: 1,
    });
  });

  test("a subscription's says whose it is, how it stands and what fences it (U1, F1)", async () => {
    const { session, source, id } = await readResource();
    const record = await ledger.subscriptionRecord(id);
    expect(record).toMatchObject({
      source,
      subject: "svc:rag",
      server: SERVER,
      uri: URI,
      sessionId: session.sessionId,
      generation: 1,
      state: "VERSION_ACCEPTED",
      mode: "pushed",
      endedAt: null,
      issuedOrdinal: 1,
      acceptedOrdinal: 1,
      lastAcceptedDigest: digest("price=100").toString("hex"),
      closeOrdinal: null,
    });
    expectToFitItsJsonSchema(record);
    await ledger.recordNotifications(session, [URI]);
    expect(await ledger.subscriptionRecord(id)).toMatchObject({ state: "UPDATE_SEEN", notificationNumber: 1 });
    const capability = await ledger.capabilityRecord(record?.capabilityReceiptId as number);
    expectToFitItsJsonSchema(capability);
    expect(capability).toMatchObject({ era: "modern", server: SERVER, subscribe: true, snapshotId: false, source });
    expect(await ledger.subscriptionRecord(10 ** 9)).toBeUndefined();
  });

  test("a subscription's says when its generation began and when it ended (U7)", async () => {
    const { session, id } = await readResource();
    const begun = (await ledger.subscriptionRecord(id))?.startedAt;
    await ledger.advanceClock(60_000);
    await ledger.beginUnsubscribe(session, [URI]);
    expect(await ledger.subscriptionRecord(id)).toMatchObject({
      state: "UNSUBSCRIBING",
      startedAt: begun,
      endedAt: null,
    });
    await ledger.settleUnsubscribe(session, [id], "acknowledged");
    const closed = await ledger.subscriptionRecord(id);
    expect(closed).toMatchObject({ state: "CLOSED", startedAt: begun, closeOrdinal: 1 });
    expect(Date.parse(closed?.endedAt as string)).toBe(Date.parse(begun as string) + 60_000);
  });

  test("a version's holds its lineage and what was found in it, and no digest any more after a purge (F2, §5, P8)", async () => {
    const { source, id, read, lineageId } = await readResource();
    const index = await createIndex(ledger);
    expect(await ledger.versionRecord(lineageId)).toMatchObject({
      lineageId: `${id}.1`,
      readId: read.requestId,
      policyEpoch: 0,
      uri: URI,
      mimeType: "text/plain",
      contentDigest: digest("price=100").toString("hex"),
      readOrdinal: 1,
      server: SERVER,
    });
    expectToFitItsJsonSchema(await ledger.versionRecord(lineageId));
    expect(await ledger.versionRecord(lineageId)).toMatchObject({ findings: [] });
    const finding: ContentFinding = { uri: URI, code: "detector", action: "flag", count: 2, detector: "orders" };
    const work = { subscriptionId: id, ordinal: 1 };
    await ledger.recordFindings([{ work, findings: [{ ...finding, count: 1 }] }]);
    await ledger.recordFindings([
      { work, findings: [finding] },
      { work: { subscriptionId: 1_000_000_000, ordinal: 1 }, findings: [finding] },
    ]);
    expect(await ledger.versionRecord(lineageId)).toMatchObject({ findings: [finding] });
    expectToFitItsJsonSchema(await ledger.versionRecord(lineageId));
    await indexDue(ledger, index, source);
    const { revocationId } = await ledger.revoke({ source, subject: "svc:rag", reason: "test" });
    await advance(ledger, revocationId);
    await purge(ledger, index);
    expect(await ledger.versionRecord(lineageId)).toMatchObject({ contentDigest: null });
    expect(await ledger.subscriptionRecord(id)).toMatchObject({ lastAcceptedDigest: null });
    for (const nothing of ["1000000000.1", "7", "", "x".repeat(500)].filter((text) => text !== "")) {
      expect(await ledger.versionRecord(nothing)).toBeUndefined();
    }
  });

  test("an entry's names its parents; a revocation's and its purge receipts' tell what became of it (L1, P1, P3)", async () => {
    const { source, lineageId } = await readResource();
    const index = await createIndex(ledger);
    await indexDue(ledger, index, source);
    const [entryId] = [...index.entries.keys()] as [string];
    expect(await ledger.entryRecord(entryId)).toMatchObject({
      entryId,
      kind: "chunk",
      index: index.ref.name,
      store: index.ref.store,
      parents: [{ as: "alternative", ingredient: 0, of: { lineageId } }],
      audience: null,
      state: "PRESENT",
    });
    expect(await ledger.entryRecord(randomUUID())).toBeUndefined();

    const answers = await createDerivedIndex(ledger);
    const parents = [
      { as: "ingredient" as const, of: { lineageId } },
      { as: "ingredient" as const, of: { entryId } },
    ];
    const [digests, audience] = [[ledger.digestChunk("cheap")], "user:alice"];
    await ledger.grant({ source, reader: "svc:rag", audience, scope: { everything: true } });
    const made = await derive(ledger, answers, { kind: "answer", parents, digests, audience }, "cheap");
    expectToFitItsJsonSchema(await ledger.entryRecord(made));
    expect(await ledger.entryRecord(made)).toMatchObject({
      kind: "answer",
      index: answers.ref.name,
      parents: [
        { as: "ingredient", ingredient: 0, of: { lineageId } },
        { as: "ingredient", ingredient: 1, of: { entryId } },
      ],
      audience,
      state: "PRESENT",
    });

    const scope = { prefix: "catalog://plans/" };
    const { revocationId } = await ledger.revoke({ source, subject: "svc:rag", role: "reader", scope, reason: "left" });
    expect(await ledger.revocationRecord(revocationId)).toMatchObject({ state: "EFFECTIVE", scope, liftedAt: null });
    await advance(ledger, revocationId);
    await purge(ledger, index);
    await purge(ledger, answers);
    expect(await ledger.revocationRecord(revocationId)).toMatchObject({
      state: "COMPLETE",
      role: "reader",
      covered: { resources: 1, entries: 2 },
    });
    const [receipt] = await ledger.purgeReceipts(revocationId);
    expect(await ledger.purgeRecord(receipt?.purgeReceiptId as number)).toMatchObject({
      revocationId,
      store: index.ref.store,
      entries: 1,
      remaining: 0,
      claim: "absent",
    });
    await ledger.lift(revocationId);
    const lifted = await ledger.revocationRecord(revocationId);
    expect(lifted).toMatchObject({ state: "LIFTED" });
    expectToFitItsJsonSchema(lifted);
    expectToFitItsJsonSchema(await ledger.purgeRecord(receipt?.purgeReceiptId as number));
  });
});

describeWholeLedger("the feed of receipts", (ledger) => {
  /** The feed shows what was committed once every older transaction of the cluster, another test's too, has ended. */
  async function shown(): Promise<void> {
    const [now] = await ledger.sql<{ xid: string }>("select pg_current_xact_id()::text as xid");
    await vi.waitFor(
      async () => {
        const text = "select pg_snapshot_xmin(pg_current_snapshot()) > $1::text::xid8 as shown";
        expect(await ledger.sql(text, [now?.xid])).toEqual([{ shown: true }]);
      },
      { timeout: 20_000, interval: 20 },
    );
  }

  async function everything(source: string, limit = 1_000) {
    await shown();
    const found = [];
    for (let after: string | undefined; ; ) {
      const page = await ledger.receipts({ limit, ...(after !== undefined && { after }) });
      found.push(...page.receipts.filter((receipt) => receipt.source === source));
      if (page.receipts.length === 0) return found;
      after = page.next as string;
    }
  }

  test("tells of versions, of losers, of closes and of deletions, in order, a page at a time (F3, F4, U7, U8, F7)", async () => {
    const { session, source, ids } = await activeSource(ledger, [URI]);
    const [first] = await ledger.issueReads(session, { uris: [URI], reason: "demand", leaseMs: 1 });
    if (first === undefined) return expect.fail("no read was issued");
    await ledger.advanceClock(10);
    await readNow(ledger, session, [URI], () => "price=120");
    await ledger.acceptResourceVersions(session, [answer(first, "price=100")]);
    await ledger.acceptResourceVersions(session, [answer({ ...first, ordinal: 99 }, "never asked")]);
    const [gone] = await ledger.issueReads(session, { uris: [URI], reason: "demand", leaseMs: READ_LEASE_MS });
    await ledger.settleReads(session, [
      { ...(gone as NonNullable<typeof gone>), as: "not_found", message: "price=100" },
    ]);
    await ledger.beginUnsubscribe(session, [URI]);
    await ledger.settleUnsubscribe(session, [ids[0] as number], "acknowledged");
    await ledger.settleReads(session, [{ ...(gone as NonNullable<typeof gone>), as: "lost" }]);

    const found = await everything(source);
    expect(
      found.map((receipt) => [
        receipt.record,
        "verdict" in receipt ? receipt.verdict : "state" in receipt ? receipt.state : receipt.lineageId,
      ]),
    ).toEqual([
      ["versionReceipt.v1", `${ids[0]}.2`],
      ["staleReceipt.v1", "STALE"],
      ["staleReceipt.v1", "NOT_ISSUED"],
      ["tombstoneReceipt.v1", "PENDING"],
      ["closeReceipt.v1", "UNSUBSCRIBING"],
      ["closeReceipt.v1", "CLOSED"],
      ["staleReceipt.v1", "NOT_ISSUED"],
    ]);
    expect(await everything(source, 1)).toEqual(found);
    for (const receipt of found) {
      expect(parseRecord(JSON.parse(JSON.stringify(receipt)))).toEqual(receipt);
      expectToFitItsJsonSchema(receipt);
    }
    expect(JSON.stringify(found)).not.toContain("price");
    expect(found[4]).toMatchObject({ event: "unsubscribe_begun", closeOrdinal: 3, generation: 1, closeEpoch: 0 });
    const closes = await ledger.receipts({ limit: 1_000, kinds: ["closeReceipt.v1"] });
    expect(new Set(closes.receipts.map(({ record }) => record))).toEqual(new Set(["closeReceipt.v1"]));
  });

  test("shows no subscription of another source to an answer that names it (F11)", async () => {
    const victim = await activeSource(ledger, ["catalog://secret"]);
    const other = await openSession(ledger);
    const [id] = victim.ids as [number];
    const read = {
      subscriptionId: id,
      ordinal: 1,
      requestId: randomUUID(),
      uri: URI,
      generation: 1,
      reason: "demand" as const,
    };
    await ledger.acceptResourceVersions(other, [answer(read, "x")]);
    expect(await everything(other.source)).toMatchObject([{ verdict: "NOT_ISSUED", uri: null, source: other.source }]);
  });

  test("goes on where it was, and refuses a cursor that is none or of before a restore", async () => {
    await shown();
    const { next } = await ledger.receipts({ limit: 1_000 });
    expect(await ledger.receipts({ limit: 10, after: next as string })).toEqual({ receipts: [], next });
    const { session, source } = await activeSource(ledger, [URI]);
    await readNow(ledger, session, [URI], () => "1");
    await shown();
    const { receipts } = await ledger.receipts({ limit: 10, after: next as string });
    expect(receipts).toMatchObject([{ record: "versionReceipt.v1", source }]);
    for (const after of ["x", `2${next}`, "1.t1", "'; drop table x; --"]) {
      await expect(ledger.receipts({ limit: 1, after })).rejects.toMatchObject({ code: "cursor_unknown" });
    }
  });

  test("refuses a cursor of a cluster that was further on, and would skip what is written here until this one is there", async () => {
    const after = "1.t9000000000000.1";
    await expect(ledger.receipts({ limit: 1, after })).rejects.toMatchObject({ code: "cursor_unknown" });
  });

  test("begins with what a restore brought from a cluster that was further on, and then goes on with its own", async () => {
    const { session, source } = await activeSource(ledger, [URI]);
    await readNow(ledger, session, [URI], () => "1");
    await ledger.sql(
      "update fenceline.receipt set xid = '9000000000000' where receipt_id = (select max(receipt_id) from fenceline.receipt)",
    );
    await readNow(ledger, session, [URI], () => "2");
    const found = await everything(source, 1);
    expect(found.map(({ record }) => record)).toEqual(["versionReceipt.v1", "versionReceipt.v1"]);
    await ledger.sql("update fenceline.receipt set xid = '5' where xid = '9000000000000'");
  });
});
