import { expect, onTestFinished, test, vi } from "vitest";
import type { FencelineConfigInput } from "#src/config/config-schema.js";
import type { PoolMode } from "#src/jobs/worker-pool-options.js";
import { type ModernServer, startModernServer } from "../mcp/modern-server.js";
import { startScriptedServer } from "../mcp/scripted-server.js";
import { ask, configFor, newCast, startPool, useLedger } from "./pool-setup.js";

vi.setConfig({ testTimeout: 60_000 });

const ledgerOf = useLedger();

type Choice = NonNullable<FencelineConfigInput["mcpServers"][string]["resources"]>;

/** A source that is served under one configuration after another; its three resources are `note://a` to `note://c`. */
async function source(server: Pick<ModernServer, "url" | "close">) {
  onTestFinished(() => server.close());
  const cast = newCast();
  const configWith = (resources: Choice = {}, settings = {}) =>
    configFor(cast, server.url, {
      mcpServers: { [cast.source]: { url: server.url, reader: cast.reader, resources, settings } },
    });
  return {
    async serve(resources?: Choice, mode: PoolMode = "serve", settings = {}) {
      const pool = await startPool(ledgerOf(), configWith(resources, settings), mode);
      expect(await pool.idle({ timeoutMs: 30_000 })).toBe("idle");
      return { pool, stats: () => pool.stats().sources[0] };
    },
    shown: async () => {
      const hits = await ask(ledgerOf(), configWith(), "first second third", cast.asker);
      return Object.fromEntries(hits.map(({ uri, text }) => [uri, text]));
    },
    resources: () => ledgerOf().livingResources(cast.source),
  };
}

test("what is left out is neither subscribed nor read (§2)", async () => {
  const server = await startModernServer();
  const { serve, shown } = await source(server);
  const { stats } = await serve({ exclude: ["*/b", "note://b"] });
  expect(stats()).toMatchObject({ pushed: 2, polled: 0, scan: { resources: 2 }, problems: [] });
  expect([...server.reads.keys()].sort()).toEqual(["note://a", "note://c"]);
  expect(new Set(server.listens.flat())).toEqual(new Set(["note://a", "note://c"]));
  expect(await shown()).toEqual({ "note://a": "first", "note://c": "third" });
});

test.each(["serve", "once"] as const)(
  "in mode %s, what is left out from now on is closed: it is read no more, and what was accepted of it stays (U7, U10)",
  async (mode) => {
    const server = await startModernServer();
    const { serve, shown, resources } = await source(server);
    const before = await serve(undefined, mode);
    await before.pool.close();
    const readsBefore = server.reads.get("note://b");

    server.listens.length = 0;
    server.resources.set("note://b", "changed");
    const { stats, pool } = await serve({ include: ["note://a", "note://c"] }, mode);
    expect(stats()).toMatchObject({ scan: { resources: 2 }, pushed: mode === "serve" ? 2 : 0, problems: [] });
    expect(server.listens.flat()).not.toContain("note://b");
    expect(server.reads.get("note://b")).toBe(readsBefore);
    expect(await shown()).toMatchObject({ "note://b": "second" });
    expect(await resources()).toBe(3);
    await pool.close();

    await serve(undefined, mode);
    expect(await shown()).toMatchObject({ "note://b": "changed" });
  },
);

