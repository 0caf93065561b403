import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { cpSync, existsSync, rmSync } from "node:fs";
import { copyDatabase, describeWhere, describeWithPostgres } from "@fenceline/test-services";
import pg from "pg";
import { afterEach, describe, expect, test } from "vitest";
import { type Ledger, type OpenLedgerOptions, openLedger } from "#src/ledger.js";
import { fileWitness } from "#src/witness.js";
import { DatabaseProcess, temporaryDirectory, until } from "./database/database-process.js";
import { activate, answer, openSession, READ_LEASE_MS } from "./ledger-under-test.js";
import { brokenInvariants, createIndex, indexDue, readNow, type WholeLedger, wholeLedgerOf } from "./whole-ledger.js";

/** Somewhere a ledger lives, which can be backed up and restored while nobody has it open. */
interface Place {
  readonly address: string;
  backUp(): Promise<void>;
  restore(): Promise<void>;
}

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

const READER = ["svc:rag"];
const [A, B, C] = ["catalog://plans/a", "catalog://plans/b", "catalog://plans/c"] as const;

async function open(address: string, options: OpenLedgerOptions = {}): Promise<WholeLedger & Ledger> {
  const ledger = await openLedger(address, options);
  ends.push(() => ledger.close());
  return wholeLedgerOf(ledger);
}

async function session(ledger: Ledger, source: string) {
  await ledger.registerSource({ name: source });
  const opened = await ledger.openSession({ source, reader: "svc:rag", owner: "worker", leaseMs: 60_000 });
  return opened.outcome === "opened" ? opened.session : expect.fail(opened.outcome);
}

