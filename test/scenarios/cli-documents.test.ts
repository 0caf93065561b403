import { randomUUID } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type PriceCatalog, startPriceCatalog } from "@fenceline/example-price-catalog/server";
import { formatEntryId, type Ledger, openLedger, parseEntryId } from "@fenceline/ledger";
import { copyDatabase } from "@fenceline/test-services";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { runCli } from "./cli-process.js";

const BASIC = "catalog://plans/basic";
const text = expect.any(String) as string;
const count = expect.any(Number) as number;
const instant = expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/) as string;

let folder: string;
let file: string;
let catalog: PriceCatalog;
/** Holds the embedded ledger, so that each command only connects to it. */
let ledger: Ledger;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "fenceline-documents-"));
  file = join(folder, "fenceline.config.json");
  catalog = await startPriceCatalog({ token: "t" });
  await writeFile(
    file,
    JSON.stringify({
      ledger: "file:ledger",
      mcpServers: { catalog: { url: catalog.url, headers: { Authorization: "Bearer t" }, reader: "svc:rag" } },
      grants: [{ source: "catalog", reader: "svc:rag", audience: "group:sales", prefix: "catalog://plans" }],
    }),
  );
  await copyDatabase("ledger", openLedger, join(folder, "ledger"));
  ledger = await openLedger(`file:${join(folder, "ledger")}`);
});

afterAll(async () => {
  await ledger?.close();
  await catalog?.close();
  await rm(folder, { recursive: true, force: true });
});

/** The document that a command prints, which is all that it prints. */
async function documentOf(args: readonly string[], exitCode = 0) {
  const { code, stdout, stderr } = await runCli([...args, "--config", file, "--json"]);
  expect({ code, stderr }).toEqual({ code: exitCode, stderr: "" });
  return JSON.parse(stdout);
}

const ask = async (asker: string, ...more: string[]) =>
  documentOf(["query", "what does the basic plan cost?", "--as", asker, ...more]);

describe("the documents of --json, on a ledger that knows nothing", () => {
  it("have every field, empty or null", async () => {
    expect(await documentOf(["status"])).toEqual({
      sources: [],
      revocations: { open: 0, complete: 0 },
      stores: [],
      waiting: { reads: 0, indexing: 0, purging: 0, byIndex: [], byStore: [] },
      workers: [],
    });
    expect(await documentOf(["query", "anything", "--as", "user:a"])).toEqual({ hits: [], truncated: false });
    expect(await documentOf(["trace", BASIC], 1)).toEqual({ uri: BASIC, versions: [], derivations: [] });
    const unknown = randomUUID();
    expect(await documentOf(["trace", unknown], 1)).toEqual({ entry: unknown, versions: [], derivations: [] });
    expect(await documentOf(["grant", "list"])).toEqual({ grants: [] });
    const verified = await documentOf(["verify"]);
    expect(verified.stores).toEqual([
      { store: "embedded", index: "main", recorded: 0, present: 0, missing: 0, orphans: 0, foreign: 0 },
    ]);
  });

  it("tell of a permission given and revoked before the first ingest (P1)", async () => {
    const scope = { uri: "catalog://plans/pro" };
    const grant = { source: "catalog", reader: "svc:rag", audience: "user:early", scope };
    const range = ["--source", "catalog", "--reader", "svc:rag", "--audience", "user:early", "--uri", scope.uri];
    expect(await documentOf(["grant", "add", ...range])).toEqual({ granted: true, grant });
    expect(await documentOf(["grant", "list"])).toEqual({ grants: [{ ...grant, origin: "cli" }] });
    const revocation = ["revoke", "--subject", "user:nobody", "--reason", "never here", "--source", "catalog"];
    expect(await documentOf(revocation)).toEqual({
      revocationId: count,
      requestId: text,
      state: "EFFECTIVE",
      effectiveAt: instant,
      covered: { resources: 0, entries: 0 },
      nothingCovered: true,
      stores: [],
      exports: 0,
    });
    expect(await documentOf(["grant", "remove", ...range])).toEqual({ withdrawn: true, grant });
    expect(await documentOf(["grant", "remove", ...range], 1)).toEqual({ withdrawn: false, grant });
  });
});

