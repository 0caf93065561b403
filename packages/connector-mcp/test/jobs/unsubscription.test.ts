import type { Ledger } from "@fenceline/ledger";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { startLegacyServer } from "../mcp/legacy-server.js";
import { startModernServer } from "../mcp/modern-server.js";
import { type Cast, configFor, newCast, startPool, useLedger } from "./pool-setup.js";

const SECONDS = 1_000;
vi.setConfig({ testTimeout: 60 * SECONDS });
const within = { timeout: 20 * SECONDS, interval: 50 };
const URI = "note://a";

const ledgerOf = useLedger();

/** A pool that serves this server, everything subscribed and read. */
async function served(url: string) {
  const ledger = ledgerOf();
  const cast = newCast();
  const pool = await startPool(ledger, configFor(cast, url));
  expect(await pool.idle({ timeoutMs: 30 * SECONDS })).toBe("idle");
  const revoked = await ledger.revoke({
    source: cast.source,
    subject: cast.reader,
    scope: { uri: URI },
    reason: "confidential",
  });
  return { ledger, cast, pool, revocationId: revoked.revocationId };
}

async function subscriptionOf(ledger: Ledger, cast: Cast) {
  const [row] = await ledger.database.query<{ lifecycle: string; generation: number; pushed: boolean }>(
    `select s.lifecycle::text, s.generation, s.pushed
     from fenceline.subscription s join fenceline.policy_scope p using (scope_id)
     join fenceline.source src using (source_id) where src.name = $1 and s.uri = $2`,
    [cast.source, URI],
  );
  return row;
}

describe("what a revocation closed", () => {
  test("is left out of the next listen request, and then CLOSED; a lift subscribes it again (U7, U9, P2)", async () => {
    const server = await startModernServer();
    onTestFinished(() => server.close());
    const { ledger, cast, pool, revocationId } = await served(server.url);
    expect(server.listens.at(-1)).toContain(URI);

    await expect.poll(() => subscriptionOf(ledger, cast), within).toMatchObject({ lifecycle: "CLOSED", pushed: false });
    expect(server.listens.at(-1)).toEqual(["note://b", "note://c"]);
    await expect.poll(() => pool.stats().sources[0]?.pushed, within).toBe(2);

    await ledger.lift(revocationId);
    await expect
      .poll(() => subscriptionOf(ledger, cast), within)
      .toEqual({ lifecycle: "ACTIVE", generation: 2, pushed: true });
    expect(server.listens.at(-1)).toContain(URI);
  });

  test("is unsubscribed at a server of the older era, and then CLOSED; a lift subscribes it again (U7, U9, P2)", async () => {
    const server = await startLegacyServer();
    onTestFinished(() => server.close());
    const { ledger, cast, revocationId } = await served(server.url);

    await expect.poll(() => subscriptionOf(ledger, cast), within).toMatchObject({ lifecycle: "CLOSED", pushed: false });
    expect(server.subscribed).toEqual(new Set());

    await ledger.lift(revocationId);
    await expect
      .poll(() => subscriptionOf(ledger, cast), within)
      .toEqual({ lifecycle: "ACTIVE", generation: 2, pushed: true });
    expect(server.subscribed).toEqual(new Set([URI]));
  });

  test("stays UNSUBSCRIBE_UNKNOWN while the server does not confirm, also after a lift, until the session ends (U9)", async () => {
    const server = await startLegacyServer();
    onTestFinished(() => server.close());
    server.refuseUnsubscribe();
    const { ledger, cast, pool, revocationId } = await served(server.url);

    await expect.poll(() => subscriptionOf(ledger, cast), within).toMatchObject({ lifecycle: "UNSUBSCRIBE_UNKNOWN" });
    await ledger.lift(revocationId);
    expect(await subscriptionOf(ledger, cast)).toMatchObject({ lifecycle: "UNSUBSCRIBE_UNKNOWN", generation: 1 });

    await pool.close();
    expect(await subscriptionOf(ledger, cast)).toMatchObject({ lifecycle: "SUBSCRIBING", generation: 2 });
  });

  test("stays so until the server loses the MCP session, with which the ledger's ends; the next subscribes it anew (U4, U9)", async () => {
    const server = await startLegacyServer();
    onTestFinished(() => server.close());
    server.refuseUnsubscribe();
    const { ledger, cast, revocationId } = await served(server.url);
    await expect.poll(() => subscriptionOf(ledger, cast), within).toMatchObject({ lifecycle: "UNSUBSCRIBE_UNKNOWN" });
    await ledger.lift(revocationId);

    server.forgetSessions();
    server.cut();

    await expect
      .poll(() => subscriptionOf(ledger, cast), within)
      .toEqual({ lifecycle: "ACTIVE", generation: 2, pushed: true });
  });
});
