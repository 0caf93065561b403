import { randomUUID } from "node:crypto";
import { fileURLToPath } from "node:url";
import { describeWithPostgres } from "@fenceline/test-services";
import { describe, expect, test } from "vitest";
import { migrate } from "#src/database/migrations.js";
import { queryableInSchema } from "#src/ledger-schema.js";
import { databaseDirectory, open } from "./database-process.js";
import { schemaText } from "./schema-text.js";

/** Committed, so that a change of the schema is seen in review as what it is. */
const SCHEMA_FILE = fileURLToPath(new URL("../../schema.sql", import.meta.url));

describe("the schema on PGlite", () => schemaIsAnnounced(async () => `file:${await databaseDirectory()}`));
describeWithPostgres("the schema on PostgreSQL", (url) => schemaIsAnnounced(async () => url));

function schemaIsAnnounced(address: () => Promise<string>): void {
  test("is what schema.sql says: no migration changes it unannounced", async () => {
    const database = await open(await address());
    const schema = `schema_${randomUUID().slice(0, 8)}`;
    try {
      await migrate(database, { schema });
      await expect(await schemaText(queryableInSchema(database, schema), schema)).toMatchFileSnapshot(SCHEMA_FILE);
    } finally {
      await database.query(`drop schema if exists ${schema} cascade`);
    }
  });

  test("and what schema.sql makes is the same schema again", async () => {
    const database = await open(await address());
    const [first, second] = [randomUUID(), randomUUID()].map((id) => `schema_${id.slice(0, 8)}`) as [string, string];
    try {
      await migrate(database, { schema: first });
      const text = await schemaText(queryableInSchema(database, first), first);
      const rebuilt = queryableInSchema(database, second);
      await database.query(`create schema ${second}`);
      await rebuilt.query(text);
      expect(await schemaText(rebuilt, second)).toBe(text);
    } finally {
      for (const schema of [first, second]) await database.query(`drop schema if exists ${schema} cascade`);
    }
  });
}
