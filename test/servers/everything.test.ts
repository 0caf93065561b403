import { describe, expect, test, vi } from "vitest";
import { ingest, within } from "./ingestion.js";
import { freePort, published, startListening } from "./published-servers.js";

vi.setConfig({ testTimeout: 90_000 });

/** Switches its announcements on: for every subscribed resource, at once and every five seconds, changed or not. */
const afterConnect = [{ tool: "toggle-subscriber-updates", arguments: {} }];
const allOfIt = {
  era: "legacy",
  pushed: 7,
  polled: 0,
  scan: { verdict: "SNAPSHOT_UNPROVEN", resources: 7 },
  problems: [],
};

describe("server-everything", () => {
  test("stdio: what it announces without a change moves no version and indexes nothing again (F6)", async () => {
    const { stats, ledger, ask } = await ingest({
      command: process.execPath,
      args: [published.everything, "stdio"],
      afterConnect,
    });
    expect(stats()).toMatchObject(allOfIt);
    expect((await ask("what does the echo tool do")).some(({ text }) => text.includes("echo"))).toBe(true);
    const written = stats().entries.written;

    await expect.poll(() => stats().reads.unchanged, within).toBeGreaterThanOrEqual(7);

    expect(stats().reads.accepted).toBe(7);
    expect(stats().entries.written).toBe(written);
    const [hit] = await ask("what does the echo tool do");
    expect((await ledger.trace({ uri: hit?.uri ?? "" })).versions).toHaveLength(1);
  });

  test("HTTP: a restart, which it answers with 400 and -32000, leads to a new session that subscribes and reads all again (U4)", async () => {
    const port = await freePort();
    const start = () => startListening([published.everything, "streamableHttp"], { port, env: { PORT: String(port) } });
    const first = await start();
    const { stats, ledger } = await ingest(
      { url: `http://127.0.0.1:${port}/mcp`, afterConnect },
      { requestTimeoutMs: 5_000 },
    );
    expect(stats()).toMatchObject(allOfIt);
    const pushed = async () => (await ledger.status()).sources[0]?.pushed;
    expect(await pushed()).toBe(7);

    await first.stop();
    await expect.poll(pushed, within).not.toBe(7);
    const issued = stats().reads.issued;
    await start();

    await expect.poll(pushed, { ...within, timeout: 45_000 }).toBe(7);
    await expect.poll(() => stats().reads.issued, within).toBeGreaterThanOrEqual(issued + 7);
    // It announces again, which it does for whom it knows only.
    const unchanged = stats().reads.unchanged;
    await expect.poll(() => stats().reads.unchanged, within).toBeGreaterThanOrEqual(unchanged + 7);
    expect(stats().reads.accepted).toBe(7);
  });
});
