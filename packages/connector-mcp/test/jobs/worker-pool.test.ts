import { spawnSync } from "node:child_process";
import { createRequire } from "node:module";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { type ModernServer, startModernServer } from "../mcp/modern-server.js";
import { ask, configFor, newCast, startPool, useLedger } from "./pool-setup.js";

const SECONDS = 1_000;
vi.setConfig({ testTimeout: 60 * SECONDS });
const within = { timeout: 20 * SECONDS, interval: 50 };

const ledgerOf = useLedger();

async function startServer(): Promise<ModernServer> {
  const server = await startModernServer();
  onTestFinished(() => server.close());
  return server;
}

/** A server, a serving pool, and everything ingested. */
async function servedNotes() {
  const server = await startServer();
  const ledger = ledgerOf();
  const cast = newCast();
  const config = configFor(cast, server.url);
  const pool = await startPool(ledger, config);
  expect(await pool.idle({ timeoutMs: 30 * SECONDS })).toBe("idle");
  return {
    server,
    ledger,
    cast,
    config,
    pool,
    ask: (question: string, asker: readonly string[] = cast.asker) => ask(ledger, config, question, asker),
    holder: async () => (await ledger.status()).sources.find(({ name }) => name === cast.source)?.holder,
  };
}

/** Process ids of the stdio servers that this process started. */
function serverProcesses(): number[] {
  const { stdout } = spawnSync("ps", ["-o", "pid=,args=", "--ppid", String(process.pid)], { encoding: "utf8" });
  return stdout
    .split("\n")
    .filter((line) => line.includes("server-everything"))
    .map((line) => Number.parseInt(line, 10));
}

const textsOf = (hits: readonly { text: string }[]) => hits.map(({ text }) => text).sort();

