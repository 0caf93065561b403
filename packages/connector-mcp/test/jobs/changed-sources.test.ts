import { describe, expect, onTestFinished, test } from "vitest";
import type { FencelineConfigInput } from "#src/config/config-schema.js";
import { defineConfig } from "#src/config/load-config.js";
import { type ConfirmedChanges, endpointDigest, settleChangedSources } from "#src/jobs/changed-sources.js";
import { startWorkers } from "#src/jobs/worker-pool.js";
import { startModernServer } from "../mcp/modern-server.js";
import { ask, type Cast, configFor, logger, newCast, startPool, useLedger } from "./pool-setup.js";

const ledgerOf = useLedger();

async function startServer() {
  const server = await startModernServer();
  onTestFinished(() => server.close());
  return server;
}

/** A source that was read, and its content as the asker sees it. */
async function readSource() {
  const [server, cast] = [await startServer(), newCast()];
  const config = configFor(cast, server.url);
  await runOnce(cast, config);
  return { server, cast, config, shown: async () => (await ask(ledgerOf(), config, "first", cast.asker)).length };
}

async function runOnce(cast: Cast, config: ReturnType<typeof configFor>, confirm: ConfirmedChanges = {}) {
  const others = (await ledgerOf().registeredSources()).map(({ name }) => name).filter((name) => name !== cast.source);
  const removed = [...others, ...(confirm.removed ?? [])];
  const pool = await startWorkers({
    ledger: ledgerOf(),
    config,
    mode: "once",
    logger,
    confirm: { ...confirm, removed },
  });
  try {
    expect(await pool.idle({ timeoutMs: 30_000 })).toBe("idle");
    return pool.stats().sources[0];
  } finally {
    await pool.close();
  }
}

describe("a source that is pointed at another server", () => {
  test("is asked about, by its name and with the choices, and nothing is changed (§2)", async () => {
    const { cast, config, shown } = await readSource();
    const other = await startServer();
    const moved = configFor(cast, other.url);
    const start = runOnce(cast, moved);
    await expect(start).rejects.toMatchObject({
      code: "source_moved",
      message: expect.stringMatching(
        new RegExp(`3 resources of ${cast.source}.*--moved ${cast.source}.*another name.*former url`, "s"),
      ),
    });
    expect(other.reads.size).toBe(0);
    expect(await shown()).toBe(3);
    // Put back, it is what it was.
    expect(await runOnce(cast, config)).toMatchObject({ reads: { unchanged: 3 } });
  });

  test("that is confirmed to be the same one is read again there, and asked about no more", async () => {
    const { cast } = await readSource();
    const other = await startServer();
    const moved = configFor(cast, other.url);
    expect(await runOnce(cast, moved, { moved: [cast.source] })).toMatchObject({ reads: { unchanged: 3 } });
    expect(await runOnce(cast, moved)).toMatchObject({ reads: { unchanged: 3 } });
  });
});

describe("a source that left the configuration", () => {
  test("is asked about before its grants go; confirmed, its content stays, and it may come back (G1)", async () => {
    const { cast, config, shown } = await readSource();
    const { mcpServers } = configFor(newCast(), (await startServer()).url);
    const without = defineConfig({ mcpServers, queuePrefix: config.queuePrefix });
    await expect(settleChangedSources(ledgerOf(), without, {})).rejects.toMatchObject({
      code: "source_removed",
      message: expect.stringMatching(
        /3 resources of .*--removed .*fenceline revoke --source .*"disabled": true.*put it back/s,
      ),
    });
    const others = (await ledgerOf().registeredSources())
      .map(({ name }) => name)
      .filter((name) => name !== cast.source);
    const start = startWorkers({
      ledger: ledgerOf(),
      config: without,
      mode: "once",
      logger,
      confirm: { removed: others },
    });
    await expect(start).rejects.toMatchObject({ code: "source_removed" });
    expect(await shown()).toBe(3);

    await (await startPool(ledgerOf(), without, "once")).close();
    expect(await shown()).toBe(0);
    // It was answered once.
    await settleChangedSources(ledgerOf(), without, {});

    expect(await runOnce(cast, config)).toMatchObject({ reads: { unchanged: 3 } });
    expect(await shown()).toBe(3);
  });

  test("is none where it is disabled, where nothing of it is left, or where a program registered it by itself", async () => {
    const { cast, config } = await readSource();
    const [name, source] = Object.entries(config.mcpServers)[0] as [string, (typeof config.mcpServers)[string]];
    const confirm = {
      removed: (await ledgerOf().registeredSources()).map((known) => known.name).filter((other) => other !== name),
    };
    await settleChangedSources(ledgerOf(), { mcpServers: { [name]: { ...source, disabled: true } } }, confirm);
    await ledgerOf().registerSource({ name: "own" });

    await ledgerOf().revoke({ source: cast.source, subject: cast.reader, reason: "gone" });
    await settleChangedSources(ledgerOf(), { mcpServers: {} }, confirm);
  });
});

describe("what tells one endpoint from another", () => {
  type Source = FencelineConfigInput["mcpServers"][string];
  const digestOf = (source: Source) => {
    const { mcpServers } = defineConfig({ mcpServers: { one: source } });
    return Buffer.from(endpointDigest(mcpServers["one"] as NonNullable<(typeof mcpServers)[string]>)).toString("hex");
  };
  const base = { command: "serve", args: ["a"], cwd: "/data", env: { REGION: "eu" }, reader: "svc:rag" };

  test.each<[string, Partial<Source>]>([
    ["the command", { command: "other" }],
    ["an argument", { args: ["b"] }],
    ["the folder", { cwd: "/other" }],
    ["the environment", { env: { REGION: "us" } }],
    ["a further variable", { env: { REGION: "eu", DATABASE_URL: "postgres://x" } }],
  ])("%s", (_, change) => {
    expect(digestOf({ ...base, ...change } as Source)).not.toBe(digestOf(base));
  });

  test.each<[string, Partial<Source>]>([
    ["a credential", { env: { REGION: "eu", API_TOKEN: "x", DB_PASSWORD: "y", OPENAI_API_KEY: "z" } }],
    ["what every process has", { env: { REGION: "eu", PATH: "/bin", HOME: "/root", LC_ALL: "C" } }],
    ["who reads, or how often", { reader: "svc:other", settings: { reviewMs: 5 } }],
  ])("and not %s", (_, change) => {
    expect(digestOf({ ...base, ...change } as Source)).toBe(digestOf(base));
  });

  test("a server over HTTP goes by its URL and by headers that are no credentials", () => {
    const http = { url: "http://127.0.0.1:1/mcp", reader: "svc:rag" };
    const incidental = { Authorization: "Bearer x", "X-Api-Key": "y", Cookie: "z", "User-Agent": "u" };
    expect(digestOf({ ...http, headers: incidental })).toBe(digestOf(http));
    expect(digestOf({ ...http, headers: { "X-Tenant": "acme" } })).not.toBe(digestOf(http));
    expect(digestOf({ ...http, url: "http://127.0.0.1:2/mcp" })).not.toBe(digestOf(http));
  });
});