test("a resource whose listed type is no longer chosen is closed before a catalogue lacks it, and is not read for that (F7)", async () => {
  const list = [
    { uri: "note://a", name: "a", mimeType: "text/plain" },
    { uri: "note://b", name: "b", mimeType: "text/plain" },
  ];
  const reads: unknown[] = [];
  const server = await startScriptedServer({
    capabilities: { resources: {} },
    reply(method, params) {
      if (method === "resources/list") return { result: { resources: list } };
      if (method !== "resources/read") return undefined;
      reads.push(params["uri"]);
      return { result: { contents: [{ uri: params["uri"], mimeType: "text/plain", text: `first ${params["uri"]}` }] } };
    },
  });
  const { serve, shown } = await source(server);
  const { stats } = await serve({ mimeTypes: ["text/*"] }, "serve", { reviewMs: 200 });
  expect(stats()).toMatchObject({ polled: 2 });

  list[1] = { uri: "note://b", name: "b", mimeType: "video/mp4" };
  await expect.poll(() => stats()?.polled, { timeout: 20_000 }).toBe(1);
  const readsBefore = reads.length;
  const scansBefore = server.requests.length;
  await expect.poll(() => server.requests.length - scansBefore, { timeout: 20_000 }).toBeGreaterThan(4);
  expect(reads.slice(readsBefore)).not.toContain("note://b");
  expect(await shown()).toMatchObject({ "note://b": "first note://b" });
});

test("a choice that takes nothing of a list is reported, and closes what was known without removing it (S8)", async () => {
  const { serve, shown } = await source(await startModernServer());
  await (await serve(undefined, "once")).pool.close();
  const { stats } = await serve({ include: ["nope://*"] }, "once");
  expect(stats()?.problems).toEqual([
    { code: "nothing_chosen", message: expect.stringContaining("Of 3 listed resources none is chosen") },
  ]);
  expect(Object.keys(await shown()).sort()).toEqual(["note://a", "note://b", "note://c"]);
});

test("pages of which nothing is chosen, under one cursor, are no loop (S2)", async () => {
  const server = await startScriptedServer({
    capabilities: { resources: {} },
    reply(method, params, asked) {
      if (method === "resources/read") {
        return { result: { contents: [{ uri: params["uri"], mimeType: "text/plain", text: "first" }] } };
      }
      const page = (asked - 1) % 5;
      const more = page < 4 ? { nextCursor: "next" } : {};
      return { result: { resources: [{ uri: `note://${page}`, name: "n" }], ...more } };
    },
  });
  const { serve } = await source(server);
  const { stats } = await serve({ include: ["note://4"] }, "once");
  expect(stats()).toMatchObject({ scan: { verdict: "SNAPSHOT_UNPROVEN", resources: 1 }, problems: [] });
});

test("a list that exceeds the source's own budgets is INCOMPLETE at once, and removes nothing (S2)", async () => {
  const server = await startModernServer();
  const { serve, shown } = await source(server);
  await (await serve(undefined, "once")).pool.close();
  const listsBefore = server.log.filter((line) => line.endsWith("resources/list")).length;
  const { stats } = await serve(undefined, "once", { scanBudgets: { entries: 2 } });
  expect(stats()?.problems).toMatchObject([{ code: "scan_entry_budget" }]);
  expect(server.log.filter((line) => line.endsWith("resources/list")).length - listsBefore).toBe(1);
  expect(Object.keys(await shown())).toHaveLength(3);
});

test("of a directory that is read, the parts that are excluded are not kept, also where they were before (F5)", async () => {
  const folder = "note://folder/";
  const server = await startScriptedServer({
    capabilities: { resources: {} },
    reply(method) {
      if (method === "resources/list") return { result: { resources: [{ uri: folder, name: "folder" }] } };
      if (method !== "resources/read") return undefined;
      const contents = ["first", "second"].map((text) => ({ uri: `${folder}${text}`, mimeType: "text/plain", text }));
      return { result: { contents } };
    },
  });
  const { serve, shown } = await source(server);
  await (await serve(undefined, "once")).pool.close();
  expect(await shown()).toEqual({ [`${folder}first`]: "first", [`${folder}second`]: "second" });

  await (await serve({ exclude: ["*second"] }, "once")).pool.close();
  expect(await shown()).toEqual({ [`${folder}first`]: "first" });

  const { stats } = await serve({ exclude: ["*first", "*second"] }, "once");
  expect(stats()?.problems).toMatchObject([{ uri: folder, code: "read_empty" }]);
});