describe("a serving pool", () => {
  test("scans twice, subscribes, reads and indexes, and shows each asker what is granted (S5, U2, G2)", async () => {
    const { pool, cast, ask } = await servedNotes();

    expect(pool.stats().sources).toMatchObject([
      {
        name: cast.source,
        reader: cast.reader,
        era: "modern",
        pushed: 3,
        polled: 0,
        scan: { verdict: "SNAPSHOT_UNPROVEN", resources: 3 },
        reads: { issued: 3, accepted: 3, unchanged: 0, refused: 0, failed: 0 },
        entries: { written: 3, reused: 0, removed: 0 },
        problems: [],
      },
    ]);
    const hits = await ask("first second third");
    expect(textsOf(hits)).toEqual(["first", "second", "third"]);
    expect(hits.map(({ freshness }) => freshness)).toEqual(["fresh", "fresh", "fresh"]);
    expect(await ask("first", ["user:bob"])).toEqual([]);
  });

  test("shows only the new version after a notification (§9)", async () => {
    const { server, ask } = await servedNotes();

    server.resources.set("note://a", "price=120");
    server.notify.resourceUpdated("note://a");
    await expect.poll(async () => textsOf(await ask("price")), within).toEqual(["price=120", "second", "third"]);

    expect((await ask("price=120")).find(({ uri }) => uri === "note://a")?.freshness).toBe("fresh");
  });

  test("reads a resource at most twice for twenty notifications within the coalescing window (U5)", async () => {
    const { server, ask } = await servedNotes();
    const readsBefore = server.reads.get("note://b") ?? 0;

    server.resources.set("note://b", "changed");
    for (let repeat = 0; repeat < 20; repeat += 1) server.notify.resourceUpdated("note://b");
    await expect.poll(async () => textsOf(await ask("changed")), within).toContain("changed");

    expect((server.reads.get("note://b") ?? 0) - readsBefore).toBeLessThanOrEqual(2);
  });

  test("reads everything again after the stream was cut, though no notification tells of the change (U4)", async () => {
    const { server, ask } = await servedNotes();

    server.cut();
    server.resources.set("note://c", "price=140");
    await expect.poll(async () => textsOf(await ask("price")), within).toEqual(["first", "price=140", "second"]);
    await expect
      .poll(async () => (await ask("price")).map(({ freshness }) => freshness), within)
      .toEqual(["fresh", "fresh", "fresh"]);
  });

  test("finds a new resource after list_changed, and subscribes it without reading the others again (S9, U4)", async () => {
    const { server, ask, pool } = await servedNotes();
    const readsBefore = server.reads.get("note://a");

    server.resources.set("note://d", "fourth");
    server.notify.resourcesChanged();
    await expect.poll(async () => textsOf(await ask("fourth")), within).toEqual(["first", "fourth", "second", "third"]);

    expect(server.reads.get("note://a")).toBe(readsBefore);
    await expect.poll(() => pool.stats().sources[0]?.pushed, within).toBe(4);
  });

  test("carries a revocation through: hidden when it returns, then absent in the store (P2, P3)", async () => {
    const { ledger, cast, ask } = await servedNotes();

    const { revocationId } = await ledger.revoke({ source: cast.source, subject: cast.reader, reason: "trial ended" });
    expect(await ask("first")).toEqual([]);
    await expect.poll(async () => (await ledger.revocation(revocationId))?.state, within).toBe("COMPLETE");

    expect((await ledger.revocation(revocationId))?.stores).toMatchObject([
      { store: "embedded", entries: 3, remaining: 0, claim: "absent" },
    ]);
  });

  test("serves again after a lift what the revocation had closed, read anew (P2)", async () => {
    const { ledger, cast, ask, server } = await servedNotes();
    const { revocationId } = await ledger.revoke({ source: cast.source, subject: cast.reader, reason: "by mistake" });
    await expect.poll(async () => (await ledger.revocation(revocationId))?.state, within).toBe("COMPLETE");

    server.resources.set("note://a", "written meanwhile");
    await ledger.lift(revocationId);

    await expect
      .poll(async () => textsOf(await ask("first")), within)
      .toEqual(["second", "third", "written meanwhile"]);
  });

  test("reads nothing that is announced for a resource a revocation has closed, and lets the server know (P2, U7)", async () => {
    const { ledger, cast, server, pool } = await servedNotes();
    const { revocationId } = await ledger.revoke({
      source: cast.source,
      subject: cast.reader,
      scope: { uri: "note://a" },
      reason: "confidential",
    });
    await expect.poll(async () => (await ledger.revocation(revocationId))?.state, within).toBe("COMPLETE");
    const readsBefore = server.reads.get("note://a");

    server.notify.resourceUpdated("note://a");
    server.resources.set("note://b", "changed");
    server.notify.resourceUpdated("note://b");
    await expect.poll(() => pool.stats().sources[0]?.reads.accepted, within).toBe(4);

    expect(server.reads.get("note://a")).toBe(readsBefore);
    await expect.poll(() => pool.stats().sources[0]?.pushed, within).toBe(2);
  });

  test("takes its credentials' refusal as a credential problem: unverified, nothing revoked, nothing lost (P7)", async () => {
    const { server, pool, ask } = await servedNotes();

    server.refuseWith(401);
    server.cut();
    await expect
      .poll(async () => (await ask("first")).map(({ freshness }) => freshness), within)
      .toEqual(["unverified", "unverified", "unverified"]);

    expect(textsOf(await ask("first"))).toEqual(["first", "second", "third"]);
    await expect
      .poll(() => pool.stats().sources[0]?.problems.map(({ code }) => code), within)
      .toContain("source_unauthorized");
  });

  test("leaves no stream and no session behind when it is closed", async () => {
    const { server, pool, holder } = await servedNotes();
    expect(await holder()).toBe(pool.owner);

    await pool.close();

    await expect.poll(() => server.streams.size, within).toBe(0);
    expect(await holder()).toBeUndefined();
  });
});

