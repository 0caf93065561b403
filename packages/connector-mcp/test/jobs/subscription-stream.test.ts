import { describe, expect, onTestFinished, test, vi } from "vitest";
import { startLegacyServer } from "../mcp/legacy-server.js";
import { updated } from "../mcp/scripted-server.js";
import { interceptedLedger } from "./intercepted-ledger.js";
import { useLedger } from "./pool-setup.js";
import { startScriptedNotes } from "./scripted-notes.js";
import { servedSource } from "./served-source.js";

const SECONDS = 1_000;
vi.setConfig({ testTimeout: 60 * SECONDS });
const within = { timeout: 20 * SECONDS, interval: 50 };

const ledgerOf = useLedger();

function signal(): [wait: Promise<void>, give: () => void] {
  let give: () => void = () => undefined;
  const wait = new Promise<void>((resolve) => {
    give = resolve;
  });
  return [wait, give];
}

const readsIn = (reads: ReadonlyMap<string, number>) => [...reads.values()];

describe("a notification that overtakes the activation of its subscription", () => {
  test.each(["before", "after"])(
    "unsubscribes nothing where the ledger answers it %s the activation, and what is announced next is read (U2, U5, U11)",
    async (answered) => {
      const server = await startScriptedNotes();
      const [isDecided, decide] = signal();
      const [isActivated, activate] = signal();
      const ledger = interceptedLedger(ledgerOf(), (real) => ({
        async recordNotifications(...request) {
          const outcomes = await real.recordNotifications(...request);
          if (outcomes.length > 0) decide();
          if (answered === "after") await isActivated;
          return outcomes;
        },
        async activateSubscriptions(session, answer) {
          if (answer.pushed.length > 0) {
            server.announce("note://a");
            await isDecided;
          }
          await real.activateSubscriptions(session, answer);
          activate();
        },
      }));
      const { pool, modes, texts } = await servedSource(ledger, server.url);
      expect(await pool.idle({ timeoutMs: 30 * SECONDS })).toBe("idle");

      server.resources.set("note://a", "price=120");
      server.announce("note://a");
      await expect.poll(texts, within).toContain("price=120");
      expect(server.listens().at(-1)).toContain("note://a");
      expect(modes()).toEqual({ pushed: 3, polled: 0 });
    },
  );
});

describe("a stream that cannot be opened", () => {
  test("serves on the timer while listens fail, and pushes and reads everything again with the next (U3, U4)", async () => {
    let refusing = false;
    let refused = 0;
    const server = await startScriptedNotes({
      listen() {
        if (refusing) refused += 1;
        return refusing ? { status: 503 } : undefined;
      },
    });
    const { modes, texts, freshness, receipts } = await servedSource(ledgerOf(), server.url);
    await expect.poll(texts, within).toEqual(["first", "second", "third"]);
    await expect.poll(modes, within).toEqual({ pushed: 3, polled: 0 });
    const activated = await receipts("activated");

    refusing = true;
    server.cut();
    await expect.poll(() => refused, within).toBeGreaterThanOrEqual(3);
    expect(modes()).toEqual({ pushed: 0, polled: 3 });
    const before = readsIn(server.reads);
    server.resources.set("note://c", "price=140");
    refusing = false;

    await expect.poll(modes, within).toEqual({ pushed: 3, polled: 0 });
    await expect.poll(texts, within).toEqual(["first", "price=140", "second"]);
    await expect.poll(freshness, within).toEqual(["fresh", "fresh", "fresh"]);
    expect(readsIn(server.reads).map((reads, at) => reads - (before[at] ?? 0))).toEqual([1, 1, 1]);
    // Put on the timer once and pushed once, however many tries failed.
    expect((await receipts("activated")) - activated).toBe(6);
  });

  test("is opened again after a GET stream of the older era was answered 503 twice (U3, U4)", async () => {
    const server = await startLegacyServer();
    onTestFinished(() => server.close());
    server.refuseNextStreams(503, 503);
    const { modes, texts } = await servedSource(ledgerOf(), server.url);
    await expect.poll(texts, within).toEqual(["first"]);
    await expect.poll(modes, within).toEqual({ pushed: 1, polled: 0 });

    server.refuseNextStreams(503, 503);
    server.cut();
    server.resources.set("note://a", "price=140");
    await expect.poll(texts, within).toEqual(["price=140"]);
    await expect.poll(modes, within).toEqual({ pushed: 1, polled: 0 });
    server.resources.set("note://a", "price=160");
    await server.sendUpdated("note://a");
    await expect.poll(texts, within).toEqual(["price=160"]);
  });
});

describe("a resource that is revoked while it is on the timer", () => {
  test("is left out of the listen request that is accepted next (U7, P2)", async () => {
    let refusing = true;
    const server = await startScriptedNotes({ listen: () => (refusing ? { status: 503 } : undefined) });
    const { modes, cast } = await servedSource(ledgerOf(), server.url);
    await expect.poll(modes, within).toEqual({ pushed: 0, polled: 3 });
    const { source, reader } = cast;
    await ledgerOf().revoke({ source, subject: reader, scope: { uri: "note://a" }, reason: "confidential" });
    const closed = () =>
      ledgerOf().database.query<{ uri: string }>(
        `select s.uri from fenceline.subscription s join fenceline.policy_scope p using (scope_id)
         join fenceline.source src using (source_id) where src.name = $1 and s.lifecycle = 'CLOSED'`,
        [source],
      );
    await expect.poll(closed, within).toEqual([{ uri: "note://a" }]);
    refusing = false;
    await expect.poll(modes, within).toEqual({ pushed: 2, polled: 0 });
    expect(server.listens().at(-1)).toEqual(["note://b", "note://c"]);
  });
});

