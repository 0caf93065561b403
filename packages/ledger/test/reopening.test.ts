import { expect, test } from "vitest";
import type { SettledAs } from "#src/reads.js";
import type { Session } from "#src/sessions.js";
import {
  activate,
  digest,
  publish,
  READ_LEASE_MS,
  readDue,
  type SubscriptionRow,
  subscriptionRow,
} from "./ledger-under-test.js";
import {
  activeSource,
  advance,
  brokenInvariants,
  createIndex,
  describeWholeLedger,
  indexDue,
  readNow,
  seen,
} from "./whole-ledger.js";

const URI = "catalog://plans/basic";
const OTHER = "catalog://plans/other";
const READER = ["svc:rag"];

/** What a subscription was hidden for when it was closed must neither stick to it nor be forgotten when it is opened again. */
describeWholeLedger("reopening what was hidden", (ledger) => {
  test("a deleted resource that was revoked, lifted and is listed again is read and served (F7, P2)", async () => {
    const { session, source, index } = await deleted();
    const { revocationId } = await ledger.revoke({ source, subject: "svc:rag", scope: { uri: URI }, reason: "r" });
    await advance(ledger, revocationId);
    await ledger.lift(revocationId);
    await servedAgain(session, index);
  });

  test("a deleted resource that was unsubscribed and is listed again is read and served (F7, §3)", async () => {
    const { session, index } = await deleted();
    await publish(ledger, session, [OTHER]);
    await unsubscribe(session);
    await servedAgain(session, index);
  });

  test("a lift leaves what is to be reconciled unserved, until a settled scan clears it (F10, P2)", async () => {
    const { session, source } = await activeSource(ledger, [URI, OTHER]);
    await readNow(ledger, session, [URI], () => "one");
    await publishTwoSpellings(session);
    const { revocationId } = await ledger.revoke({ source, subject: "svc:rag", scope: { uri: URI }, reason: "r" });
    await advance(ledger, revocationId);
    expect(await row(session)).toMatchObject({ lifecycle: "CLOSED" });
    await ledger.lift(revocationId);
    expect(await row(session)).toMatchObject({ lifecycle: "RECONCILIATION_REQUIRED", due_in_ms: null });
    expect(await ledger.subscriptionsToOpen(session, { limit: 10 })).toEqual([]);
    await publish(ledger, session, [URI, OTHER]);
    expect(await row(session)).toMatchObject({ lifecycle: "ACTIVE" });
  });

  test("what was closed and is listed again in two spellings that differ stays closed until they agree (F10, §3)", async () => {
    const { session } = await activeSource(ledger, [URI, OTHER]);
    await unsubscribe(session);
    await publish(ledger, session, [OTHER]);
    await publishTwoSpellings(session);
    expect(await row(session)).toMatchObject({ lifecycle: "CLOSED" });
    await publish(ledger, session, [URI, OTHER]);
    expect(await row(session)).toMatchObject({ lifecycle: "SUBSCRIBING", generation: 2 });
  });

  test("what was hidden when an index was registered is indexed when it is shown again unchanged (F6, P7)", async () => {
    const { session, source } = await activeSource(ledger, [URI]);
    await readNow(ledger, session, [URI], () => "one");
    await settle(session, "forbidden");
    const index = await createIndex(ledger);
    expect(await readNow(ledger, session, [URI], () => "one")).toEqual(["unchanged"]);
    await indexDue(ledger, index, source);
    expect(await seen(ledger, index, READER)).toEqual(["one"]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  async function settle(session: Session, as: SettledAs) {
    const reads = await ledger.issueReads(session, { uris: [URI], reason: "demand", leaseMs: READ_LEASE_MS });
    const [settled] = await ledger.settleReads(
      session,
      reads.map((read) => ({ ...read, as })),
    );
    return settled?.outcome;
  }

  async function deleted() {
    const { session, source } = await activeSource(ledger, [URI, OTHER]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [URI], () => "before");
    await indexDue(ledger, index, source);
    expect(await settle(session, "not_found")).toBe("tombstone_pending");
    await ledger.advanceClock(60_000);
    expect(await settle(session, "not_found")).toBe("tombstoned");
    return { session, source, index };
  }

  async function servedAgain(session: Session, index: Awaited<ReturnType<typeof createIndex>>) {
    await activate(ledger, session, [URI, OTHER]);
    expect(await readDue(ledger, session, (uri) => `${uri} again`)).toBe(2);
    await indexDue(ledger, index, session.source);
    expect(await seen(ledger, index, READER)).toEqual([`${URI} again`, `${OTHER} again`]);
    expect(await brokenInvariants(ledger)).toEqual([]);
  }

  async function unsubscribe(session: Session) {
    const closing = await ledger.beginUnsubscribe(session, [URI]);
    const ids = closing.map(({ subscriptionId }) => subscriptionId);
    expect(ids).toHaveLength(1);
    await ledger.settleUnsubscribe(session, ids, "acknowledged");
  }

  async function publishTwoSpellings(session: Session) {
    const scanned = async () => {
      const begun = await ledger.beginScan(session);
      if (typeof begun === "string") return expect.fail(begun);
      const entries = [
        { uri: URI, name: "one", descriptorDigest: digest("one") },
        { uri: URI.replace("basic", "%62asic"), name: "another", descriptorDigest: digest("another") },
        { uri: OTHER, descriptorDigest: digest("other") },
      ];
      await ledger.recordScanPage(session, begun.scanId, { cursorDigest: digest("first page"), entries });
      await ledger.finishScan(session, begun.scanId, { complete: true });
      return begun.scanId;
    };
    const [first, second] = [await scanned(), await scanned()];
    expect(await ledger.publishCatalog(session, { first, second })).toMatchObject({ outcome: "published" });
  }

  async function row(session: Session): Promise<SubscriptionRow> {
    const [found] = await ledger.sql<{ id: number }>(
      `select s.subscription_id as id from fenceline.subscription s join fenceline.resource r using (resource_id)
       where s.scope_id = $1 and r.resource_key = $2`,
      [session.scopeId, URI],
    );
    return subscriptionRow(ledger, found?.id as number);
  }
});
