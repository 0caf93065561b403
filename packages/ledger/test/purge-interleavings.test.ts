import { expect, test } from "vitest";
import { scan } from "./ledger-under-test.js";
import { overlapping } from "./overlapping.js";
import {
  activeSource,
  advance,
  createIndex,
  describeWholeLedgerOnPostgres,
  indexDue,
  purge,
  readNow,
} from "./whole-ledger.js";

const URI = "catalog://plans/basic";

describeWholeLedgerOnPostgres("interleavings of what nobody looks at again", (ledger) => {
  test("a revocation that comes to wait for a group while its purge is confirmed is completed by that purge (P3, P5)", async () => {
    const { session, source } = await activeSource(ledger, [URI]);
    const index = await createIndex(ledger);
    for (const text of ["superseded", ""]) {
      await readNow(ledger, session, [URI], () => text);
      await indexDue(ledger, index, source);
    }
    const claims = await ledger.claimPurge({ store: index.ref.store, limit: 100, leaseMs: 10_000 });
    expect(claims).toHaveLength(1);
    const { revocationId } = await ledger.revoke({ source, subject: "svc:rag", reason: "r" });
    const [, , waited] = await overlapping(
      ledger,
      async (first) => {
        while ((await first.advanceRevocation(revocationId)) === "more");
      },
      () => ledger.confirmPurge(index.ref.store, claims, { claim: "absent" }),
    );
    expect(waited).toBe(true);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE" });
    await advance(ledger, revocationId);
    expect(await purge(ledger, index)).toBe(0);
  });

  test("a publication that waits for a list_changed starts over, and the review stays due (S4, S9)", async () => {
    const { session } = await activeSource(ledger, [URI]);
    const [first, second] = [await scan(ledger, session, [URI]), await scan(ledger, session, [URI])];
    const [, published, waited] = await overlapping(
      ledger,
      (areas) => areas.recordListChanged(session),
      () => ledger.publishCatalog(session, { first, second }),
    );
    expect(waited).toBe(true);
    expect(published).toEqual({ outcome: "list_changed" });
    expect(
      await ledger.sql(
        "select next_review_at <= fenceline.now() as due from fenceline.policy_scope where scope_id = $1",
        [session.scopeId],
      ),
    ).toEqual([{ due: true }]);
  });
});
