import { expect, test } from "vitest";
import type { Session } from "#src/sessions.js";
import {
  activate,
  answer,
  describeLedger,
  type LedgerUnderTest,
  openSession,
  READ_LEASE_MS,
} from "./ledger-under-test.js";

/** More than two batches of what is put off at once. */
const RESOURCES = 1_200;
const uris = Array.from({ length: RESOURCES }, (_, number) => `catalog://plans/${number}`);

/** Polled resources, each in flight with one lease. */
async function allInFlight(ledger: LedgerUnderTest, leaseMs: number) {
  const session = await openSession(ledger);
  await activate(ledger, session, uris, "polled");
  const reads = await ledger.issueDueReads(session, { limit: RESOURCES, leaseMs });
  expect(reads).toHaveLength(RESOURCES);
  return { session, reads };
}

/** The most rows of the scope that one transaction wrote last. */
async function widestTransaction(ledger: LedgerUnderTest, session: Session): Promise<number> {
  const [row] = await ledger.sql<{ rows: number }>(
    `select count(*)::int as rows from fenceline.subscription where scope_id = $1 group by xmin order by rows desc limit 1`,
    [session.scopeId],
  );
  return row?.rows ?? 0;
}

describeLedger("looking for what is due", (ledger) => {
  test("the next read is found behind more than a batch of reads in flight that end at one time (U5)", async () => {
    const { session, reads } = await allInFlight(ledger, 10_000);
    await ledger.acceptResourceVersions(
      session,
      reads.slice(-10).map((read) => answer(read, "v1")),
    );
    expect(await ledger.millisecondsToNextRead(session)).toBe(10_000);
  });

  test("what is due is found behind any number that is not, and none of the looks holds the fence for all of them (U6, P2)", async () => {
    const { session, reads } = await allInFlight(ledger, READ_LEASE_MS);
    for (let from = 0; from < RESOURCES; from += 400) {
      await ledger.acceptResourceVersions(
        session,
        reads.slice(from, from + 400).map((read) => answer(read, "v1")),
      );
    }
    // Accepted ones are looked at before they are due.
    await ledger.advanceClock(20_000);
    await ledger.recordNotifications(session, [uris[7] as string], { windowMs: 0 });
    const [due, ...others] = await ledger.issueDueReads(session, { limit: 10, leaseMs: READ_LEASE_MS });
    expect([due?.uri, others]).toEqual([uris[7], []]);
    expect(await widestTransaction(ledger, session)).toBeLessThanOrEqual(500);
    expect(await ledger.issueDueReads(session, { limit: 10, leaseMs: READ_LEASE_MS })).toEqual([]);
    expect(await ledger.millisecondsToNextRead(session)).toBe(30_000);
    await ledger.advanceClock(40_000);
    expect(await ledger.issueDueReads(session, { limit: RESOURCES, leaseMs: READ_LEASE_MS })).toHaveLength(RESOURCES);
  });
});