describe("a pool in mode once", () => {
  test("reads everything, and run again reads again and re-indexes only what changed", async () => {
    const server = await startServer();
    const cast = newCast();
    const config = configFor(cast, server.url);
    const first = await startPool(ledgerOf(), config, "once");
    expect(await first.idle({ timeoutMs: 30 * SECONDS })).toBe("idle");
    await first.close();

    server.resources.set("note://b", "changed");
    const second = await startPool(ledgerOf(), config, "once");
    expect(await second.idle({ timeoutMs: 30 * SECONDS })).toBe("idle");

    expect(first.stats().sources[0]).toMatchObject({ reads: { accepted: 3 }, entries: { written: 3 }, polled: 3 });
    expect(second.stats().sources[0]).toMatchObject({
      reads: { issued: 3, accepted: 1, unchanged: 2 },
      entries: { written: 1, reused: 0, removed: 1 },
      problems: [],
    });
    expect(textsOf(await ask(ledgerOf(), config, "notes", cast.asker))).toEqual(["changed", "first", "third"]);
    expect(server.log).not.toContain("opened");
  });

  test("waits for no index that left the configuration, though versions wait for it in the ledger", async () => {
    const server = await startServer();
    const ledger = ledgerOf();
    const cast = newCast();
    const [former, present] = [`former-${cast.source}`, `present-${cast.source}`];
    const ingest = async (index: string) => {
      const config = configFor(cast, server.url, { indexes: { [index]: {} } });
      const pool = await startPool(ledger, config, "once");
      expect(await pool.idle({ timeoutMs: 30 * SECONDS })).toBe("idle");
      await pool.close();
      return textsOf(await ask(ledger, config, "notes", cast.asker));
    };
    await ingest(former);
    await ingest(present);

    server.resources.set("note://b", "changed");
    expect(await ingest(present)).toEqual(["changed", "first", "third"]);
    const { byIndex } = (await ledger.status()).waiting;
    expect(byIndex).toContainEqual({ index: former, version: 1, resources: 1 });
    expect(byIndex.map(({ index }) => index)).not.toContain(present);
  });

  test("withdraws a grant that left the configuration also where its source is disabled (G1)", async () => {
    const server = await startServer();
    const ledger = ledgerOf();
    const cast = newCast();
    const { source, reader } = cast;
    const config = configFor(cast, server.url);
    const first = await startPool(ledger, config, "once");
    expect(await first.idle({ timeoutMs: 30 * SECONDS })).toBe("idle");
    await first.close();
    const disabled = { [source]: { url: server.url, reader, disabled: true } };

    await startPool(ledger, configFor(cast, server.url, { mcpServers: disabled }), "once");
    expect(textsOf(await ask(ledger, config, "notes", cast.asker))).toEqual(["first", "second", "third"]);
    await startPool(ledger, configFor(cast, server.url, { mcpServers: disabled, grants: [] }), "once");
    expect(await ask(ledger, config, "notes", cast.asker)).toEqual([]);
  });

  test("withdraws what was granted of a source that left the configuration as a whole (G1)", async () => {
    const server = await startServer();
    const ledger = ledgerOf();
    const cast = newCast();
    const config = configFor(cast, server.url);
    const first = await startPool(ledger, config, "once");
    expect(await first.idle({ timeoutMs: 30 * SECONDS })).toBe("idle");
    await first.close();
    expect(textsOf(await ask(ledger, config, "notes", cast.asker))).toEqual(["first", "second", "third"]);

    await startPool(ledger, configFor(newCast(), server.url), "once");
    expect(await ask(ledger, config, "notes", cast.asker)).toEqual([]);
    expect(textsOf(await ask(ledger, config, "notes", [cast.reader]))).toEqual(["first", "second", "third"]);
  });

  test("sends a read that hangs once, and ends when it has timed out", async () => {
    const server = await startServer();
    const [hanging] = [...server.resources.keys()];
    server.hanging.add(hanging as string);
    // More than are read at once, so that reading goes on while the first is due for another try.
    for (let more = 0; more < 10; more += 1) {
      server.resources.set(`note://hangs/${more}`, "never read");
      server.hanging.add(`note://hangs/${more}`);
    }
    const settings = { requestTimeoutMs: 1_200, readConcurrency: 2 };
    const pool = await startPool(ledgerOf(), configFor(newCast(), server.url, { settings }), "once");

    expect(await pool.idle({ timeoutMs: 40 * SECONDS })).toBe("idle");

    expect(pool.stats().sources[0]?.reads).toEqual({ issued: 13, accepted: 2, unchanged: 0, refused: 0, failed: 11 });
  });

  test("does the work itself when the worker that holds its source was killed", async () => {
    const server = await startServer();
    const ledger = ledgerOf();
    const cast = newCast();
    const { source, reader } = cast;
    await ledger.registerSource({ name: source, endpointDigest: new Uint8Array(32) });
    await ledger.openSession({ source, reader, owner: "killed", leaseMs: 2_000 });

    const pool = await startPool(ledger, configFor(cast, server.url), "once");
    expect(await pool.idle({ timeoutMs: 30 * SECONDS })).toBe("idle");

    expect(pool.stats().sources[0]).toMatchObject({ reads: { accepted: 3 }, entries: { written: 3 }, problems: [] });
  });

  test("ends, with the reason, when the source does not answer", async () => {
    const pool = await startPool(ledgerOf(), configFor(newCast(), "http://127.0.0.1:9/mcp"), "once");

    expect(await pool.idle({ timeoutMs: 30 * SECONDS })).toBe("idle");

    expect(pool.stats().sources[0]?.scan).toBeUndefined();
    expect(pool.stats().sources[0]?.problems).toMatchObject([{ code: "source_unreachable" }]);
  });
});

