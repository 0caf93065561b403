import { createHash, randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { READ_LEASE_MS } from "./ledger-under-test.js";
import {
  activeSource,
  advance,
  claimWork,
  createIndex,
  describeWholeLedger,
  indexDue,
  purge,
  readNow,
  writeVersion,
} from "./whole-ledger.js";

const URI = "catalog://plans/basic";
const CANARY = "canary-7f3a: the price is 100";

describeWholeLedger("after a reader's revocation and its purge", (ledger) => {
  test("no table holds the content, its digest, or the digest of its answer (P3, P8)", () =>
    nothingIsLeft(async (source) => (await ledger.revoke({ source, subject: "svc:rag", reason: "r" })).revocationId));

  test("nor after one that was asked for in SQL, lifted, and given again (P3, P8)", () =>
    nothingIsLeft(async (source) => {
      const revoke = async () => {
        const [row] = await ledger.sql<{ revocation_id: number }>(
          "select * from fenceline.fenceline_revoke(request_id => $1, subject => 'svc:rag', reason => 'r', source => $2)",
          [randomUUID(), source],
        );
        return row?.revocation_id as number;
      };
      const first = await revoke();
      await advance(ledger, first);
      await ledger.sql("select fenceline.fenceline_lift($1)", [first]);
      await advance(ledger, first);
      return revoke();
    }));

  async function nothingIsLeft(revoke: (source: string) => Promise<number>): Promise<void> {
    const { session, source } = await activeSource(ledger, [URI]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [URI], () => CANARY);
    await indexDue(ledger, index, source);
    await readNow(ledger, session, [URI], () => `${CANARY}\nsecond version`);
    const [work] = await claimWork(ledger, index, source);
    if (!work) return expect.fail("nothing waits to be indexed");
    await writeVersion(ledger, index, work);
    const late = await ledger.issueReads(session, { uris: [URI], reason: "demand", leaseMs: READ_LEASE_MS });
    expect(await tablesHolding(CANARY)).toContain("body");
    expect(await tablesHolding(answerDigest())).toContain("resource_version");

    const revocationId = await revoke(source);
    await advance(ledger, revocationId);
    const parts = [{ uri: URI, text: CANARY }];
    await ledger.acceptResourceVersions(
      session,
      late.map((read) => ({ ...read, digest: Buffer.from(answerDigest(), "hex"), parts })),
    );
    await ledger.advanceClock(60_000);
    await purge(ledger, index);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE" });
    expect([...index.entries]).toEqual([]);
    for (const trace of [CANARY, answerDigest(), createHash("sha256").update(CANARY).digest("hex")]) {
      expect(await tablesHolding(trace), trace).toEqual([]);
    }
  }

  /** As `readNow` makes it. */
  function answerDigest(): string {
    return Buffer.from(JSON.stringify(CANARY).padEnd(32).slice(0, 32)).toString("hex");
  }

  async function tablesHolding(text: string): Promise<string[]> {
    const tables = await ledger.sql<{ name: string }>(
      "select table_name as name from information_schema.tables where table_schema = $1 order by table_name",
      [ledger.schema],
    );
    expect(tables.length).toBeGreaterThan(20);
    const holding: string[] = [];
    for (const { name } of tables) {
      const rows = await ledger.sql(`select 1 from fenceline.${name} t where strpos(t::text, $1) > 0 limit 1`, [text]);
      if (rows.length > 0) holding.push(name);
    }
    return holding;
  }
});
