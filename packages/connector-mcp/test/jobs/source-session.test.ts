import { Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { pino } from "pino";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { startWorkers } from "#src/jobs/worker-pool.js";
import { type LegacyServer, startLegacyServer } from "../mcp/legacy-server.js";
import { ask, configFor, newCast, otherTestsOver, startPool, useLedger } from "./pool-setup.js";

const SECONDS = 1_000;
vi.setConfig({ testTimeout: 60 * SECONDS });
const within = { timeout: 20 * SECONDS, interval: 50 };

const ledgerOf = useLedger();

/** A server of the legacy era under a serving pool that has read and subscribed everything. */
async function servedLegacy() {
  const server: LegacyServer = await startLegacyServer();
  onTestFinished(() => server.close());
  const ledger = ledgerOf();
  const cast = newCast();
  const config = configFor(cast, server.url, { settings: { rereadMs: 300 } });
  const pool = await startPool(ledger, config);
  await expect.poll(() => pool.stats().sources[0]?.pushed, within).toBe(1);
  const generations = async () => {
    const rows = await ledger.database.query<{ generation: string }>(
      "select generation from fenceline.session join fenceline.policy_scope using (scope_id) " +
        "join fenceline.source using (source_id) where source.name = $1 order by generation",
      [cast.source],
    );
    return rows.map(({ generation }) => Number(generation));
  };
  const freshness = async () => (await ask(ledger, config, "first", cast.asker)).map((hit) => hit.freshness);
  return { server, pool, generations, freshness };
}

describe("a server that does not know the MCP session any more", () => {
  test.each([
    ["404", 404, "text/plain", "unknown session"],
    [
      "400 with -32000",
      400,
      "application/json",
      '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"No valid session ID provided"}}',
    ],
    ["400 with plain text", 400, "text/plain", "Invalid or missing session ID"],
    ["200 with a page", 200, "text/html", "<html>please log in</html>"],
    ["200 with JSON that is no answer", 200, "application/json", '{"ok":false}'],
    [
      "200 with an error",
      200,
      "application/json",
      '{"jsonrpc":"2.0","id":ID,"error":{"code":-32001,"message":"Session not found"}}',
    ],
    [
      "200 with an error for no request",
      200,
      "application/json",
      '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"No valid session ID provided"}}',
    ],
  ])(
    "and says so by %s: a new session generation, subscribed again, everything read again (U4)",
    async (_, status, contentType, body) => {
      const { server, pool, generations, freshness } = await servedLegacy();
      expect(await generations()).toEqual([1]);

      server.subscribed.clear();
      server.forgetSessions({ status, contentType, body });

      await expect.poll(generations, within).toEqual([1, 2]);
      await expect.poll(() => [...server.subscribed], within).toEqual(["note://a"]);
      await expect.poll(() => pool.stats().sources[0]?.pushed, within).toBe(1);
      await expect.poll(freshness, within).toEqual(["fresh"]);
    },
  );
});

describe("a server that dies shortly after each start", () => {
  test("is started again after ever longer pauses, though each time it had begun to work (U4)", async () => {
    const pauses: number[] = [];
    const log = new Writable({
      write(line, _encoding, done) {
        const { pauseMs } = JSON.parse(String(line)) as { pauseMs?: number };
        if (pauseMs !== undefined) pauses.push(pauseMs);
        done();
      },
    });
    const cast = newCast();
    const args = [fileURLToPath(new URL("../mcp/stdio-server.mjs", import.meta.url))];
    const config = configFor(cast, "http://unused/", {
      mcpServers: { [cast.source]: { command: process.execPath, args, env: { MODE: "dying" }, reader: cast.reader } },
    });
    const confirm = await otherTestsOver(ledgerOf());
    const pool = await startWorkers({ ledger: ledgerOf(), config, logger: pino({ level: "debug" }, log), confirm });
    onTestFinished(() => pool.close({ deadlineMs: 5_000 }));

    await expect.poll(() => pauses.length, { timeout: 40 * SECONDS, interval: 50 }).toBeGreaterThanOrEqual(4);

    // Twice as long each time, give or take a fifth.
    for (const [at, pause] of pauses.slice(1).entries()) expect(pause / (pauses[at] as number)).toBeGreaterThan(1.3);
    expect(pool.stats().sources[0]?.reads.accepted).toBeGreaterThanOrEqual(1);
  });
});
