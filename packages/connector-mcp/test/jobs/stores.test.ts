import { describe, expect, onTestFinished, test, vi } from "vitest";
import { MemoryStore } from "../langchain/memory-stores.js";
import { startModernServer } from "../mcp/modern-server.js";
import { ask, configFor, newCast, startPool, useLedger } from "./pool-setup.js";

const SECONDS = 1_000;
vi.setConfig({ testTimeout: 60 * SECONDS });
const within = { timeout: 30 * SECONDS, interval: 50 };

const ledgerOf = useLedger();

describe("a store that is down during a purge", () => {
  test("stops no other: the rest is verified absent, the revocation stays open, and it ends when the store is back (P5)", async () => {
    const server = await startModernServer();
    onTestFinished(() => server.close());
    const cast = newCast();
    const flaky = new MemoryStore();
    const config = configFor(cast, server.url, { indexes: { main: {}, second: { store: flaky } } });
    const pool = await startPool(ledgerOf(), config);
    expect(await pool.idle({ timeoutMs: 30 * SECONDS })).toBe("idle");
    expect(flaky.rows.size).toBe(3);

    let isDown = true;
    flaky.onCall = () => {
      if (isDown) throw new TypeError("connection refused");
    };
    const { revocationId } = await ledgerOf().revoke({
      source: cast.source,
      subject: cast.reader,
      reason: "trial ended",
    });
    const remaining = async () => {
      const stores = (await ledgerOf().revocation(revocationId))?.stores ?? [];
      return Object.fromEntries(stores.map((store) => [store.store, store.remaining]));
    };
    await expect.poll(remaining, within).toEqual({ embedded: 0, second: 3 });
    expect((await ledgerOf().revocation(revocationId))?.state).toBe("EFFECTIVE");

    isDown = false;
    await expect.poll(async () => (await ledgerOf().revocation(revocationId))?.state, within).toBe("COMPLETE");

    expect(flaky.rows.size).toBe(0);
    expect(await remaining()).toEqual({ embedded: 0, second: 0 });
    expect(await ask(ledgerOf(), configFor(cast, server.url), "first", cast.asker)).toEqual([]);
  });
});
