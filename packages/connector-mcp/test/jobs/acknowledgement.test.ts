import { describe, expect, onTestFinished, test, vi } from "vitest";
import { startLegacyServer } from "../mcp/legacy-server.js";
import { useLedger } from "./pool-setup.js";
import { startScriptedNotes } from "./scripted-notes.js";
import { servedSource } from "./served-source.js";

const SECONDS = 1_000;
vi.setConfig({ testTimeout: 60 * SECONDS });
const within = { timeout: 20 * SECONDS, interval: 50 };
const patient = { timeout: 40 * SECONDS, interval: 100 };

const ledgerOf = useLedger();

describe("what a server acknowledges", () => {
  test("narrowed: the rest is polled, shown as polled, and its changes are found by the timer (U2, U3)", async () => {
    const server = await startScriptedNotes({
      acknowledge: (asked) => ({ ...asked, resourceSubscriptions: ["note://a"] }),
    });
    const { modes, texts } = await servedSource(ledgerOf(), server.url, { pollMs: 500 });
    await expect.poll(modes, within).toEqual({ pushed: 1, polled: 2 });
    await expect.poll(texts, within).toEqual(["first", "second", "third"]);
    server.resources.set("note://b", "price=140");
    await expect.poll(texts, within).toEqual(["first", "price=140", "third"]);
  });

  test("narrowed for a while: what was left out is asked for again after a later discovery, and pushed (U2, U3)", async () => {
    let narrow = true;
    const server = await startScriptedNotes({
      acknowledge: (asked) => (narrow ? { ...asked, resourceSubscriptions: ["note://a"] } : asked),
    });
    const { modes, texts } = await servedSource(ledgerOf(), server.url, { pollMs: 500 });
    await expect.poll(modes, within).toEqual({ pushed: 1, polled: 2 });
    await expect.poll(texts, within).toEqual(["first", "second", "third"]);
    narrow = false;
    server.resources.set("note://d", "fourth");
    server.announceList();
    await expect.poll(modes, within).toEqual({ pushed: 4, polled: 0 });
  });

  test("widened: nothing is pushed that was not asked for, and the rest is (U2)", async () => {
    const server = await startScriptedNotes({
      acknowledge: ({ resourceSubscriptions = [], ...asked }) => ({
        ...asked,
        resourceSubscriptions: [...(resourceSubscriptions as string[]), "note://elsewhere"],
      }),
    });
    const { modes, texts } = await servedSource(ledgerOf(), server.url);
    await expect.poll(modes, within).toEqual({ pushed: 3, polled: 0 });
    await expect.poll(texts, within).toEqual(["first", "second", "third"]);
  });

  test.each([
    ["malformed", () => ({ resourceSubscriptions: "all" })],
    ["malformed as a whole", () => 7],
    ["empty", () => ({})],
  ])("%s: all are polled until a later try is acknowledged, and then pushed (U2, U3)", async (_name, first) => {
    let mended = false;
    const server = await startScriptedNotes({ acknowledge: (asked) => (mended ? asked : first()) });
    const { modes, texts, receipts } = await servedSource(ledgerOf(), server.url, { pollMs: 500 });
    await expect.poll(modes, within).toEqual({ pushed: 0, polled: 3 });
    await expect.poll(texts, within).toEqual(["first", "second", "third"]);
    server.resources.set("note://b", "price=140");
    await expect.poll(texts, within).toEqual(["first", "price=140", "third"]);
    expect(await receipts("stream_opened")).toBe(0);

    mended = true;
    await expect.poll(modes, within).toEqual({ pushed: 3, polled: 0 });
  });
});

describe("a server that acknowledges and does not announce", () => {
  test("its change is found by the periodic read, and all is shown as polled until it announces something (U3, U6)", async () => {
    const server = await startScriptedNotes();
    const { modes, texts } = await servedSource(ledgerOf(), server.url, { pollMs: 1 * SECONDS, rereadMs: 1 * SECONDS });
    await expect.poll(modes, within).toEqual({ pushed: 3, polled: 0 });
    await expect.poll(texts, within).toEqual(["first", "second", "third"]);

    server.resources.set("note://b", "price=140");
    await expect.poll(texts, within).toEqual(["first", "price=140", "third"]);
    await expect.poll(modes, within).toEqual({ pushed: 0, polled: 3 });

    server.announce("note://c");
    // The change of this one still came unannounced.
    await expect.poll(modes, within).toEqual({ pushed: 2, polled: 1 });
    server.announce("note://b");
    await expect.poll(modes, within).toEqual({ pushed: 3, polled: 0 });
  });

  test("in the older era: its change is found by the periodic read, and it is shown as polled (U3, U6)", async () => {
    const server = await startLegacyServer();
    onTestFinished(() => server.close());
    const { modes, texts } = await servedSource(ledgerOf(), server.url, { pollMs: 1 * SECONDS, rereadMs: 1 * SECONDS });
    await expect.poll(modes, within).toEqual({ pushed: 1, polled: 0 });
    await expect.poll(texts, within).toEqual(["first"]);

    server.resources.set("note://a", "price=140");
    await expect.poll(texts, within).toEqual(["price=140"]);
    await expect.poll(modes, within).toEqual({ pushed: 0, polled: 1 });
    await server.sendUpdated("note://a");
    await expect.poll(modes, within).toEqual({ pushed: 1, polled: 0 });
  });

  test("one resource of which: it is polled, and those that are announced stay pushed (U3, U6)", async () => {
    const server = await startScriptedNotes();
    const { modes, texts } = await servedSource(ledgerOf(), server.url, { pollMs: 1 * SECONDS, rereadMs: 1 * SECONDS });
    await expect.poll(modes, within).toEqual({ pushed: 3, polled: 0 });
    await expect.poll(texts, within).toEqual(["first", "second", "third"]);

    server.resources.set("note://a", "price=120");
    server.announce("note://a");
    await expect.poll(texts, within).toEqual(["price=120", "second", "third"]);
    server.resources.set("note://b", "price=140");
    await expect.poll(modes, within).toEqual({ pushed: 2, polled: 1 });
    expect(await texts()).toContain("price=140");
  });
});

describe("the subscriptions of a large source", () => {
  test("are spread over streams, of which the break of one has its own alone read again (U4)", async () => {
    const server = await startScriptedNotes();
    for (let number = 0; number < 2_500; number += 1) server.resources.set(`note://many/${number}`, `text ${number}`);
    const { modes, pool } = await servedSource(ledgerOf(), server.url);
    await expect.poll(modes, patient).toEqual({ pushed: 2_503, polled: 0 });
    await expect.poll(() => server.reads.size, patient).toBe(2_503);
    await pool.idle({ timeoutMs: 30 * SECONDS });
    const before = new Map(server.reads);
    const asked = new Set(server.listens().at(-1));
    expect(asked.size).toBe(503);
    expect(server.streams.size).toBe(2);

    [...server.streams].at(-1)?.destroy();
    const again = () => [...server.reads].filter(([uri, reads]) => reads > (before.get(uri) ?? 0)).map(([uri]) => uri);
    await expect.poll(() => again().length, patient).toBe(503);
    await pool.idle({ timeoutMs: 30 * SECONDS });
    expect(new Set(again())).toEqual(asked);
  });
});
