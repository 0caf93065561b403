import { expect, onTestFinished, test } from "vitest";
import type { FencelineConfigInput } from "#src/config/config-schema.js";
import { startScriptedServer } from "../mcp/scripted-server.js";
import { configFor, newCast, startPool, useLedger } from "./pool-setup.js";

const ledgerOf = useLedger();

/** A served source whose list and texts may be changed. */
async function served(list: Record<string, unknown>, more: Partial<FencelineConfigInput> = {}) {
  const script = { list, text: "a note", failing: false };
  const server = await startScriptedServer({
    capabilities: { resources: {} },
    reply(method, params) {
      if (method === "resources/list") return { result: script.list };
      if (method !== "resources/read") return undefined;
      if (script.failing) return { error: { code: -32603, message: "boom" } };
      return { result: { contents: [{ uri: params["uri"], mimeType: "text/plain", text: script.text }] } };
    },
  });
  onTestFinished(() => server.close());
  const cast = newCast();
  const pool = await startPool(ledgerOf(), configFor(cast, server.url, more));
  expect(await pool.idle({ timeoutMs: 20_000 })).toBe("idle");
  const source = () => pool.stats().sources[0];
  return {
    script,
    source,
    problems: () =>
      (source()?.problems ?? []).map(({ uri, code, message }) => `${uri ?? "-"} ${code}: ${message}`).sort(),
    /** As any process sees them in the ledger. */
    listFaults: async () =>
      ((await ledgerOf().status()).sources.find(({ name }) => name === cast.source)?.listFaults ?? [])
        .map(({ uri, code, message }) => `${uri ?? "-"} ${code}: ${message}`)
        .sort(),
    /** Every resource is read twice more, so that a first answer that was late cannot pass for a second. */
    async readAgain() {
      const before = source()?.reads.issued ?? 0;
      await expect.poll(() => source()?.reads.issued, { timeout: 20_000 }).toBeGreaterThanOrEqual(before + 4);
    },
  };
}

const good = (uri: string) => ({ uri, name: uri });
const withinSeconds = { timeout: 20_000 };

test("faults of a list stand until a list is walked without them, however well its resources are read (S8)", async () => {
  const faulty = {
    resources: [{ uri: "note://a" }, good("note://b"), { name: "c" }, { name: "d" }, good("")],
    nextCursor: null,
  };
  const { script, problems, listFaults, readAgain } = await served(faulty, {
    settings: { pollMs: 100, reviewMs: 300 },
  });
  const told = [
    " uri_refused: Listed under a URI that is empty, too long or no valid text.",
    "- list_malformed: page 1: an entry without a URI, which was left out (2 times)",
    "- list_malformed: page 1: nextCursor is null, and was taken as absent",
    "note://a list_malformed: not valid in its entry, and left out: name",
  ];
  expect(problems()).toEqual(told);

  await readAgain();
  expect(problems()).toEqual(told);
  expect(await listFaults()).toEqual(told);

  script.list = { resources: [good("note://a"), good("note://b")] };
  await expect.poll(problems, withinSeconds).toEqual([]);
  expect(await listFaults()).toEqual([]);
});

test("a list that fails does not end what was found in the one before, and its own failure ends with the next (S8)", async () => {
  const faulty = { resources: [{ uri: "note://a" }, good("note://b")] };
  const { script, problems } = await served(faulty, { settings: { reviewMs: 300, scanAttempts: 1 } });

  script.list = { resources: "none" };
  await expect
    .poll(problems, withinSeconds)
    .toEqual([expect.stringContaining("- scan_invalid: "), expect.stringContaining("note://a list_malformed: ")]);

  script.list = faulty;
  await expect.poll(problems, withinSeconds).toEqual([expect.stringContaining("note://a list_malformed: ")]);
});

test("what an index left out of a resource stands while its unchanged content is read again, and ends with a text that passes (§5)", async () => {
  const { script, problems, readAgain } = await served(
    { resources: [good("note://a"), good("note://b")] },
    { settings: { pollMs: 100 }, guard: { maxTextBytes: 10 } },
  );
  script.text = "a note that is longer";
  const told = ["note://a left_out: Not indexed: text_too_large", "note://b left_out: Not indexed: text_too_large"];
  await expect.poll(problems, withinSeconds).toEqual(told);
  await readAgain();
  expect(problems()).toEqual(told);

  script.text = "short";
  await expect.poll(problems, withinSeconds).toEqual([]);
});

test("a read that failed is over with the next that succeeds", async () => {
  const { script, problems } = await served({ resources: [good("note://a")] }, { settings: { pollMs: 100 } });
  script.failing = true;
  await expect.poll(problems, withinSeconds).toEqual([expect.stringContaining("note://a read_failed: ")]);
  script.failing = false;
  await expect.poll(problems, withinSeconds).toEqual([]);
});