describe("a pool in mode once beside a running worker", () => {
  test("hands its sources over, and tells of them what the ledger knows", async () => {
    const { ledger, config, pool, ask, server } = await servedNotes();
    server.resources.set("note://d", "listed, and nobody was told");

    const ingest = await startPool(ledger, config, "once");
    expect(await ingest.idle({ timeoutMs: 30 * SECONDS })).toBe("idle");

    expect(ingest.stats().sources[0]).toMatchObject({
      era: "modern",
      scan: { verdict: "SNAPSHOT_UNPROVEN" },
      reads: { issued: 0 },
      problems: [],
    });
    await expect.poll(async () => textsOf(await ask("listed")), within).toContain("listed, and nobody was told");
    expect(pool.stats().sources[0]?.pushed).toBe(4);
  });
});

describe("a source that is a process", () => {
  async function servedEverything() {
    const cast = newCast();
    const server = createRequire(import.meta.url).resolve("@modelcontextprotocol/server-everything/dist/index.js");
    const config = configFor(cast, "http://unused/", {
      mcpServers: { [cast.source]: { command: process.execPath, args: [server, "stdio"], reader: cast.reader } },
    });
    const pool = await startPool(ledgerOf(), config);
    expect(await pool.idle({ timeoutMs: 30 * SECONDS })).toBe("idle");
    return pool;
  }

  test("is gone when the pool is closed", async () => {
    const pool = await servedEverything();
    expect(serverProcesses()).toHaveLength(1);

    await pool.close();

    expect(pool.stats().sources[0]).toMatchObject({ era: "legacy", scan: { resources: 7 }, reads: { failed: 0 } });
    expect(serverProcesses()).toEqual([]);
  });

  test("that is killed is started again, and everything pushed is read again (U4)", async () => {
    const pool = await servedEverything();
    const [killed] = serverProcesses();
    const readsBefore = pool.stats().sources[0]?.reads.unchanged ?? 0;

    process.kill(killed as number, "SIGKILL");

    await expect.poll(() => (pool.stats().sources[0]?.reads.unchanged ?? 0) - readsBefore, within).toBe(7);
    expect(pool.stats().sources[0]?.pushed).toBe(7);
    expect(serverProcesses()).not.toContain(killed);
  });
});

describe("two pools on one ledger", () => {
  test("have one holder per source; when it ends, the other takes over and subscribes", async () => {
    const { ledger, config, pool, server, ask, holder } = await servedNotes();
    const standby = await startPool(ledger, config);
    expect(await holder()).toBe(pool.owner);

    await pool.close();
    await expect.poll(holder, within).toBe(standby.owner);
    await expect.poll(() => standby.stats().sources[0]?.pushed, within).toBe(3);

    server.resources.set("note://a", "after the takeover");
    server.notify.resourceUpdated("note://a");
    await expect.poll(async () => textsOf(await ask("takeover")), within).toContain("after the takeover");
  });
});

describe("a pool that lost its lease", () => {
  test("lets go of everything at once, and takes the source again when it is free", async () => {
    const server = await startServer();
    const ledger = ledgerOf();
    const cast = newCast();
    const pool = await startPool(ledger, configFor(cast, server.url, { settings: { leaseMs: 1_500 } }));
    expect(await pool.idle({ timeoutMs: 30 * SECONDS })).toBe("idle");
    const request = { source: cast.source, reader: cast.reader, owner: "another process" };
    const holder = async () => (await ledger.status()).sources.find(({ name }) => name === cast.source)?.holder;

    // As after a pause longer than the lease: it has ended, and somebody else came.
    await ledger.database.query(
      "update fenceline.session set expires_at = fenceline.now() - interval '1 second' where owner = $1",
      [pool.owner],
    );
    expect(await ledger.openSession({ ...request, leaseMs: 4_000 })).toMatchObject({ outcome: "opened" });
    await expect.poll(() => server.streams.size, within).toBe(0);
    expect(await holder()).toBe("another process");

    await expect.poll(holder, within).toBe(pool.owner);
    await expect.poll(() => server.streams.size, within).toBe(1);
  });
});

describe("a pool in mode purge_only", () => {
  test("empties the stores after a revocation without connecting to any source (P3)", async () => {
    const server = await startServer();
    const ledger = ledgerOf();
    const cast = newCast();
    const config = configFor(cast, server.url);
    const ingest = await startPool(ledger, config, "once");
    await ingest.idle({ timeoutMs: 30 * SECONDS });
    await ingest.close();
    const requestsBefore = server.log.length;

    const { revocationId } = await ledger.revoke({ source: cast.source, subject: cast.reader, reason: "trial ended" });
    await startPool(ledger, config, "purge_only");
    await expect.poll(async () => (await ledger.revocation(revocationId))?.state, within).toBe("COMPLETE");

    expect(server.log.length).toBe(requestsBefore);
  });
});
