import { expect, onTestFinished, test, vi } from "vitest";
import type { FencelineConfigInput } from "#src/config/config-schema.js";
import { serveHttp } from "../mcp/http-server.js";
import { type Params, startScriptedServer } from "../mcp/scripted-server.js";
import { ask, configFor, newCast, startPool, useLedger } from "./pool-setup.js";

vi.setConfig({ testTimeout: 60_000 });

const ledgerOf = useLedger();

interface Page {
  readonly uris: readonly string[];
  readonly next?: string | null;
}

type Pages = (cursor: string | undefined, walk: number) => Page;

/** A source whose list is scripted by cursor; each `run` is a pool in mode once. */
async function source(settings: NonNullable<FencelineConfigInput["mcpServers"][string]["settings"]> = {}) {
  const script: { pages: Pages } = { pages: () => ({ uris: [] }) };
  let walk = 0;
  const server = await startScriptedServer({
    capabilities: { resources: {} },
    reply(method, params: Params) {
      if (method === "resources/list") {
        const cursor = params["cursor"] as string | undefined;
        if (cursor === undefined) walk += 1;
        const { uris, next } = script.pages(cursor, walk);
        const resources = uris.map((uri) => ({ uri, name: uri }));
        return { result: { resources, ...(next !== undefined && { nextCursor: next }) } };
      }
      if (method !== "resources/read") return undefined;
      return { result: { contents: [{ uri: params["uri"], mimeType: "text/plain", text: "a note" }] } };
    },
  });
  onTestFinished(() => server.close());
  const cast = newCast();
  const config = configFor(cast, server.url, {
    mcpServers: {
      [cast.source]: { url: server.url, reader: cast.reader, settings: { scanAttempts: 2, ...settings } },
    },
  });
  return {
    server,
    async run(pages: Pages) {
      script.pages = pages;
      const pool = await startPool(ledgerOf(), config, "once");
      expect(await pool.idle({ timeoutMs: 40_000 })).toBe("idle");
      await pool.close();
      const [stats] = pool.stats().sources;
      return {
        resources: stats?.scan?.resources,
        verdict: stats?.scan?.verdict,
        problems: (stats?.problems ?? []).map(({ uri, code }) => `${uri ?? "-"} ${code}`),
      };
    },
    /** What lives of it. */
    living: () => ledgerOf().livingResources(cast.source),
    lastScan: async () => (await ledgerOf().status()).sources.find(({ name }) => name === cast.source)?.lastScan,
    shown: async () => (await ask(ledgerOf(), config, "note", cast.asker)).map(({ uri }) => uri),
  };
}

/** Pages of so many entries each, joined by their numbers. */
function pagesOf(...sizes: readonly number[]): (cursor: string | undefined) => Page {
  return (cursor) => {
    const number = Number(cursor ?? 0);
    const uris = Array.from({ length: sizes[number] ?? 0 }, (_, place) => `note://${number}/${place}`);
    return { uris, ...(number + 1 < sizes.length && { next: `${number + 1}` }) };
  };
}

const settled = (resources: number) => ({ resources, verdict: "SNAPSHOT_UNPROVEN", problems: [] });

test.each<[string, Pages, number]>([
  ["71 honest pages", pagesOf(...Array<number>(71).fill(1)), 71],
  ["a page with no entries but a cursor", pagesOf(1, 0, 1), 2],
  ["a filter applied after paging", pagesOf(10, 0, 3, 0, 7), 20],
])("%s: everything is listed (S1)", async (_, pages, resources) => {
  const { run, living } = await source();
  expect(await run(pages)).toEqual(settled(resources));
  expect(await living()).toBe(resources);
});

test("three pages joined by the empty cursor: everything is listed (S1)", async () => {
  const { run } = await source();
  let page = 0;
  const pages: Pages = (cursor) => {
    page = cursor === undefined ? 1 : page + 1;
    return { uris: [`note://${page}`], ...(page < 3 && { next: "" }) };
  };
  expect(await run(pages)).toEqual(settled(3));
});

const KNOWN: Pages = () => ({ uris: ["note://1", "note://2", "note://3", "note://4"] });

test.each<[string, Pages, string]>([
  ["the same cursor and the same entries for ever", () => ({ uris: ["note://1"], next: "same" }), "cursor_loop"],
  [
    "cursors A, B, A",
    (cursor) => ({ uris: [`note://${cursor === "A" ? 2 : 1}`], next: cursor === "A" ? "B" : "A" }),
    "cursor_loop",
  ],
  ["a new cursor for ever", (cursor) => ({ uris: ["note://1"], next: `${Number(cursor ?? 0) + 1}` }), "page_budget"],
  [
    "new cursors and new entries for ever",
    (cursor) => ({ uris: [`note://n${cursor}`, `note://m${cursor}`], next: `${Number(cursor ?? 0) + 1}` }),
    "entry_budget",
  ],
])("%s: INCOMPLETE within the budgets, and nothing is removed (S2)", async (_, pages, reason) => {
  const { run, living, lastScan, server } = await source({ scanBudgets: { pages: 40, entries: 60 } });
  expect(await run(KNOWN)).toEqual(settled(4));
  const before = server.requests.filter(({ method }) => method === "resources/list").length;

  expect(await run(pages)).toMatchObject({ problems: [`- scan_${reason}`] });

  expect(await lastScan()).toMatchObject({ verdict: "INCOMPLETE", reason });
  expect(await living()).toBe(4);
  expect(server.requests.filter(({ method }) => method === "resources/list").length - before).toBeLessThanOrEqual(41);
});

