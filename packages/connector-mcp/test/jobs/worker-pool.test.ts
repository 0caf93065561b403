import { describe, expect, onTestFinished, test } from "vitest";
import { type ModernServer, startModernServer } from "../mcp/modern-server.js";
import { ALICE, ask, configFor, openTestLedger, READER, startTestPool } from "./pool-setup.js";

const SECONDS = 1_000;

async function startServer(...options: Parameters<typeof startModernServer>): Promise<ModernServer> {
  const server = await startModernServer(...options);
  onTestFinished(() => server.close());
  return server;
}

/** A server, a ledger, a serving pool, and everything ingested. */
async function servedNotes() {
  const server = await startServer();
  const ledger = await openTestLedger();
  const config = configFor(server.url);
  const pool = await startTestPool(ledger, config);
  expect(await pool.idle({ timeoutMs: 20 * SECONDS })).toBe("idle");
  return {
    server,
    ledger,
    config,
    pool,
    ask: (question: string, asker = ALICE) => ask(ledger, config, question, asker),
  };
}

const textsOf = (hits: readonly { text: string }[]) => hits.map(({ text }) => text).sort();

describe("a serving pool", () => {
  test("scans twice, subscribes, reads and indexes, and shows each asker what is granted (S5, U2, G2)", async () => {
    const { pool, ask } = await servedNotes();

    expect(pool.stats().sources).toMatchObject([
      {
        name: "notes",
        reader: READER,
        era: "modern",
        pushed: 3,
        polled: 0,
        scan: { verdict: "SNAPSHOT_UNPROVEN", resources: 3 },
        reads: { issued: 3, accepted: 3, unchanged: 0, refused: 0, failed: 0 },
        entries: { written: 3, reused: 0, removed: 0 },
        problems: [],
      },
    ]);
    expect(textsOf(await ask("first second third"))).toEqual(["first", "second", "third"]);
    expect((await ask("first")).every(({ freshness }) => freshness === "fresh")).toBe(true);
    expect(await ask("first", ["user:bob"])).toEqual([]);
  });

  test("hides what a notification made old before its read, and then shows the new version only (§9, U5)", async () => {
    const { server, ask } = await servedNotes();

    server.resources.set("note://a", "price=120");
    await server.notify.resourceUpdated("note://a");
    await expect
      .poll(async () => textsOf(await ask("price")), { timeout: 10 * SECONDS, interval: 50 })
      .toEqual(["price=120", "second", "third"]);

    expect((await ask("price=120")).find(({ uri }) => uri === "note://a")?.freshness).toBe("fresh");
  });

  test("reads a resource once for all notifications within the coalescing window (U5)", async () => {
    const { server, ask } = await servedNotes();
    const readsBefore = server.reads.get("note://b") ?? 0;

    server.resources.set("note://b", "changed");
    for (let repeat = 0; repeat < 20; repeat += 1) await server.notify.resourceUpdated("note://b");
    await expect
      .poll(async () => textsOf(await ask("changed")), { timeout: 10 * SECONDS, interval: 50 })
      .toContain("changed");

    expect((server.reads.get("note://b") ?? 0) - readsBefore).toBeLessThanOrEqual(2);
  });

  test("reads everything again after the stream was cut, though no notification tells of the change (U4)", async () => {
    const { server, ask } = await servedNotes();

    server.cut();
    server.resources.set("note://c", "price=140");
    await expect
      .poll(async () => textsOf(await ask("price")), { timeout: 15 * SECONDS, interval: 50 })
      .toEqual(["first", "price=140", "second"]);
    await expect
      .poll(async () => (await ask("price")).map(({ freshness }) => freshness), { timeout: 10 * SECONDS, interval: 50 })
      .toEqual(["fresh", "fresh", "fresh"]);
  });

  test("finds a new resource after list_changed, and subscribes it without reading the others again (S9, U4)", async () => {
    const { server, ask, pool } = await servedNotes();
    const readsBefore = server.reads.get("note://a");

    server.resources.set("note://d", "fourth");
    await server.notify.resourceListChanged();
    await expect
      .poll(async () => textsOf(await ask("fourth")), { timeout: 15 * SECONDS, interval: 50 })
      .toEqual(["first", "fourth", "second", "third"]);

    expect(server.reads.get("note://a")).toBe(readsBefore);
    await expect.poll(() => pool.stats().sources[0]?.pushed).toBe(4);
  });

  test("carries a revocation by another ledger handle through: hidden at once, then absent in the store (P2, P3)", async () => {
    const { ledger, ask } = await servedNotes();

    const revocation = await ledger.revoke({ source: "notes", subject: READER, reason: "the trial ended" });
    expect(await ask("first")).toEqual([]);
    await expect
      .poll(async () => (await ledger.revocation(revocation.revocationId))?.state, {
        timeout: 15 * SECONDS,
        interval: 50,
      })
      .toBe("COMPLETE");

    const status = await ledger.revocation(revocation.revocationId);
    expect(status?.stores.map(({ store, entries, remaining }) => ({ store, entries, remaining }))).toEqual([
      { store: "embedded", entries: 3, remaining: 0 },
    ]);
  });

  test("leaves no stream and no session behind when it is closed", async () => {
    const { server, pool, ledger } = await servedNotes();

    await pool.close();

    await expect.poll(() => server.streams.size, { timeout: 5 * SECONDS }).toBe(0);
    expect((await ledger.status()).sources.map(({ holder }) => holder)).toEqual([undefined]);
  });
});

