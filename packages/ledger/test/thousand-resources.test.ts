import { expect, test } from "vitest";
import { answer, describeLedger, openSession, READ_LEASE_MS, scan } from "./ledger-under-test.js";

const RESOURCES = 1_000;
const BATCH = 100;

describeLedger("a thousand resources", (ledger) => {
  test("go from the scan to accepted versions in batches of at most a hundred", { timeout: 120_000 }, async () => {
    const session = await openSession(ledger);
    const uris = Array.from({ length: RESOURCES }, (_, number) => `catalog://region-${number % 10}/plans/${number}`);
    const took: Record<string, number> = {};
    const timed = async <T>(step: string, run: () => Promise<T>): Promise<T> => {
      const start = performance.now();
      const value = await run();
      took[step] = Math.round(performance.now() - start);
      return value;
    };

    const [first, second] = await timed("two scans", async () => [
      await scan(ledger, session, uris, BATCH),
      await scan(ledger, session, uris, BATCH),
    ]);
    const published = await timed("publish", () =>
      ledger.publishCatalog(session, { first: first as number, second: second as number }),
    );
    expect(published).toMatchObject({ outcome: "published", discovered: RESOURCES });
    await timed("activate", async () => {
      await ledger.openStream(session, 0);
      for (let after = 0; ; ) {
        const refs = await ledger.subscriptionsToOpen(session, { limit: BATCH, afterId: after });
        if (refs.length === 0) break;
        const ids = refs.map((ref) => ref.subscriptionId);
        await ledger.activateSubscriptions(session, { shard: 0, pushed: ids, polled: [] });
        after = ids.at(-1) as number;
      }
    });
    await ledger.database.analyze();
    const read = async (text: string) => {
      let accepted = 0;
      for (;;) {
        const reads = await ledger.issueDueReads(session, { limit: BATCH, leaseMs: READ_LEASE_MS });
        if (reads.length === 0) return accepted;
        const outcomes = await ledger.acceptResourceVersions(
          session,
          reads.map((issued) => answer(issued, `${text} ${issued.uri}`)),
        );
        accepted += outcomes.filter(({ outcome }) => outcome === "accepted").length;
      }
    };
    expect(await timed("issue and accept", () => read("v1"))).toBe(RESOURCES);
    await timed("notify", () => ledger.recordNotifications(session, uris, { windowMs: 0 }));
    expect(await timed("issue and accept again", () => read("v2"))).toBe(RESOURCES);
    const steps = Object.entries(took).map(([step, ms]) => `${step} ${ms} ms`);
    console.log(`${RESOURCES} resources on ${ledger.database.kind}: ${steps.join(", ")}`);
  });
});
