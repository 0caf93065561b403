import pg from "pg";
import { expect, test, vi } from "vitest";
import { ingest, within } from "./ingestion.js";
import { freePort, published, startListening } from "./published-servers.js";

vi.setConfig({ testTimeout: 90_000 });

test("server-postgres on PGlite: without subscriptions everything is polled, and a changed table is found on the timer (U3)", async () => {
  const port = await freePort();
  await startListening(
    [published.pglite, "--db=memory://", "--host=127.0.0.1", `--port=${port}`, "--max-connections=10"],
    { port },
  );
  const address = `postgresql://postgres:secret@127.0.0.1:${port}/postgres?sslmode=disable`;
  const sql = async (text: string) => {
    const client = new pg.Client(address);
    await client.connect();
    await client.query(text).finally(() => client.end());
  };
  await sql(`create table prices (plan text, amount integer)`);
  await sql(`create table "odd name é" (secret_column text)`);

  const { stats, textOf } = await ingest(
    { command: process.execPath, args: [published.postgres, address] },
    { pollMs: 1_000, reviewMs: 1_000 },
  );
  expect(stats()).toMatchObject({ era: "legacy", pushed: 0, polled: 2, scan: { resources: 2 } });
  const uriOf = (table: string) => `postgres://postgres@127.0.0.1:${port}/${table}/schema`;
  expect(await textOf(uriOf("prices"))).toContain("amount");
  // Of a name with escapes it says "[]" in either spelling, since it escapes what it is asked. Nothing tells that from an
  // answer that is right; it is kept as what it is, and harms no other table.
  expect(await textOf(uriOf("odd%20name%20%C3%A9"))).toBe("[]");
  expect(stats().problems).toEqual([]);

  await sql(`alter table prices add column currency text`);
  await expect.poll(() => textOf(uriOf("prices")), within).toContain("currency");
});