test.each<[string, Pages]>([
  ["page 1, under the same cursor", (cursor) => ({ ...pagesOf(10, 10, 10)(undefined), ...(cursor && { next: "1" }) })],
  [
    "page 1, under a new cursor",
    (cursor) => ({ ...pagesOf(10, 10, 10)(undefined), next: `${Number(cursor ?? 0) + 1}` }),
  ],
  ["an empty page", (cursor) => (cursor === undefined ? pagesOf(10, 10, 10)(undefined) : { uris: [] })],
  [
    "an empty page in every second walk",
    (cursor, walk) => (cursor === undefined || walk % 2 === 0 ? pagesOf(10, 10, 10)(cursor) : { uris: [] }),
  ],
])("a cursor that expired and is answered with %s removes nothing (S4, S8, F7)", async (_, pages) => {
  const { run, living } = await source({ scanBudgets: { pages: 40 } });
  expect(await run(pagesOf(10, 10, 10))).toEqual(settled(30));
  await run(pages);
  expect(await living()).toBe(30);
});

test("a null cursor and one entry without a name in a page of ten: all arrive, and both are told (S1)", async () => {
  const server = await startScriptedServer({
    capabilities: { resources: {} },
    reply(method, params: Params) {
      const entries = Array.from({ length: 10 }, (_, place) => ({ uri: `note://${place}`, name: "n" }));
      const resources = [...entries.slice(0, 9), { uri: "note://9" }];
      if (method === "resources/list") return { result: { resources, nextCursor: null } };
      if (method !== "resources/read") return undefined;
      return { result: { contents: [{ uri: params["uri"], mimeType: "text/plain", text: "a note" }] } };
    },
  });
  onTestFinished(() => server.close());
  const pool = await startPool(ledgerOf(), configFor(newCast(), server.url), "once");
  expect(await pool.idle({ timeoutMs: 30_000 })).toBe("idle");
  const [stats] = pool.stats().sources;
  expect(stats).toMatchObject({ scan: { resources: 10 }, reads: { accepted: 10 } });
  expect(stats?.problems.map(({ uri, code }) => `${uri ?? "-"} ${code}`).sort()).toEqual([
    "- list_malformed",
    "note://9 list_malformed",
  ]);
});

test("odd URIs are each a resource of their own; one that is too long is an error of its own (F10)", async () => {
  const odd = ["users/me", "urn:x:y", "1password://x", "sqlite:////data/a b?c#d"];
  const long = `note://${"x".repeat(20_000)}`;
  const { run, shown } = await source();
  expect(await run(() => ({ uris: [...odd, long, "note://plain"] }))).toEqual({
    ...settled(5),
    problems: [`${long.slice(0, 200)} uri_refused`],
  });
  expect((await shown()).sort()).toEqual([...odd, "note://plain"].sort());
});

test("two readers of one source have each their own list, reads and content; nothing of one is shown for the other (F11, G2)", async () => {
  const lists: Record<string, string[]> = {
    "Bearer one": ["note://both", "note://one"],
    "Bearer two": ["note://both"],
  };
  const inner = await startScriptedServer({ capabilities: { resources: {} } });
  onTestFinished(() => inner.close());
  const server = await serveHttp(async (request, response) => {
    const who = request.headers.authorization ?? "";
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { id, method, params } = JSON.parse(Buffer.concat(chunks).toString()) as {
      id: number;
      method: string;
      params: Params;
    };
    if (method === "server/discover") {
      const answer = await fetch(inner.url, { method: "POST", body: Buffer.concat(chunks) });
      return void response.writeHead(200, { "content-type": "application/json" }).end(await answer.text());
    }
    const complete = { resultType: "complete", ttlMs: 0, cacheScope: "private" };
    const listed = { resources: (lists[who] ?? []).map((uri) => ({ uri, name: uri })) };
    const read = { contents: [{ uri: params["uri"], mimeType: "text/plain", text: `a note for ${who}` }] };
    const result = { ...complete, ...(method === "resources/list" ? listed : read) };
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ jsonrpc: "2.0", id, result }));
  });
  onTestFinished(() => server.close());

  const { source: name } = newCast();
  const readers = {
    "svc:one": { headers: { Authorization: "Bearer one" } },
    "svc:two": { headers: { Authorization: "Bearer two" } },
  };
  const grants = [{ source: name, reader: "svc:two", audience: "user:bob", everything: true as const }];
  const config = configFor(newCast(), server.url, { mcpServers: { [name]: { url: server.url, readers } }, grants });
  const pool = await startPool(ledgerOf(), config, "once");
  expect(await pool.idle({ timeoutMs: 30_000 })).toBe("idle");

  expect(pool.stats().sources).toMatchObject([
    { reader: "svc:one", scan: { resources: 2 }, reads: { accepted: 2 }, problems: [] },
    { reader: "svc:two", scan: { resources: 1 }, reads: { accepted: 1 }, problems: [] },
  ]);
  const seen = async (asker: string) =>
    (await ask(ledgerOf(), config, "note", [asker])).map(({ uri, text }) => `${uri} ${text}`).sort();
  expect(await seen("svc:one")).toEqual(["note://both a note for Bearer one", "note://one a note for Bearer one"]);
  expect(await seen("user:bob")).toEqual(["note://both a note for Bearer two"]);
  expect(await seen("user:eve")).toEqual([]);
});
