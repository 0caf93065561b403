import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import type { FencelineConfigInput } from "#src/config/config-schema.js";
import { type Params, startScriptedServer } from "../mcp/scripted-server.js";
import { configFor, newCast, startPool, useLedger } from "./pool-setup.js";

const ledgerOf = useLedger();

const EXTENSION = "io.fenceline/snapshot-id";

type Page = { uris: string[]; id?: string; next?: string };
type Choice = NonNullable<FencelineConfigInput["mcpServers"][string]["resources"]>;

/** Runs pools in mode once on a server that answers the lists from `lists.pages`, by cursor, and counts its walks. */
async function source(options: { declares?: boolean; templates?: Page; completion?: Record<string, unknown> } = {}) {
  const lists: { pages: (cursor: string | undefined, walk: number) => Page } = { pages: () => ({ uris: [] }) };
  let walks = 0;
  const metaOf = (id: string | undefined) => (id === undefined ? {} : { _meta: { [EXTENSION]: id } });
  const server = await startScriptedServer({
    capabilities: {
      resources: {},
      completions: {},
      ...(options.declares !== false && { extensions: { [EXTENSION]: {} } }),
    },
    reply(method, params: Params) {
      if (method === "resources/list") {
        const cursor = params["cursor"] as string | undefined;
        if (cursor === undefined) walks += 1;
        const { uris, id, next } = lists.pages(cursor, walks);
        const nextCursor = next === undefined ? {} : { nextCursor: next };
        return { result: { resources: uris.map((uri) => ({ uri, name: uri })), ...nextCursor, ...metaOf(id) } };
      }
      if (method === "resources/templates/list" && options.templates) {
        const { uris, id } = options.templates;
        return { result: { resourceTemplates: uris.map((uri) => ({ uriTemplate: uri, name: uri })), ...metaOf(id) } };
      }
      if (method === "completion/complete") return { result: options.completion ?? {} };
      if (method !== "resources/read") return undefined;
      return { result: { contents: [{ uri: params["uri"], mimeType: "text/plain", text: "a note" }] } };
    },
  });
  onTestFinished(() => server.close());
  const cast = newCast();
  return {
    lists,
    server,
    async run(resources: Choice = {}) {
      walks = 0;
      const { source: name, reader } = cast;
      const config = configFor(cast, server.url, {
        mcpServers: { [name]: { url: server.url, reader, resources, settings: { scanAttempts: 3 } } },
      });
      const pool = await startPool(ledgerOf(), config, "once");
      expect(await pool.idle({ timeoutMs: 30_000 })).toBe("idle");
      await pool.close();
      const [stats] = pool.stats().sources;
      return { verdict: stats?.scan?.verdict, walks, problems: stats?.problems.map(({ code }) => code) };
    },
  };
}

const twoPages =
  (id?: string, otherId = id) =>
  (cursor: string | undefined) => ({
    ...(cursor === undefined ? { uris: ["note://a"], next: "2" } : { uris: ["note://b"] }),
    ...(id !== undefined && otherId !== undefined && { id: cursor === undefined ? id : otherId }),
  });

test("a list of which each page binds one id is walked once, and proven (S3)", async () => {
  const { lists, server, run } = await source();
  lists.pages = twoPages("state 1");
  expect(await run()).toEqual({ verdict: "SNAPSHOT_PROVEN", walks: 1, problems: [] });
  const declared = server.requests.find(({ method }) => method === "resources/list")?.params["_meta"];
  expect(declared).toMatchObject({
    "io.modelcontextprotocol/clientCapabilities": { extensions: { [EXTENSION]: {} } },
  });
});

test("ids of a server that did not declare the extension prove nothing, and contradict nothing (S3)", async () => {
  const { lists, run } = await source({ declares: false });
  lists.pages = twoPages("state 1", "state 2");
  expect(await run()).toEqual({ verdict: "SNAPSHOT_UNPROVEN", walks: 2, problems: [] });
});

test.each([
  ["a page without an id", (cursor?: string): Page => ({ ...twoPages()(cursor), ...(!cursor && { id: "state 1" }) })],
  ["a page with another id", twoPages("state 1", "state 2")],
  ["an id that is no text", (cursor?: string): Page => ({ ...twoPages()(cursor), id: 7 as unknown as string })],
])(
  "%s makes the scan VOID and the extension distrusted: the list is walked twice, and that is told (S3)",
  async (_, pages) => {
    const { lists, run } = await source();
    lists.pages = pages;
    expect(await run()).toEqual({ verdict: "SNAPSHOT_UNPROVEN", walks: 3, problems: ["snapshot_distrusted"] });
  },
);

test("a known id with another set is forged, in a later session too; the next session trusts the extension again (S3)", async () => {
  const { lists, run } = await source();
  lists.pages = twoPages("state 1");
  expect(await run()).toMatchObject({ verdict: "SNAPSHOT_PROVEN" });

  lists.pages = () => ({ uris: ["note://a", "note://c"], id: "state 1" });
  expect(await run()).toEqual({ verdict: "SNAPSHOT_UNPROVEN", walks: 3, problems: ["snapshot_distrusted"] });

  lists.pages = twoPages("state 2");
  expect(await run()).toMatchObject({ verdict: "SNAPSHOT_PROVEN", walks: 1 });
});

test("another choice of the same state is no forgery (S3)", async () => {
  const { lists, run } = await source();
  lists.pages = twoPages("state 1");
  expect(await run()).toMatchObject({ verdict: "SNAPSHOT_PROVEN" });
  expect(await run({ include: ["note://a"] })).toEqual({ verdict: "SNAPSHOT_PROVEN", walks: 1, problems: [] });
});

test("templates and completions bind the id as well; a state that changed on the way begins the walk anew (S3)", async () => {
  const template = "note://t/{name}";
  const completion = { completion: { values: ["x", "y"] }, _meta: { [EXTENSION]: "state 2" } };
  const { lists, run } = await source({ templates: { uris: [template], id: "state 2" }, completion });
  const resources: Choice = { templates: { [template]: { name: "completions" } } };
  lists.pages = (_, walk) => ({ uris: ["note://a"], id: walk === 1 ? "state 1" : "state 2" });
  expect(await run(resources)).toEqual({ verdict: "SNAPSHOT_PROVEN", walks: 2, problems: [] });
});

test("completions without an id leave what they name unproven (S3)", async () => {
  const template = "note://t/{name}";
  const { lists, run } = await source({
    templates: { uris: [template], id: "state 1" },
    completion: { completion: { values: ["x"] } },
  });
  lists.pages = () => ({ uris: ["note://a"], id: "state 1" });
  const resources: Choice = { templates: { [template]: { name: "completions" } } };
  expect(await run(resources)).toEqual({ verdict: "SNAPSHOT_UNPROVEN", walks: 3, problems: ["snapshot_distrusted"] });
});

test("is negotiated with a server of the older era as well (S3)", async () => {
  const { source: name, reader } = newCast();
  const args = [fileURLToPath(new URL("../mcp/legacy-snapshot-server.mjs", import.meta.url))];
  const config = configFor(newCast(), "http://unused/", {
    mcpServers: { [name]: { command: process.execPath, args, reader } },
    grants: [],
  });
  const pool = await startPool(ledgerOf(), config, "once");
  expect(await pool.idle({ timeoutMs: 30_000 })).toBe("idle");
  expect(pool.stats().sources).toMatchObject([
    { era: "legacy", scan: { verdict: "SNAPSHOT_PROVEN", resources: 2 }, problems: [] },
  ]);
});