describe("the documents of --json, on an ingested catalogue", () => {
  beforeAll(async () => {
    expect(await documentOf(["ingest"])).toEqual({
      ok: true,
      sources: [
        {
          name: "catalog",
          reader: "svc:rag",
          era: "modern",
          pushed: 0,
          polled: 40,
          notificationsIgnored: 0,
          scan: { verdict: "SNAPSHOT_UNPROVEN", resources: 40 },
          reads: { issued: 40, accepted: 40, unchanged: 0, refused: 0, failed: 0 },
          entries: { written: count, reused: 0, removed: 0 },
          problems: [],
        },
      ],
    });
  });

  it("query shows hits with all they are known by, to the granted alone (G1)", async () => {
    const { hits, truncated } = await ask("user:alice,group:sales", "--k", "2");
    expect(truncated).toBe(false);
    expect(hits).toHaveLength(2);
    expect(hits[0]).toMatchObject({
      id: text,
      uri: BASIC,
      text: expect.stringContaining("price=100"),
      score: count,
      freshness: "fresh",
      verifiedAt: instant,
      ageMs: count,
      lineageId: text,
    });
    expect(await ask("user:bob")).toEqual({ hits: [], truncated: false });
  });

  it("trace finds a URI in any spelling of its key, and an entry in either case (L4, F10)", async () => {
    const traced = await documentOf(["trace", BASIC]);
    expect(traced.versions).toEqual([
      {
        lineageId: text,
        uri: BASIC,
        ordinal: count,
        digest: expect.stringMatching(/^[0-9a-f]{64}$/),
        acceptedAt: instant,
        source: "catalog",
        reader: "svc:rag",
        readId: text,
        session: count,
        scan: count,
        server: "price-catalog 1.0.0",
        entries: [{ index: "main", store: "embedded", id: text, kind: "chunk", state: "CURRENT" }],
      },
    ]);
    const { versions } = await documentOf(["trace", "CATALOG://plans/b%61sic"]);
    expect(versions).toEqual(traced.versions);
    const byEntry = await documentOf(["trace", traced.versions[0].entries[0].id.toUpperCase()]);
    expect(byEntry.versions).toEqual(traced.versions);
  });

  it("ingest run again reads again and writes nothing; an unreachable source is a problem with a code", async () => {
    const again = await documentOf(["ingest"]);
    expect(again.sources[0]).toMatchObject({
      reads: { accepted: 0, unchanged: 40 },
      entries: { written: 0, reused: 0, removed: 0 },
    });
    const down = join(folder, "down.json");
    await writeFile(
      down,
      JSON.stringify({
        ledger: "file:ledger",
        ledgerSchema: "elsewhere",
        mcpServers: { gone: { url: "http://127.0.0.1:9/mcp", reader: "svc:other" } },
      }),
    );
    const { code, stdout, stderr } = await runCli(["ingest", "--config", down, "--json", "--timeout", "60"]);
    expect({ code, stderr }).toEqual({ code: 1, stderr: "" });
    expect(JSON.parse(stdout)).toMatchObject({
      ok: false,
      sources: [
        {
          name: "gone",
          era: null,
          scan: null,
          reads: { issued: 0, accepted: 0, unchanged: 0, refused: 0, failed: 0 },
          problems: [{ uri: null, code: "source_unreachable", message: text }],
        },
      ],
    });
  });

  it("verify reports an orphan and a missing entry as broken, a foreign one as somebody else's", async () => {
    const id = (await ask("user:alice,group:sales")).hits[0].id as string;
    const parts = parseEntryId(id);
    if (parts === undefined) return expect.fail(`${id} is no entry id`);
    const copy = (from: string, to: string) =>
      ledger.database.query(
        `insert into ${ledger.schema}.embedded_entry
         select $2::uuid, collection, source, uri, mime_type, page_content, metadata, embedding
         from ${ledger.schema}.embedded_entry where id = $1::uuid`,
        [from, to],
      );
    const remove = (gone: string) =>
      ledger.database.query(`delete from ${ledger.schema}.embedded_entry where id = $1::uuid`, [gone]);
    const standing = async (exitCode: number) => (await documentOf(["verify"], exitCode)).stores[0];
    const sound = await standing(0);
    expect(sound).toMatchObject({ missing: 0, orphans: 0, foreign: 0 });

    const [stranger, orphan] = [randomUUID(), formatEntryId({ ...parts, number: 2 ** 40 })];
    await copy(id, stranger);
    expect(await standing(0)).toEqual({ ...sound, foreign: 1 });
    await copy(id, orphan);
    expect(await standing(1)).toEqual({ ...sound, foreign: 1, orphans: 1 });
    await remove(orphan);
    await remove(id);
    expect(await standing(1)).toEqual({ ...sound, foreign: 1, present: sound.present - 1, missing: 1 });
    await copy(stranger, id);
    await remove(stranger);
    expect(await standing(0)).toEqual(sound);
  });

  it("verify names a store that does not answer, with every count unknown", async () => {
    const other = join(folder, "other.json");
    await writeFile(join(folder, "occupied"), "no database");
    await writeFile(
      other,
      JSON.stringify({
        ledger: "file:ledger",
        mcpServers: {},
        indexes: { main: { store: { type: "pgvector", address: "file:occupied" } }, second: {} },
      }),
    );
    const { code, stdout } = await runCli(["verify", "--config", other, "--json"]);
    expect(code).toBe(1);
    const { ok, stores } = JSON.parse(stdout);
    expect(ok).toBe(false);
    expect(stores).toEqual([
      {
        store: `pgvector file:${join(folder, "occupied")}`,
        index: "main",
        recorded: null,
        present: null,
        missing: null,
        orphans: null,
        foreign: null,
        failure: text,
      },
      { store: "embedded", index: "second", recorded: 0, present: 0, missing: 0, orphans: 0, foreign: 0 },
    ]);
  });

  it("a revocation asked for twice under one id is one, and with other contents an error (P1)", async () => {
    const request = ["revoke", "--subject", "group:sales", "--uri", BASIC, "--reason", "moved", "--request-id", "r-1"];
    const first = await documentOf(request);
    expect(first).toMatchObject({ requestId: "r-1", state: "EFFECTIVE", nothingCovered: false });
    expect(await documentOf(request)).toMatchObject({ revocationId: first.revocationId });
    const { code, stdout, stderr } = await runCli([...request.with(6, "other"), "--config", file, "--json"]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toMatch(/^fenceline: .*"r-1".*\(request_id_reused\)\n$/);
    const uris = (await ask("user:alice,group:sales")).hits.map(({ uri }: { uri: string }) => uri);
    expect(uris).not.toContain(BASIC);
    expect(uris).not.toHaveLength(0);
  });

  it("revoke --wait removes by itself where no worker runs, and says what each store shows (P3)", async () => {
    const revoked = await documentOf(["revoke", "--subject", "svc:rag", "--reason", "over", "--wait"]);
    expect(revoked).toEqual({
      revocationId: count,
      requestId: text,
      state: "COMPLETE",
      effectiveAt: instant,
      covered: { resources: 40, entries: 40 },
      nothingCovered: false,
      stores: [{ store: "embedded", entries: 40, remaining: 0, absentAt: instant, claim: "absent", waits: [] }],
      exports: 0,
    });
    expect(await ask("user:alice,group:sales")).toEqual({ hits: [], truncated: false });
    const { versions } = await documentOf(["trace", BASIC]);
    expect(versions[0]).toMatchObject({ digest: null, entries: [{ state: "PURGED" }] });
    const gone = await documentOf(["trace", versions[0].entries[0].id]);
    expect(gone.derivations).toMatchObject([{ step: 0, state: "PURGED", purgedAt: instant, purgeReceipts: [count] }]);
    const { stdout } = await runCli(["trace", versions[0].entries[0].id, "--config", file]);
    expect(stdout).toMatch(/PURGED {2}\S+ {2}in main \(embedded\)\n.*purged .*, receipt \d+/);
    expect((await documentOf(["verify"])).ok).toBe(true);
    expect((await documentOf(["status"])).revocations).toEqual({ open: 0, complete: 3 });
  });
});

describe("a reader of standard output that goes away", () => {
  it("is no failure of the command that writes there", async () => {
    const { code, stderr } = await runCli(["status", "--config", file, "--json"], {}, { closeOutput: true });
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  });
});
