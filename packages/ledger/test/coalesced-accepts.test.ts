import { expect, test } from "vitest";
import { activate, answer, describeLedger, openSession, READ_LEASE_MS } from "./ledger-under-test.js";

const COUNT = 60;
const uris = Array.from({ length: COUNT }, (_, index) => `catalog://plans/${index}`);

describeLedger("callers that accept at once", (ledger) => {
  async function issued() {
    const session = await openSession(ledger);
    await activate(ledger, session, uris, "polled");
    const reads = await ledger.issueDueReads(session, { limit: COUNT, leaseMs: READ_LEASE_MS });
    expect(reads).toHaveLength(COUNT);
    return { session, reads };
  }

  test("each gets the outcome of its own answer (F3, F4)", async () => {
    const { session, reads } = await issued();
    const answers = reads.map((read, index) =>
      index % 3 === 1 ? { ...answer(read, "v1"), ordinal: 7 } : answer(read, `v1 of ${read.uri}`),
    );
    const outcomes = await Promise.all(answers.map((one) => ledger.acceptResourceVersions(session, [one])));
    expect(outcomes).toEqual(
      answers.map(({ subscriptionId, ordinal }, index) => [
        index % 3 === 1
          ? { subscriptionId, ordinal, outcome: "not_issued" }
          : { subscriptionId, ordinal, outcome: "accepted", lineageId: expect.any(String) },
      ]),
    );
  });

  test("of two answers to one read one is accepted and the other is stale (F3)", async () => {
    const { session, reads } = await issued();
    const twice = reads.flatMap((read) => [answer(read, "v1"), answer(read, "v1")]);
    const outcomes = await Promise.all(twice.map((one) => ledger.acceptResourceVersions(session, [one])));
    const kinds = outcomes.flat().map(({ outcome }) => outcome);
    expect(kinds.filter((kind) => kind === "accepted")).toHaveLength(COUNT);
    expect(kinds.filter((kind) => kind === "stale")).toHaveLength(COUNT);
  });

  test("what the database refuses of one fails that one alone", async () => {
    const { session, reads } = await issued();
    await ledger.sql("alter table fenceline.body add constraint not_poison check (text <> 'poison')");
    try {
      const settled = await Promise.allSettled(
        reads.map((read, index) =>
          ledger.acceptResourceVersions(session, [answer(read, index === 30 ? "poison" : "fine")]),
        ),
      );
      expect(settled.map(({ status }) => status)).toEqual(
        reads.map((_, index) => (index === 30 ? "rejected" : "fulfilled")),
      );
      expect(settled[30]).toMatchObject({ reason: { code: "statement_failed" } });
      const versions = await ledger.sql(
        "select 1 from fenceline.resource_version v join fenceline.subscription s using (subscription_id) where s.scope_id = $1",
        [session.scopeId],
      );
      expect(versions).toHaveLength(COUNT - 1);
    } finally {
      await ledger.sql("alter table fenceline.body drop constraint not_poison");
    }
  });
});
