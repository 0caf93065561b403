import { createHmac, randomBytes, randomUUID } from "node:crypto";
import { describeWithPostgres } from "@fenceline/test-services";
import { afterEach, describe, expect, test } from "vitest";
import { openDatabase } from "#src/database/database.js";
import { type Ledger, type OpenLedgerOptions, openLedger } from "#src/ledger.js";
import { queryableInSchema } from "#src/ledger-schema.js";
import { databaseDirectory } from "./database/database-process.js";

describe("the digest key (PGlite)", () => digestKeys(async () => `file:${await databaseDirectory()}`));
describeWithPostgres("the digest key (PostgreSQL)", (url) => digestKeys(async () => url));

function digestKeys(newAddress: () => Promise<string>): void {
  const ends: (() => Promise<unknown>)[] = [];
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end();
  });

  async function ledgers() {
    const address = await newAddress();
    const schema = `digest_key_${randomUUID().slice(0, 8)}`;
    ends.push(async () => {
      const database = await openDatabase(address);
      await database.query(`drop schema if exists ${schema} cascade`);
      await database.close();
    });
    return async (options: OpenLedgerOptions = {}): Promise<Ledger> => {
      const ledger = await openLedger(address, { schema, ...options });
      ends.push(() => ledger.close());
      return ledger;
    };
  }

  test("that is given is kept nowhere, in no form; another one or none is refused (P8)", async () => {
    const open = await ledgers();
    const digestKey = randomBytes(48);
    const ledger = await open({ digestKey });
    expect(ledger.digestChunk("chunk")).toBe(createHmac("sha256", digestKey).update("chunk").digest("hex"));
    const sql = queryableInSchema(ledger.database, ledger.schema);
    const [row] = await sql.query<{ kept: Buffer | null; text: string }>(
      "select digest_key as kept, i::text as text from fenceline.identity i",
    );
    expect(row?.kept).toBeNull();
    expect(row?.text).not.toContain(digestKey.toString("hex").slice(0, 16));

    for (const text of [digestKey.toString("hex"), digestKey.toString("base64"), digestKey.toString("base64url")]) {
      expect((await open({ digestKey: text })).digestChunk("chunk")).toBe(ledger.digestChunk("chunk"));
    }
    await expect(open()).rejects.toMatchObject({ code: "digest_key_missing" });
    await expect(open({ digestKey: randomBytes(48) })).rejects.toMatchObject({ code: "digest_key_wrong" });
    for (const short of [randomBytes(31), "abc", "not a key at all!"]) {
      const error = await open({ digestKey: short }).catch((caught: Error) => caught);
      expect(error).toMatchObject({ code: "digest_key_invalid" });
      if (typeof short === "string") expect((error as Error).message).not.toContain(short);
    }
  }, 60_000);

  test("that the ledger kept is taken out and opens it from then on; digests stay the same", async () => {
    const open = await ledgers();
    const ledger = await open();
    const before = ledger.digestChunk("chunk");
    const beside = await open();
    const digestKey = await ledger.takeDigestKeyOut();
    expect(ledger.digestChunk("chunk")).toBe(before);
    await expect(open()).rejects.toMatchObject({ code: "digest_key_missing" });
    expect((await open({ digestKey })).digestChunk("chunk")).toBe(before);
    // A process that was not told works on, except for what the database would key: that fails and is not keyed with nothing.
    const digest = queryableInSchema(beside.database, beside.schema).query(
      "select fenceline.keyed_digest('ids', null)",
    );
    await expect(digest).rejects.toMatchObject({ code: "statement_failed" });
  }, 60_000);

  test("cannot be replaced once something was digested with another", async () => {
    const open = await ledgers();
    const ledger = await open();
    await queryableInSchema(ledger.database, ledger.schema).query(
      "insert into fenceline.entry (entry_number, group_id, position, chunk_digest) values (1, 1, 1, '\\x00')",
    );
    await expect(open({ digestKey: randomBytes(32) })).rejects.toMatchObject({ code: "digest_key_wrong" });
    expect((await open()).digestChunk("chunk")).toBe(ledger.digestChunk("chunk"));
  }, 60_000);
}
