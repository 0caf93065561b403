import { expect, test, vi } from "vitest";
import { areasOver } from "./ledger-under-test.js";
import { activeSource, describeWholeLedgerOnPostgres, readNow } from "./whole-ledger.js";

const SLOW = "catalog://plans/slow";
const FAST = "catalog://plans/fast";

describeWholeLedgerOnPostgres("the feed of receipts beside slow transactions", (ledger) => {
  /** Resolves when every transaction of the cluster that is open now has ended. */
  async function settled(): Promise<void> {
    const [now] = await ledger.sql<{ xid: string }>("select pg_current_xact_id()::text as xid");
    await vi.waitFor(
      async () => {
        const text = "select pg_snapshot_xmin(pg_current_snapshot()) > $1::text::xid8 as settled";
        expect(await ledger.sql(text, [now?.xid])).toEqual([{ settled: true }]);
      },
      { timeout: 20_000, interval: 20 },
    );
  }

  /** What a reader gets that goes on from its cursor until nothing comes. */
  async function readOn(from: string | undefined): Promise<{ uris: (string | null)[]; next: string | undefined }> {
    const uris: (string | null)[] = [];
    for (let next = from; ; ) {
      const page = await ledger.receipts({ limit: 1, ...(next !== undefined && { after: next }) });
      uris.push(...page.receipts.map(({ uri }) => uri));
      next = page.next;
      if (page.receipts.length === 0) return { uris, next };
    }
  }

  test("an older transaction that commits last is not skipped, though its receipts have lower ids (outbox rule 11)", async () => {
    const { session } = await activeSource(ledger, [SLOW, FAST]);
    await settled();
    const before = await readOn(undefined);

    let commit = () => {};
    const mayCommit = new Promise<void>((resolve) => {
      commit = resolve;
    });
    let wrote = () => {};
    const slowWrote = new Promise<void>((resolve) => {
      wrote = resolve;
    });
    const slow = ledger.database.transaction(async (transaction) => {
      await readNow(areasOver(transaction, ledger.schema), session, [SLOW], () => "slow");
      wrote();
      await mayCommit;
    });
    await Promise.race([slowWrote, slow]);
    await readNow(ledger, session, [FAST], () => "fast");
    const [ids] = await ledger.sql<{ highest: number }>("select max(receipt_id) as highest from fenceline.receipt");

    // The fast one is committed and has the higher id; a checkpoint by highest id would pass the slow one here.
    const meanwhile = await readOn(before.next);
    commit();
    await slow;
    expect(meanwhile).toEqual({ uris: [], next: before.next });
    await settled();
    const after = await readOn(meanwhile.next);
    expect(after.uris).toEqual([SLOW, FAST]);
    expect(Number(after.next?.split(".").at(-1))).toBe(ids?.highest);
  });

  test("a transaction that began earlier and wrote later comes where its own place is, once (outbox rule 11)", async () => {
    const { session } = await activeSource(ledger, [SLOW, FAST]);
    await settled();
    const before = await readOn(undefined);
    let write = () => {};
    const mayWrite = new Promise<void>((resolve) => {
      write = resolve;
    });
    let began = () => {};
    const slowBegan = new Promise<void>((resolve) => {
      began = resolve;
    });
    const slow = ledger.database.transaction(async (transaction) => {
      await transaction.query("select pg_current_xact_id()");
      began();
      await mayWrite;
      await readNow(areasOver(transaction, ledger.schema), session, [SLOW], () => "slow");
    });
    await Promise.race([slowBegan, slow]);
    await readNow(ledger, session, [FAST], () => "fast");
    const meanwhile = await readOn(before.next);
    write();
    await slow;
    expect(meanwhile.uris).toEqual([]);
    await settled();
    expect((await readOn(before.next)).uris).toEqual([SLOW, FAST]);
  });
});
