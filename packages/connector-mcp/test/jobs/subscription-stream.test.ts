import { describe, expect, onTestFinished, test, vi } from "vitest";
import { startModernServer } from "../mcp/modern-server.js";
import { interceptedLedger } from "./intercepted-ledger.js";
import { ask, configFor, newCast, startPool, useLedger } from "./pool-setup.js";

const SECONDS = 1_000;
vi.setConfig({ testTimeout: 60 * SECONDS });
const within = { timeout: 20 * SECONDS, interval: 50 };

const ledgerOf = useLedger();

describe("a notification that overtakes the activation of its subscription", () => {
  test("unsubscribes nothing, and what is announced next is read (U2, U5, U11)", async () => {
    const server = await startModernServer();
    onTestFinished(() => server.close());
    let told: () => void = () => undefined;
    const answered = new Promise<void>((resolve) => {
      told = resolve;
    });
    const cast = newCast();
    const config = configFor(cast, server.url);
    const ledger = interceptedLedger(ledgerOf(), (real) => ({
      async recordNotifications(...request) {
        const outcomes = await real.recordNotifications(...request);
        if (outcomes.length > 0) told();
        return outcomes;
      },
      async activateSubscriptions(session, answer) {
        if (answer.pushed.length > 0) {
          server.notify.resourceUpdated("note://a");
          await answered;
        }
        return real.activateSubscriptions(session, answer);
      },
    }));
    const pool = await startPool(ledger, config);
    expect(await pool.idle({ timeoutMs: 30 * SECONDS })).toBe("idle");

    server.resources.set("note://a", "price=120");
    server.notify.resourceUpdated("note://a");
    const texts = async () => (await ask(ledgerOf(), config, "price", cast.asker)).map(({ text }) => text);
    await expect.poll(texts, within).toContain("price=120");
    expect(server.listens.at(-1)).toContain("note://a");
    expect(pool.stats().sources[0]).toMatchObject({ pushed: 3, polled: 0 });
  });
});
