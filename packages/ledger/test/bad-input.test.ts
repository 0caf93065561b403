import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { copyDatabase, describeWithPostgres } from "@fenceline/test-services";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { MAX_NAME_LENGTH, MAX_URI_LENGTH } from "#src/input.js";
import { type Ledger, openLedger } from "#src/ledger.js";
import { queryableInSchema } from "#src/ledger-schema.js";
import type { Session } from "#src/sessions.js";
import { calls, fieldsOf, notChecked, withUnknownField } from "./every-call.js";

const LONG = "x".repeat(100_000);

/** What a field of each kind refuses. */
const BAD = {
  name: ["", "a\0b", "\ud800", LONG, 7],
  uri: ["", "catalog://\0", "catalog://\ud800", `catalog://${LONG}`, 7],
  /** An empty one, and one that ends within a segment, is `uri_invalid`. */
  scopeUri: ["catalog://\0", "catalog://\udfff", `catalog://${LONG}`],
  text: ["price\0=100", "\ud800", 7],
  enum: ["UNKNOWN_STATE", "", 7],
  /** Ids, ordinals, generations, counts, leases. */
  number: [-1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, "1"],
  share: [-0.1, 1.1, Number.NaN],
  boolean: ["yes", 1],
  bytes: ["text", Buffer.alloc(65)],
  /** Bytes of a body: of any length. */
  content: ["text", 7],
  uuid: ["", "x", "\0", `${randomUUID()}'`],
  hex: ["", "x", "0F", "\0"],
  /** One that names nothing of this ledger is no error. */
  entryId: [7],
} as const;

describe("what the facade does not take (PGlite)", () => {
  let directory: string | undefined;
  afterAll(async () => {
    if (directory) await rm(directory, { recursive: true, force: true });
  });
  refusesBadInput("fenceline", async () => {
    directory = await mkdtemp(join(tmpdir(), "fenceline-ledger-"));
    await copyDatabase("ledger", openLedger, directory);
    return `file:${directory}`;
  });
});
describeWithPostgres("what the facade does not take (PostgreSQL)", (url) =>
  refusesBadInput(`fenceline_test_${randomUUID().slice(0, 8)}`, async () => url),
);