describe("a pool in mode once", () => {
  test("reads everything, and run again reads again and re-indexes only what changed", async () => {
    const server = await startServer();
    const ledger = await openTestLedger();
    const config = configFor(server.url);
    const first = await startTestPool(ledger, config, "once");
    expect(await first.idle({ timeoutMs: 20 * SECONDS })).toBe("idle");
    await first.close();

    server.resources.set("note://b", "changed");
    const second = await startTestPool(ledger, config, "once");
    expect(await second.idle({ timeoutMs: 20 * SECONDS })).toBe("idle");

    expect(first.stats().sources[0]).toMatchObject({ reads: { accepted: 3 }, entries: { written: 3 }, polled: 3 });
    expect(second.stats().sources[0]).toMatchObject({
      reads: { issued: 3, accepted: 1, unchanged: 2 },
      entries: { written: 1, reused: 0, removed: 1 },
      problems: [],
    });
    expect(textsOf(await ask(ledger, config, "notes"))).toEqual(["changed", "first", "third"]);
    expect(server.log.filter((line) => line === "opened")).toEqual([]);
  });

  test("ends, with the reason, when the source does not answer", async () => {
    const ledger = await openTestLedger();
    const pool = await startTestPool(ledger, configFor("http://127.0.0.1:9/mcp"), "once");

    expect(await pool.idle({ timeoutMs: 20 * SECONDS })).toBe("idle");

    expect(pool.stats().sources[0]?.scan).toBeUndefined();
    expect(pool.stats().sources[0]?.problems).toMatchObject([{ code: "source_unreachable" }]);
  });
});

describe("two pools on one ledger", () => {
  test("have one holder per source; when it ends, the other takes over and the content is fresh again", async () => {
    const { ledger, config, pool, server } = await servedNotes();
    const standby = await startTestPool(ledger, config);
    expect((await ledger.status()).sources.map(({ holder }) => holder)).toEqual([pool.owner]);

    await pool.close();
    await expect
      .poll(async () => (await ledger.status()).sources[0]?.holder, { timeout: 10 * SECONDS, interval: 50 })
      .toBe(standby.owner);

    server.resources.set("note://a", "after the takeover");
    await server.notify.resourceUpdated("note://a");
    await expect
      .poll(async () => textsOf(await ask(ledger, config, "takeover")), { timeout: 10 * SECONDS, interval: 50 })
      .toContain("after the takeover");
  });
});

describe("a pool in mode purge_only", () => {
  test("empties the stores after a revocation without connecting to any source (P3)", async () => {
    const server = await startServer();
    const ledger = await openTestLedger();
    const config = configFor(server.url);
    const ingest = await startTestPool(ledger, config, "once");
    await ingest.idle({ timeoutMs: 20 * SECONDS });
    await ingest.close();
    const requestsBefore = server.log.length;

    const revocation = await ledger.revoke({ source: "notes", subject: READER, reason: "the trial ended" });
    await startTestPool(ledger, config, "purge_only");
    await expect
      .poll(async () => (await ledger.revocation(revocation.revocationId))?.state, {
        timeout: 15 * SECONDS,
        interval: 50,
      })
      .toBe("COMPLETE");

    expect(server.log.length).toBe(requestsBefore);
  });
});
