import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describeWithPostgres } from "@fenceline/test-services";
import pg from "pg";
import { describe, expect, test, vi } from "vitest";
import { type Ledger, openLedger, type Wake } from "#src/ledger.js";

describe("a ledger in a directory", () => {
  test("opens, keeps what was written, and announces to itself", async () => {
    const directory = await mkdtemp(join(tmpdir(), "fenceline-ledger-"));
    try {
      const ledger = await openLedger(`file:${directory}`);
      expect(ledger).toMatchObject({ schema: "fenceline", address: `file:${directory}` });
      await ledger.registerSource({ name: "catalog" });
      await announcesRevocations(ledger);
      await ledger.close();
      const again = await openLedger(`file:${directory}`);
      expect(await again.listRevocations()).toHaveLength(1);
      await again.close();
      await again.close();
      await expect(again.status()).rejects.toMatchObject({ code: "ledger_closed" });
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });
});

describeWithPostgres("a ledger on PostgreSQL", (url) => {
  const schema = `fenceline_test_${randomUUID().slice(0, 8)}`;

  test("lives in the schema it was given, beside others, over a pool that stays the caller's", async () => {
    const pool = new pg.Pool({ connectionString: url, max: 3 });
    const ledger = await openLedger(pool, { schema });
    try {
      await ledger.registerSource({ name: "catalog" });
      await announcesRevocations(ledger);
      expect((await ledger.verify()).every(({ broken }) => broken === 0)).toBe(true);
    } finally {
      await ledger.close();
      await pool.query(`drop schema ${schema} cascade`);
      await pool.end();
    }
  });

  test("a pool whose transactions see older snapshots than the fence's is refused; our own pool is set right (P2)", async () => {
    const options = "-c default_transaction_isolation=repeatable\\ read";
    const pool = new pg.Pool({ connectionString: url, max: 2, options });
    const ledgers = [];
    try {
      await expect(openLedger(pool, { schema })).rejects.toMatchObject({ code: "session_unsuitable" });
      const own = await openLedger(`${url}?options=${encodeURIComponent(options)}`, { schema });
      ledgers.push(own);
      await own.registerSource({ name: "catalog" });
      expect(await own.revoke({ source: "catalog", subject: "user:alice", reason: "left" })).toMatchObject({
        state: "EFFECTIVE",
      });
    } finally {
      for (const ledger of ledgers) await ledger.close();
      await pool.query(`drop schema if exists ${schema} cascade`);
      await pool.end();
    }
  });

  test("a schema that is no plain identifier is refused, and nothing stays open", async () => {
    await expect(openLedger(url, { schema: "a b" })).rejects.toMatchObject({ code: "schema_invalid_name" });
  });
});

/** A revocation and a wake of another process reach whoever listens; what is no wake is left aside. */
async function announcesRevocations(ledger: Ledger): Promise<void> {
  const wakes: Wake[] = [];
  const listening = await ledger.onWake((wake) => wakes.push(wake));
  const { revocationId } = await ledger.revoke({ source: "catalog", subject: "user:alice", reason: "left" });
  const others = ["no wake", "null", { kind: "later" }, { kind: "revocation", revocationId: "1" }, { kind: "index" }];
  await ledger.database.query("select pg_notify($1, p) from unnest($2::text[]) p", [
    `${ledger.schema}.wake`,
    others.map((other) => (typeof other === "string" ? other : JSON.stringify(other))),
  ]);
  await ledger.announce({ kind: "index", index: "main" });
  await vi.waitFor(() =>
    expect(wakes).toEqual([
      { kind: "revocation", revocationId },
      { kind: "index", index: "main" },
    ]),
  );
  await listening.close();
}
