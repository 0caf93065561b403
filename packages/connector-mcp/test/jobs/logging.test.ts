import { Writable } from "node:stream";
import { pino } from "pino";
import { expect, onTestFinished, test, vi } from "vitest";
import { startWorkers } from "#src/jobs/worker-pool.js";
import { startModernServer } from "../mcp/modern-server.js";
import { configFor, newCast, useLedger } from "./pool-setup.js";

const SECONDS = 1_000;
vi.setConfig({ testTimeout: 60 * SECONDS });

const ledgerOf = useLedger();

test("the log of a pool, at its most talkative, holds neither credentials nor content", async () => {
  const server = await startModernServer();
  onTestFinished(() => server.close());
  server.resources.set("note://a", "the-content-itself");
  const cast = newCast();
  const { source, reader } = cast;
  const config = configFor(cast, server.url, {
    mcpServers: { [source]: { url: server.url, reader, headers: { Authorization: "Bearer secret-token-1" } } },
  });
  const lines: string[] = [];
  const sink = new Writable({
    write(chunk, _encoding, done) {
      lines.push(String(chunk));
      done();
    },
  });
  const pool = await startWorkers({ ledger: ledgerOf(), config, logger: pino({ level: "trace" }, sink) });
  onTestFinished(() => pool.close({ deadlineMs: 5 * SECONDS }));
  expect(await pool.idle({ timeoutMs: 30 * SECONDS })).toBe("idle");

  // The server's refusal repeats the credential it was sent.
  server.refuseWith(401);
  server.cut();
  const codes = () => pool.stats().sources[0]?.problems.map(({ code }) => code);
  await expect.poll(codes, { timeout: 20 * SECONDS }).toContain("source_unauthorized");
  await pool.close();

  const log = lines.join("");
  expect(log).toContain("stream open");
  expect(log).toContain("source_unauthorized");
  expect(log).not.toContain("secret-token-1");
  expect(log).not.toContain("the-content-itself");
  expect(JSON.stringify(pool.stats())).not.toContain("secret-token-1");
});
