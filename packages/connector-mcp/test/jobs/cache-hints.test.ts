import { describe, expect, onTestFinished, test, vi } from "vitest";
import { startModernServer } from "../mcp/modern-server.js";
import { startScriptedServer } from "../mcp/scripted-server.js";
import { ask, configFor, newCast, startPool, useLedger } from "./pool-setup.js";
import { servedSource } from "./served-source.js";

const SECONDS = 1_000;
vi.setConfig({ testTimeout: 60 * SECONDS });
const within = { timeout: 20 * SECONDS, interval: 50 };

const ledgerOf = useLedger();

describe("what a server says about caching its answers", () => {
  test("ttlMs is a hint that stretches the timer, and the content still counts as confirmed when it was read (U3)", async () => {
    const server = await startModernServer({ capabilities: { resources: {} }, ttlMs: 300 * SECONDS });
    onTestFinished(() => server.close());
    const { modes, texts, cast } = await servedSource(ledgerOf(), server.url, { pollMs: 1 * SECONDS });
    await expect.poll(texts, within).toEqual(["first", "second", "third"]);
    expect(modes()).toEqual({ pushed: 0, polled: 3 });
    const [due] = await ledgerOf().database.query<{ soonest_ms: number }>(
      `select min(extract(epoch from s.due_at - s.verified_at) * 1000)::int as soonest_ms
       from fenceline.subscription s join fenceline.policy_scope p using (scope_id)
       join fenceline.source src using (source_id) where src.name = $1`,
      [cast.source],
    );
    // A fifth less, by the jitter.
    expect(due?.soonest_ms).toBeGreaterThanOrEqual(0.8 * 300 * SECONDS);
  });

  test.each(["private", "public"])(
    "an answer of cacheScope %s read for one reader is never served as another's, whose own is read for itself (F8, F11)",
    async (cacheScope) => {
      const server = await startScriptedServer({
        capabilities: { resources: {} },
        reply(method, { uri }, _asked, { authorization }) {
          if (method === "resources/list") return { result: { resources: [{ uri: "note://mine", name: "mine" }] } };
          if (method !== "resources/read") return undefined;
          const text = `of ${authorization?.replace("Bearer ", "")}`;
          return { result: { contents: [{ uri, text }], cacheScope, ttlMs: 600 * SECONDS } };
        },
      });
      onTestFinished(() => server.close());
      const { source, reader, asker } = newCast();
      const others = `${reader}-2`;
      const readers = {
        [reader]: { headers: { Authorization: "Bearer one" } },
        [others]: { headers: { Authorization: "Bearer two" } },
      };
      const config = configFor({ source, reader, asker }, server.url, {
        mcpServers: { [source]: { url: server.url, readers } },
      });
      const pool = await startPool(ledgerOf(), config);
      expect(await pool.idle({ timeoutMs: 30 * SECONDS })).toBe("idle");

      const textsFor = async (...who: string[]) => (await ask(ledgerOf(), config, "of", who)).map(({ text }) => text);
      // Granted is what the first one reads.
      expect(await textsFor(...asker)).toEqual(["of one"]);
      expect(await textsFor(reader)).toEqual(["of one"]);
      expect(await textsFor(others)).toEqual(["of two"]);
      expect(server.requests.filter(({ method }) => method === "resources/read")).toHaveLength(2);
    },
  );
});