function refusesBadInput(schema: string, address: () => Promise<string>): void {
  let ledger: Ledger;
  beforeAll(async () => {
    ledger = await openLedger(await address(), { schema });
    await ledger.registerSource({ name: "catalog" });
  });
  afterAll(async () => {
    await ledger.database.query(`drop schema if exists ${schema} cascade`);
    await ledger.close();
  });

  /** Every row of every table. */
  async function footprint(): Promise<Record<string, string>> {
    const sql = queryableInSchema(ledger.database, schema);
    const tables = await sql.query<{ name: string }>(
      "select relname as name from pg_class where relnamespace = $1::regnamespace and relkind = 'r' order by relname",
      [schema],
    );
    const rows: Record<string, string> = {};
    for (const { name } of tables) {
      const [row] = await sql.query<{ rows: string }>(
        `select count(*) || ' ' || coalesce(md5(string_agg(t::text, ',' order by t::text)), '') as rows from fenceline."${name}" t`,
      );
      rows[name] = row?.rows as string;
    }
    return rows;
  }

  test("is refused in every call and every field, by an error that names the field, and leaves no row", async () => {
    const before = await footprint();
    const taken: string[] = [];
    let tried = 0;
    for (const [call, parameters] of Object.entries(calls)) {
      for (const { path, kind, withValue } of fieldsOf(call, parameters)) {
        for (const value of BAD[kind]) {
          tried += 1;
          const method = ledger[call as keyof Ledger] as (...values: unknown[]) => Promise<unknown>;
          const [error] = await Promise.allSettled([method(...withValue(value))]);
          const { code, field, message } = (error as PromiseRejectedResult).reason ?? {};
          const isNamed = code === "input_invalid" && field === path && message.includes(path) && message.length < 400;
          if (!isNamed)
            taken.push(`${call} ${path} ${String(value).slice(0, 20)}: ${code ?? "taken"} ${message ?? ""}`);
        }
      }
    }
    expect(taken).toEqual([]);
    expect(tried).toBeGreaterThan(700);
    expect(await footprint()).toEqual(before);
  });

  test("is tried here for every call there is", () => {
    const members = Object.keys(ledger).filter((member) => !notChecked.has(member));
    expect(Object.keys(calls).sort()).toEqual(members.sort());
  });

  test("is no text that looks like SQL, which is a name like any other (G1, P1)", async () => {
    const odd = `'; drop table ${schema}.source; -- "\\$1`;
    await ledger.registerSource({ name: odd });
    const opened = await ledger.openSession({ source: odd, reader: odd, owner: odd, leaseMs: 1_000 });
    expect(opened).toMatchObject({ outcome: "opened", session: { source: odd, reader: odd } });
    const grant = { source: odd, reader: odd, audience: odd, scope: { prefix: `${odd}/` } };
    await ledger.grant(grant);
    expect(await ledger.listGrants({ audience: odd })).toEqual([{ ...grant, origin: "api" }]);
    const revoked = await ledger.revoke({ source: odd, subject: odd, reason: odd, requestId: odd, requestedBy: odd });
    expect(await ledger.revocationRecord(revoked.revocationId)).toMatchObject({
      subject: odd,
      reason: odd,
      requestId: odd,
    });
    expect((await ledger.status()).sources.map(({ name }) => name)).toEqual([odd]);
  });

  test("is nothing up to the longest name and the longest URI, in the bytes that compress least (F10, G1)", async () => {
    const random = (length: number) =>
      Array.from({ length }, () => String.fromCodePoint(0x4e00 + Math.floor(Math.random() * 20_000))).join("");
    const name = random(MAX_NAME_LENGTH);
    const uri = `catalog://${random(MAX_URI_LENGTH)}`.slice(0, MAX_URI_LENGTH);
    await ledger.registerSource({ name });
    await ledger.grant({ source: name, reader: name, audience: name, scope: { uri } });
    await ledger.grant({ source: name, reader: name, audience: name, scope: { uri } });
    expect(await ledger.listGrants({ source: name })).toHaveLength(1);
    await ledger.revoke({ source: name, subject: name, scope: { uri }, reason: "test", requestId: name });
    expect(await ledger.trace({ uri })).toMatchObject({ versions: [] });
  });

  test("reaches no statement in a field that the call does not know, in any object of any call", async () => {
    const deep = JSON.parse(`${"[".repeat(50_000)}${"]".repeat(50_000)}`);
    const failed: string[] = [];
    let tried = 0;
    for (const [call, parameters] of Object.entries(calls)) {
      for (const value of ["\0", "\ud800", LONG, deep]) {
        for (const given of withUnknownField(parameters, "unknown", value)) {
          tried += 1;
          const method = ledger[call as keyof Ledger] as (...values: unknown[]) => Promise<unknown>;
          const { code, message } = await method(...given).then(
            () => ({ code: "taken", message: "" }),
            (error: unknown) => error as { code?: string; message: string },
          );
          if (code === undefined || code === "statement_failed") failed.push(`${call}: ${code} ${message}`);
        }
      }
    }
    expect(failed).toEqual([]);
    expect(tried).toBeGreaterThan(400);
  });

  test("names the unknown field of what is kept as it comes, and does not show it (U1, P8)", async () => {
    const opened = await ledger.openSession({ source: "catalog", reader: "svc:rag", owner: "worker", leaseMs: 60_000 });
    const { session } = opened as { session: Session };
    const negotiated = {
      era: "legacy",
      protocolVersion: "1",
      resources: true,
      subscribe: true,
      listChanged: true,
    } as const;
    const record = (unknown: object) => ledger.recordCapabilities(session, { ...negotiated, ...unknown });
    await expect(record({ "price\0": "100" })).rejects.toMatchObject({
      code: "input_invalid",
      field: 'negotiated["price\\u0000"]',
      message: 'negotiated["price\\u0000"] does not fit: expected no such field.',
    });
    await expect(record({ server: { name: "catalog", version: "1", title: "\0" } })).rejects.toMatchObject({
      code: "input_invalid",
      field: "negotiated.server.title",
    });
  });
}

describe("an error about input", () => {
  test("shows a value shortly, and content not at all (P8)", async () => {
    const { checkArgument, storableText, name } = await import("#src/input.js");
    expect(() => checkArgument("request.subject", name, LONG)).toThrowError(
      expect.objectContaining({
        field: "request.subject",
        message: expect.stringMatching(/^.{0,140}100000 characters\).{0,80}$/),
      }),
    );
    expect(() => checkArgument("text", storableText, "price=100\0")).toThrowError(
      "text does not fit: expected text without U+0000, which no database holds.",
    );
  });
});
