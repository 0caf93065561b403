import { createHash, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { describeWithPostgres } from "@fenceline/test-services";
import { describe, expect, test } from "vitest";
import { readSchemaFiles } from "#src/database/migration-files.js";
import { migrate } from "#src/database/migrations.js";
import { type Ledger, openLedger } from "#src/ledger.js";
import { queryableInSchema } from "#src/ledger-schema.js";
import { databaseDirectory, open } from "./database-process.js";

const RELEASED = readFileSync(new URL("./upgrade/ledger-0001.sql", import.meta.url), "utf8");
const READ_LEASE_MS = 30_000;

describe("the upgrade of a ledger of the first release (PGlite)", () =>
  upgrades(async () => `file:${await databaseDirectory()}`));
describeWithPostgres("the upgrade of a ledger of the first release (PostgreSQL)", (url) => upgrades(async () => url));

function upgrades(address: () => Promise<string>): void {
  test("keeps its invariants, its fences, its lineage and its revocations, and the story goes on", async () => {
    const at = await address();
    const schema = `upgrade_${randomUUID().slice(0, 8)}`;
    const database = await open(at);
    await loadReleased(at, schema);
    const ledger = await openLedger(at, { schema });
    try {
      expect(await broken(ledger), "right after the upgrade").toEqual([]);
      const sql = queryableInSchema(database, schema);
      const applied = await sql.query<{ number: number }>("select number from fenceline.migration order by number");
      expect(applied.map(({ number }) => number)).toEqual(readSchemaFiles().migrations.map(({ number }) => number));

      // Lineage of before: a living entry to its version, and the URI to its two versions.
      const before = (await ledger.trace({ uri: "catalog://plans/basic" })).versions;
      expect(before.map(({ lineageId }) => lineageId)).toEqual(["3.2", "3.1"]);
      const entry = before[0]?.entries.find(({ index, state }) => index === "main" && state === "CURRENT")
        ?.id as string;
      expect((await ledger.trace({ entry })).versions[0]).toMatchObject({ lineageId: "3.2", reader: "svc:rag" });

      // What was granted is seen, what was revoked is not (G2, P2).
      const seen = (asker: string[]) => ledger.visibleEntries({ index: "main", entryIds: [entry], asker });
      expect(await seen(["user:bob", "group:sales"])).toHaveLength(1);
      expect(await seen(["user:alice", "group:sales"])).toHaveLength(0);
      expect((await ledger.listRevocations({ open: true })).map(({ requestId }) => requestId).sort()).toEqual([
        "part-b",
        "secret-is-secret",
      ]);

      // The next session reads everything that may be read; ordinals go on where they were (F1).
      const session = await takeOver(ledger, "catalog", "svc:rag");
      const reads = await ledger.issueReads(session, {
        uris: ["catalog://plans/basic", "catalog://plans/secret"],
        reason: "demand",
        leaseMs: READ_LEASE_MS,
      });
      expect(reads.map(({ uri, ordinal }) => [uri, ordinal])).toEqual([["catalog://plans/basic", 3]]);
      const [read] = reads;
      const accepted = await ledger.acceptResourceVersions(session, [
        {
          ...(read as NonNullable<typeof read>),
          digest: digest("new"),
          parts: [{ uri: "catalog://plans/basic", text: "price=140" }],
        },
      ]);
      expect(accepted[0]).toMatchObject({ outcome: "accepted", lineageId: "3.3" });

      // A new revocation of what was there before the upgrade, purged from both stores (P3).
      const revoked = await ledger.revoke({
        requestId: "after-the-upgrade",
        source: "catalog",
        subject: "svc:rag",
        role: "reader",
        scope: { prefix: "catalog://plans/" },
        reason: "test",
      });
      for (const { revocationId } of await ledger.listRevocations({ open: true })) {
        while ((await ledger.advanceRevocation(revocationId)) === "more");
      }
      expect(await seen(["user:bob", "group:sales"])).toHaveLength(0);
      for (const store of ["main", "far"]) await purgeAll(ledger, store);
      expect((await ledger.revocation(revoked.revocationId))?.state).toBe("COMPLETE");
      expect(await ledger.listRevocations({ open: true })).toEqual([]);
      expect(await broken(ledger), "after the story").toEqual([]);
    } finally {
      await ledger.close();
      await database.query(`drop schema if exists ${schema} cascade`);
    }
  }, 120_000);
}

/** The first released schema, with what its functions left in it. */
async function loadReleased(address: string, schema: string): Promise<void> {
  const database = await open(address);
  const { migrations, ...files } = readSchemaFiles();
  const first = { ...files, version: "0.0.0", migrations: migrations.slice(0, 1), functions: [], functionsDigest: "" };
  await migrate(database, { schema, files: first });
  const sql = queryableInSchema(database, schema);
  await sql.query(
    "delete from fenceline.identity; delete from fenceline.migration; delete from fenceline.function_set",
  );
  await sql.query(RELEASED);
  // Its functions are not loaded with it; whatever set this version has is another one.
  await sql.query("update fenceline.function_set set digest = 'of the first release'");
}

async function takeOver(ledger: Ledger, source: string, reader: string) {
  const opened = await ledger.openSession({ source, reader, owner: "upgraded", leaseMs: 60_000 });
  if (opened.outcome !== "opened") return expect.fail(opened.outcome);
  const { session } = opened;
  await ledger.openStream(session, 0);
  const ids = (await ledger.subscriptionsToOpen(session, { limit: 100 })).map(({ subscriptionId }) => subscriptionId);
  await ledger.activateSubscriptions(session, { shard: 0, pushed: ids, polled: [] });
  return session;
}

async function purgeAll(ledger: Ledger, store: string): Promise<void> {
  for (;;) {
    const claims = await ledger.claimPurge({ store, limit: 100, leaseMs: 10_000 });
    if (claims.length === 0) return;
    await ledger.confirmPurge(store, claims, { claim: "absent" });
  }
}

async function broken(ledger: Ledger): Promise<string[]> {
  return (await ledger.verify()).filter((invariant) => invariant.broken > 0).map(({ name }) => name);
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