describe("a stream for which nothing is left to ask", () => {
  test("is not opened while a revocation stands, and again after its lift (U7, P2)", async () => {
    let refusing = true;
    const server = await startScriptedNotes({
      capabilities: { resources: { subscribe: true } },
      listen: () => (refusing ? { status: 503 } : undefined),
    });
    const { modes, cast } = await servedSource(ledgerOf(), server.url, { reviewMs: 100 });
    await expect.poll(modes, within).toEqual({ pushed: 0, polled: 3 });
    const { source, reader } = cast;
    const { revocationId } = await ledgerOf().revoke({ source, subject: reader, reason: "by mistake" });
    await expect.poll(modes, within).toEqual({ pushed: 0, polled: 0 });
    refusing = false;
    // Discoveries go on meanwhile, and find nothing that may be asked for.
    const lists = () => server.requests.filter(({ method }) => method === "resources/list").length;
    const before = lists();
    await expect.poll(() => lists() - before, { timeout: 40 * SECONDS, interval: 50 }).toBeGreaterThan(20);
    const listens = server.listens().length;

    await ledgerOf().lift(revocationId);
    await expect.poll(modes, within).toEqual({ pushed: 3, polled: 0 });
    expect(server.listens().slice(listens)).toEqual([["note://a", "note://b", "note://c"]]);
  });
});

describe("a server that ends each stream in good order at once", () => {
  test("is left to the timer: nothing is pushed, a change is found, and the streams lead to no reads (U3, U4)", async () => {
    let ending = false;
    const server = await startScriptedNotes({ listen: () => (ending ? "end" : undefined) });
    const { modes, texts, receipts } = await servedSource(ledgerOf(), server.url, { pollMs: 2 * SECONDS });
    await expect.poll(modes, within).toEqual({ pushed: 3, polled: 0 });
    await expect.poll(texts, within).toEqual(["first", "second", "third"]);
    const opened = await receipts("stream_opened");
    const before = server.listens().length;

    ending = true;
    server.cut();
    await expect.poll(modes, within).toEqual({ pushed: 0, polled: 3 });
    server.resources.set("note://b", "price=140");
    await expect.poll(texts, within).toEqual(["first", "price=140", "third"]);
    await expect.poll(() => server.listens().length - before, within).toBeGreaterThanOrEqual(4);
    expect(modes()).toEqual({ pushed: 0, polled: 3 });
    expect(await receipts("stream_opened")).toBe(opened);

    ending = false;
    await expect.poll(modes, within).toEqual({ pushed: 3, polled: 0 });
  });

  test("or a little later: what it ends has to last as long as the pause before it until all is read for it (U3, U4)", async () => {
    const server = await startScriptedNotes({ listen: () => ({ endAfterMs: 300 }) });
    const { modes, receipts } = await servedSource(ledgerOf(), server.url);
    await expect.poll(() => server.listens().length, within).toBeGreaterThanOrEqual(7);
    // The first counts at once, one or two after short pauses, and none of the rest.
    expect(await receipts("stream_opened")).toBeLessThanOrEqual(4);
    expect(modes()).toEqual({ pushed: 0, polled: 3 });
  });

  test("is asked after ever longer pauses (U3)", async () => {
    const at: number[] = [];
    const server = await startScriptedNotes({
      listen() {
        at.push(performance.now());
        return "end";
      },
    });
    const { modes } = await servedSource(ledgerOf(), server.url);
    await expect.poll(() => at.length, within).toBeGreaterThanOrEqual(6);
    // 200 ms doubled four times, each shortened by a fifth at most.
    expect((at[5] as number) - (at[0] as number)).toBeGreaterThanOrEqual(0.8 * (200 + 400 + 800 + 1_600));
    expect(modes()).toEqual({ pushed: 0, polled: 3 });
  });
});

describe("the break of a stream", () => {
  test("that the ledger could not take at once is told again before another stream is opened (U4)", async () => {
    const server = await startScriptedNotes();
    const told: string[] = [];
    let failures = 0;
    const ledger = interceptedLedger(ledgerOf(), (real) => ({
      async breakStream(...request) {
        failures += 1;
        if (failures <= 2) throw new Error("the database is being restarted");
        await real.breakStream(...request);
        told.push("broken");
      },
      openStream(...request) {
        told.push("opened");
        return real.openStream(...request);
      },
    }));
    const { modes } = await servedSource(ledger, server.url);
    await expect.poll(modes, within).toEqual({ pushed: 3, polled: 0 });
    server.cut();
    await expect.poll(() => told, within).toEqual(["opened", "broken", "opened"]);
    expect(failures).toBe(3);
  });
});

describe("a notification that changes nothing", () => {
  test("is counted: of another subscription, of none, or for what is not subscribed (U11)", async () => {
    const server = await startScriptedNotes();
    const { modes, pool } = await servedSource(ledgerOf(), server.url);
    await expect.poll(modes, within).toEqual({ pushed: 3, polled: 0 });
    server.send(updated("note://a", "listen:99"));
    server.send(updated("note://a", undefined));
    server.announce("note://elsewhere");
    await expect.poll(() => pool.stats().sources[0]?.notificationsIgnored, within).toBe(3);
  });
});
