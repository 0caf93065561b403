import type { Session } from "@fenceline/ledger";
import { describe, expect, test } from "vitest";
import { type LeaseLedger, SessionLease } from "#src/jobs/session-lease.js";

const session: Session = {
  sessionId: 1,
  scopeId: 1,
  sourceId: 1,
  source: "catalog",
  reader: "svc:rag",
  generation: 1,
  leaseMs: 300,
};
const request = { source: "catalog", reader: "svc:rag", owner: "me", leaseMs: 300 };

/** The session part of a ledger, with heartbeats answered as the test says. */
function ledgerWith(heartbeat: () => Promise<"held" | "lost">) {
  const ended: Session[] = [];
  const ledger: LeaseLedger = {
    openSession: async () => ({ outcome: "opened", session }),
    heartbeat,
    endSession: async (given) => void ended.push(given),
  };
  return { ledger, ended };
}

async function take(ledger: LeaseLedger): Promise<SessionLease> {
  const taken = await SessionLease.take(ledger, request);
  if (taken.outcome !== "taken") return expect.fail("the session was held");
  return taken.lease;
}

describe("a session lease", () => {
  test("whose heartbeat hangs is lost when the lease ends, counted from when the last answered one was sent", async () => {
    const { ledger } = ledgerWith(() => new Promise(() => undefined));
    const startedAt = performance.now();

    const lease = await take(ledger);
    expect(lease.held).toBe(true);
    await expect.poll(() => lease.lost.aborted, { timeout: 2_000, interval: 5 }).toBe(true);

    expect(lease.held).toBe(false);
    expect(performance.now() - startedAt).toBeGreaterThanOrEqual(295);
  });

  test("that another holder took over is lost at the next heartbeat, long before its time", async () => {
    const { ledger } = ledgerWith(async () => "lost");
    const startedAt = performance.now();

    const lease = await take(ledger);
    await expect.poll(() => lease.lost.aborted, { timeout: 2_000, interval: 5 }).toBe(true);

    expect(performance.now() - startedAt).toBeLessThan(290);
  });

  test("outlives many lease times while heartbeats are answered, and gives the session back at its end", async () => {
    let beats = 0;
    const { ledger, ended } = ledgerWith(async () => {
      beats += 1;
      return "held";
    });

    const lease = await take(ledger);
    await expect.poll(() => beats, { timeout: 5_000 }).toBeGreaterThanOrEqual(6);
    expect(lease.held).toBe(true);
    await lease.end();

    expect(lease.held).toBe(false);
    expect(lease.lost.aborted).toBe(false);
    expect(ended).toEqual([session]);
  });

  test("that was lost does not end the session of the one who has it now", async () => {
    const { ledger, ended } = ledgerWith(async () => "lost");

    const lease = await take(ledger);
    await expect.poll(() => lease.lost.aborted, { timeout: 2_000 }).toBe(true);
    await lease.end();

    expect(ended).toEqual([]);
  });
});