function restoredBackups(newPlace: () => Promise<Place>): void {
  test("is recognised by its position: nothing is used again, what was revoked stays revoked, all is unverified until it is read (P1, P2, F9)", async () => {
    const place = await newPlace();
    const witness = fileWitness(temporaryDirectory("witness"));
    const source = "catalog";
    const before = await open(place.address, { witness });
    const index = await createIndex(before, "main");
    // Polled: of what is pushed the end of the session alone makes everything unverified.
    const first = await openSession(before, { source });
    await activate(before, first, [A, B, C], "polled");
    await readNow(before, first, [A, B, C], (uri) => `${uri} of old`);
    await indexDue(before, index, source);
    await before.endSession(first);
    await before.close();
    await place.backUp();

    // The time line that will be lost: versions, entries, a read in flight, revocations with and without the witness.
    const lost = await open(place.address, { witness });
    expect(lost.restored).toBeUndefined();
    const lostSession = await session(lost, source);
    await activate(lost, lostSession, [A, B, C], "polled");
    await readNow(lost, lostSession, [A], () => "lost version");
    await indexDue(lost, index, source);
    const lostIds = new Set(index.entries.keys());
    const [inFlight] = await lost.issueReads(lostSession, { uris: [B], reason: "demand", leaseMs: READ_LEASE_MS });
    const revocation = { subject: "svc:rag", role: "reader", scope: { uri: C }, reason: "leak" } as const;
    await lost.revoke({ ...revocation, requestId: "witnessed", source });
    await lost.close();
    const unwitnessed = await open(place.address);
    await unwitnessed.revoke({ ...revocation, requestId: "unwitnessed", scope: { uri: A }, source });
    await unwitnessed.close();

    await place.restore();
    const ledger = await open(place.address, { witness });
    expect(ledger.restored).toMatchObject({ incarnation: 2, unverified: 3, askedAgain: ["witnessed"], notAsked: [] });
    expect(await ledger.unknownRevocations(["witnessed", "unwitnessed"])).toEqual(["unwitnessed"]);
    expect(await ledger.recognizedRestores()).toMatchObject([{ incarnation: 2, evidence: "position" }]);
    const shown = async () =>
      Object.fromEntries(
        (await ledger.visibleEntries({ index: "main", entryIds: [...index.entries.keys()], asker: READER })).map(
          ({ entryId, freshness }) => [index.entries.get(entryId) as string, freshness],
        ),
      );
    expect(await shown()).toEqual({ [`${A} of old`]: "unverified", [`${B} of old`]: "unverified" });

    // The late answer comes from a session and to a read that this time line never had.
    const late = inFlight ?? expect.fail("nothing was in flight");
    const [refused] = await ledger.acceptResourceVersions(lostSession, [answer(late, "late")]);
    expect(["stale", "not_issued"]).toContain(refused?.outcome);

    const next = await session(ledger, source);
    expect(next.generation).toBeGreaterThan(lostSession.generation);
    expect(next.sessionId).toBeGreaterThan(lostSession.sessionId);
    await activate(ledger, next, [A, B, C], "polled");
    const reads = await ledger.issueDueReads(next, { limit: 10, leaseMs: READ_LEASE_MS });
    expect(reads.map(({ uri }) => uri).sort()).toEqual([A, B]);
    for (const read of reads) expect(read.ordinal).toBeGreaterThan(2 ** 32);
    // In one the same, in the other something new.
    await ledger.acceptResourceVersions(
      next,
      reads.map((read) => answer(read, read.uri === A ? "new version" : `${B} of old`)),
    );
    await indexDue(ledger, index, source);
    expect(await shown()).toEqual({ "new version": "fresh", [`${B} of old`]: "fresh" });
    const written = [...index.entries.keys()].filter((id) => !lostIds.has(id));
    expect(written).toHaveLength(index.entries.size - lostIds.size);
    expect(written.length).toBeGreaterThan(0);
    expect(await brokenInvariants(ledger)).toEqual([]);
    await ledger.close();

    expect((await open(place.address, { witness })).restored).toBeUndefined();
  }, 240_000);

  test("is recognised without a witness: by an entry in a store, by a request, or at the word of who restored it; each once", async () => {
    const place = await newPlace();
    const ledger = await open(place.address);
    const index = await createIndex(ledger, "main");
    const holder = await openSession(ledger, { source: "catalog" });
    await activate(ledger, holder, [A]);
    await ledger.close();
    await place.backUp();
    const lost = await open(place.address);
    await readNow(lost, holder, [A], () => "lost");
    await indexDue(lost, index, "catalog");
    const [entryId] = [...index.entries.keys()];
    const { token } = await lost.position();
    await lost.close();
    await place.restore();

    const restored = await open(place.address);
    const otherLedgers = `${"0".repeat(8)}${(entryId as string).slice(8)}`;
    expect(await restored.recognizeRestore({ entryId: otherLedgers })).toEqual({ outcome: "not_restored" });
    expect(await restored.recognizeRestore({ entryId: entryId as string })).toMatchObject({ outcome: "restored" });
    expect(await restored.recognizeRestore({ entryId: entryId as string })).toEqual({ outcome: "not_restored" });
    expect(await restored.recognizeRestore({ position: token })).toEqual({ outcome: "not_restored" });
    expect(await restored.recognizeRestore({ confirmedBy: "ops" })).toMatchObject({
      outcome: "restored",
      incarnation: 3,
    });
    await expect(restored.recognizeRestore({ position: "x" })).rejects.toMatchObject({ code: "position_invalid" });
    const foreign = JSON.parse(Buffer.from(token.split(".").at(-1) as string, "base64url").toString());
    const other = `fenceline-position.v1.${Buffer.from(JSON.stringify({ ...foreign, mark: "000000000000" })).toString("base64url")}`;
    await expect(restored.recognizeRestore({ position: other })).rejects.toMatchObject({
      code: "witness_of_another_ledger",
    });
    expect(await brokenInvariants(restored)).toEqual([]);
  }, 240_000);

  test("that is restored a second time jumps beyond what its first restore used, though nobody saw that one", async () => {
    const place = await newPlace();
    const ledger = await open(place.address);
    await createIndex(ledger, "main");
    await ledger.close();
    await place.backUp();
    const numbers: number[] = [];
    for (const round of [1, 2, 3]) {
      if (round > 1) await place.restore();
      const again = await open(place.address);
      expect(await again.recognizeRestore({ confirmedBy: "ops" })).toMatchObject({ outcome: "restored" });
      // A second of the machine's clock is what keeps two restores of one backup apart.
      const [{ second } = { second: 0 }] = await again.sql<{ second: number }>(
        "select fenceline.seconds_since_2026() as second",
      );
      await until("the next second", async () => {
        const [row] = await again.sql<{ second: number }>("select fenceline.seconds_since_2026() as second");
        return (row?.second ?? 0) > second;
      });
      const [row] = await again.sql<{ n: number }>("select nextval('fenceline.entry_number') as n");
      numbers.push(row?.n as number);
      await again.close();
    }
    expect(numbers[1]).toBeGreaterThan(numbers[0] as number);
    expect(numbers[2]).toBeGreaterThan(numbers[1] as number);
    expect(Number.isSafeInteger(numbers[2])).toBe(true);
  }, 240_000);

  test("is not seen where there is none: restarts, and two that share one witness while both write", async () => {
    const place = await newPlace();
    const witness = fileWitness(temporaryDirectory("witness"));
    const options = {
      witness,
      witnessOptions: { intervalMs: 5, onFailure: (error: unknown) => expect.fail(String(error)) },
    };
    for (let round = 0; round < 3; round += 1) {
      const [one, two] = await Promise.all([open(place.address, options), open(place.address, options)]);
      expect([one.restored, two.restored]).toEqual([undefined, undefined]);
      for (const [n, ledger] of [one, two, one].entries()) {
        await ledger.registerSource({ name: `source-${round}-${n}` });
        await ledger.revoke({ subject: `user:${round}-${n}`, reason: "left" });
      }
      await two.close();
      await one.close();
    }
    const { revocations } = await witness.read();
    expect(revocations).toHaveLength(9);
    const last = await open(place.address, options);
    expect(last.restored).toBeUndefined();
    expect((await last.position()).incarnation).toBe(1);
  }, 240_000);
}

async function newLedger(): Promise<string> {
  const directory = temporaryDirectory("ledger");
  await copyDatabase("ledger", openLedger, directory);
  return directory;
}

describe("a restored backup (PGlite)", () => {
  restoredBackups(async () => {
    const directory = await newLedger();
    const copy = temporaryDirectory("backup");
    return {
      address: `file:${directory}`,
      async backUp() {
        cpSync(directory, copy, { recursive: true });
      },
      async restore() {
        rmSync(directory, { recursive: true });
        cpSync(copy, directory, { recursive: true });
      },
    };
  });

  test("is not seen after the process that held the directory was killed amid its writes (kill -9)", async () => {
    const address = `file:${await newLedger()}`;
    const folder = temporaryDirectory("witness");
    for (let round = 0; round < 3; round += 1) {
      const writer = await DatabaseProcess.start();
      await writer.call("openWitnessed", address, folder, 1);
      writer.begin("registerSources", `round-${round}`);
      await until("it wrote", () => writer.events.filter(({ event }) => event === "acknowledged").length > 50);
      await writer.kill();
    }
    const ledger = await open(address, { witness: fileWitness(folder) });
    expect(ledger.restored).toBeUndefined();
    expect((await ledger.position()).number).toBeGreaterThan(6);
  }, 180_000);
});

describeWithPostgres("a restored backup (PostgreSQL)", (url) => {
  restoredBackups(async () => {
    const { address, admin } = await ownDatabase(url);
    const name = databaseOf(address);
    const copy = `${name}_backup`;
    ends.push(() => admin(`drop database if exists ${copy} with (force)`));
    return {
      address,
      backUp: () => admin(`create database ${copy} template ${name}`),
      async restore() {
        await admin(`drop database ${name} with (force)`);
        await admin(`create database ${name} template ${copy}`);
      },
    };
  });

  describeWhere(existsSync("/usr/bin/pg_dump"), "no pg_dump", "made with pg_dump", () => {
    restoredBackups(async () => {
      const { address, admin } = await ownDatabase(url);
      let dump = "";
      return {
        address,
        async backUp() {
          dump = execFileSync("pg_dump", [address], { encoding: "utf8", maxBuffer: 2 ** 28 });
        },
        async restore() {
          await admin(`drop database ${databaseOf(address)} with (force)`);
          await admin(`create database ${databaseOf(address)}`);
          execFileSync("psql", ["-q", "-v", "ON_ERROR_STOP=1", address], { input: dump });
        },
      };
    });
  });
});

async function ownDatabase(url: string) {
  const name = `fenceline_restore_${randomUUID().slice(0, 8)}`;
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const admin = async (statement: string) => void (await client.query(statement));
  ends.push(() => client.end());
  ends.push(() => admin(`drop database if exists ${name} with (force)`));
  await admin(`create database ${name}`);
  const address = new URL(url);
  address.pathname = `/${name}`;
  return { address: address.href, admin };
}

function databaseOf(address: string): string {
  return new URL(address).pathname.slice(1);
}
