import { afterEach, describe, expect, test } from "vitest";
import { type ScanBudgets, type ScanEnd, type ScanPage, scanPages } from "#src/mcp/resource-scan.js";
import { connectSource, type SourceConnection } from "#src/mcp/source-connection.js";
import { startLegacyServer } from "./legacy-server.js";
import { startModernServer } from "./modern-server.js";
import { scanToEnd } from "./scan-to-end.js";
import { type Reply, startScriptedServer } from "./scripted-server.js";

const AMPLE: ScanBudgets = { pages: 100, entries: 1_000, bytes: 1_000_000 };

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

async function connected(server: { url: string; close(): Promise<void> }): Promise<SourceConnection> {
  opened.push(server);
  const connection = await connectSource({ url: server.url, requestTimeoutMs: 5_000 });
  opened.push(connection);
  return connection;
}

/** A server whose lists are the given pages, by the cursor that leads to them; "first" has none. */
async function listing(
  pages: Record<string, { uris: string[]; next?: string; meta?: Record<string, unknown> } | Reply>,
) {
  const server = await startScriptedServer({
    reply(method, params) {
      if (!method.endsWith("/list")) return undefined;
      const page = pages["cursor" in params ? `cursor:${params["cursor"]}` : "first"];
      if (typeof page !== "object" || !("uris" in page)) return page;
      const key = method === "resources/list" ? "resources" : "resourceTemplates";
      const items = page.uris.map((uri) => ({ [key === "resources" ? "uri" : "uriTemplate"]: uri, name: uri }));
      const next = page.next === undefined ? {} : { nextCursor: page.next };
      return { result: { [key]: items, ...next, ...(page.meta && { _meta: page.meta }) } };
    },
  });
  return { server, connection: await connected(server) };
}

async function scan(
  connection: SourceConnection,
  options: { kind?: "resources" | "templates"; budgets?: Partial<ScanBudgets> } = {},
): Promise<{ end: ScanEnd; pages: ScanPage[]; uris: string[] }> {
  const pages: ScanPage[] = [];
  const budgets = { ...AMPLE, ...options.budgets };
  const end = await scanToEnd(
    connection,
    { kind: options.kind ?? "resources", budgets },
    (page) => void pages.push(page),
  );
  return { end, pages, uris: pages.flatMap((page) => page.entries.map((entry) => entry.uri)) };
}

describe("odd text", () => {
  test("an entry under a URI that the ledger refuses is set aside, and spoils no other of its page (S8, F10)", async () => {
    const refused = ["", "n://\0", "n://\ud800", `n://${"a".repeat(100_000)}`];
    const { connection } = await listing({ first: { uris: ["n://1", ...refused, "n://2"] } });
    const { end, pages, uris } = await scan(connection);
    expect(end.verdict).toBe("COMPLETE");
    expect(uris).toEqual(["n://1", "n://2"]);
    expect(pages.flatMap((page) => page.refused.map(({ uri }) => uri))).toEqual(refused);
  });

  test("names and titles are made valid (F10)", async () => {
    const item = { uri: "n://1", name: "a\0b", title: "\ud800", mimeType: "text/\0" };
    const { connection } = await listing({ first: { result: { resources: [item] } } });
    const { pages } = await scan(connection);
    expect(pages[0]?.entries).toMatchObject([{ name: "a\ufffdb", title: "\ufffd", mimeType: "text/\ufffd" }]);
  });
});

describe("entries that the protocol does not allow", () => {
  const good = (number: number) => ({ uri: `n://${number}`, name: `${number}` });

  test("one without a name in a page of ten, and a null cursor: all are listed, and both faults are told (S1, S8)", async () => {
    const resources = Array.from({ length: 10 }, (_, number) => (number === 3 ? { uri: "n://3" } : good(number)));
    const { connection } = await listing({ first: { result: { resources, nextCursor: null } } });
    const { end, pages, uris } = await scan(connection);
    expect(end).toEqual({ verdict: "COMPLETE" });
    expect(uris).toEqual(resources.map(({ uri }) => uri));
    expect(pages.flatMap(({ faults }) => faults)).toEqual([
      { uri: "n://3", message: "not valid in its entry, and left out: name" },
      { message: "nextCursor is null, and was taken as absent" },
    ]);
  });

  test.each([
    ["mimeType", null],
    ["description", null],
    ["size", "12"],
    ["annotations", { priority: 2 }],
    ["annotations", { lastModified: "yesterday" }],
    ["icons", [{}]],
  ])("one with %s %o keeps the rest of it", async (key, value) => {
    const entry = { ...good(1), title: "One", [key]: value };
    const { connection } = await listing({ first: { result: { resources: [entry, good(2)] } } });
    const { pages } = await scan(connection);
    expect(pages[0]?.entries).toMatchObject([{ uri: "n://1", name: "1", title: "One" }, { uri: "n://2" }]);
    expect(pages[0]?.faults).toEqual([{ uri: "n://1", message: `not valid in its entry, and left out: ${key}` }]);
  });

  test("one without a URI is left out and told, in a list of templates as well", async () => {
    const { connection } = await listing({
      first: {
        result: { resources: [{ name: "a" }, null, "b", good(1)], resourceTemplates: [{ name: "c", uri: "n://x" }] },
      },
    });
    const { pages, uris } = await scan(connection);
    expect(uris).toEqual(["n://1"]);
    expect(pages[0]?.faults).toEqual(Array(3).fill({ message: "an entry without a URI, which was left out" }));
    const templates = await scan(connection, { kind: "templates" });
    expect(templates.pages[0]?.faults).toEqual([{ message: "an entry without a URI template, which was left out" }]);
  });

  test("a page of bad entries tells a hundred of them, and how many more there are", async () => {
    const resources = Array.from({ length: 250 }, (_, number) => ({ uri: `n://${number}` }));
    const { connection } = await listing({ first: { result: { resources } } });
    const { pages, uris } = await scan(connection);
    expect(uris).toHaveLength(250);
    expect(pages[0]?.faults).toHaveLength(101);
    expect(pages[0]?.faults.at(-1)).toEqual({ message: "150 more entries are not valid" });
  });

  test("a server cannot report faults of its own", async () => {
    const forged = { "fenceline/listFaults": [{ message: "forged" }] };
    const { connection } = await listing({ first: { uris: ["n://1"], meta: forged } });
    expect((await scan(connection)).pages[0]?.faults).toEqual([]);
  });
});

describe("cursors", () => {
  test.each(["resources", "templates"] as const)(
    "the pages of %s are walked to the absent cursor, and the empty cursor is one like any other (S1)",
    async (kind) => {
      const { server, connection } = await listing({
        first: { uris: ["n://1"], next: "" },
        "cursor:": { uris: ["n://2"], next: "  opaque %20 " },
        "cursor:  opaque %20 ": { uris: ["n://3"] },
      });
      const { end, pages, uris } = await scan(connection, { kind });
      expect(end).toEqual({ verdict: "COMPLETE" });
      expect(uris).toEqual(["n://1", "n://2", "n://3"]);
      const sent = server.requests
        .filter(({ method }) => method.endsWith("/list"))
        .map(({ params }) => params["cursor"]);
      expect(sent).toEqual([undefined, "", "  opaque %20 "]);
      expect(new Set(pages.map(({ cursorDigest }) => Buffer.from(cursorDigest).toString("hex"))).size).toBe(3);
    },
  );

  test("a cursor that leads to the same page again is a loop: INCOMPLETE, and the page is not handed out twice (S2)", async () => {
    const { connection } = await listing({
      first: { uris: ["n://1"], next: "A" },
      "cursor:A": { uris: ["n://2"], next: "B" },
      "cursor:B": { uris: ["n://3"], next: "A" },
    });
    const { end, uris } = await scan(connection);
    expect(end).toMatchObject({
      verdict: "INCOMPLETE",
      reason: "cursor_loop",
      message: expect.stringContaining("loop"),
    });
    expect(uris).toEqual(["n://1", "n://2", "n://3"]);
  });

  test("one cursor that leads to other pages each time is no loop (S2)", async () => {
    const server = await startScriptedServer({
      reply: (method, _params, asked) =>
        method === "resources/list"
          ? { result: { resources: [{ uri: `n://${asked}`, name: "n" }], ...(asked < 5 && { nextCursor: "" }) } }
          : undefined,
    });
    const { end, uris } = await scan(await connected(server));
    expect(end).toEqual({ verdict: "COMPLETE" });
    expect(uris).toEqual(["n://1", "n://2", "n://3", "n://4", "n://5"]);
  });

  test("a cursor the server does not know any more ends the scan as unknown, by name (S4)", async () => {
    const { connection } = await listing({
      first: { uris: ["n://1"], next: "gone" },
      "cursor:gone": { error: { code: -32602, message: "Invalid cursor" } },
    });
    expect((await scan(connection)).end).toMatchObject({ verdict: "UNKNOWN", reason: "cursor_invalid" });
  });
});

describe("budgets", () => {
  const endless = () =>
    startScriptedServer({
      reply: (_method, _params, asked) => ({
        result: {
          resources: [
            { uri: `n://${asked}/a`, name: "n" },
            { uri: `n://${asked}/b`, name: "n" },
          ],
          nextCursor: `${asked}`,
        },
      }),
    });

  test.each([
    [{ pages: 3 }, "page_budget", 6],
    [{ entries: 5 }, "entry_budget", 4],
    [{ bytes: 150 }, "byte_budget", 4],
  ])("a list that never ends is cut by %o, as INCOMPLETE (S2)", async (budgets, reason, entries) => {
    const { end, uris } = await scan(await connected(await endless()), { budgets });
    expect(end).toMatchObject({ verdict: "INCOMPLETE", reason });
    expect(uris).toHaveLength(entries);
  });

  test("a walk that is left early asks for no further page (S8)", async () => {
    const server = await endless();
    const connection = await connected(server);
    for await (const page of scanPages(connection, { kind: "resources", budgets: AMPLE })) {
      expect(page.entries).toHaveLength(2);
      break;
    }
    expect(server.requests.filter(({ method }) => method === "resources/list")).toHaveLength(1);
  });
});

describe("what is unknown and what is empty", () => {
  test("a server without the resources capability is not asked and is unknown, never empty (S9)", async () => {
    const server = await startModernServer({ capabilities: { tools: {} } });
    const connection = await connected(server);
    const before = server.log.length;
    const { end, pages } = await scan(connection);
    expect(end).toMatchObject({ verdict: "UNKNOWN", reason: "capability_absent" });
    expect(pages).toEqual([]);
    expect(server.log.slice(before)).toEqual([]);
  });

  test("an empty list is complete", async () => {
    const { connection } = await listing({ first: { uris: [] } });
    const { end, pages } = await scan(connection);
    expect(end).toEqual({ verdict: "COMPLETE" });
    expect(pages).toHaveLength(1);
  });

  test.each<[string, Reply, string]>([
    ["an internal error", { error: { code: -32603, message: "boom" } }, "failed"],
    ["HTTP 401", { status: 401 }, "unauthorized"],
    ["HTTP 403", { status: 403 }, "forbidden"],
    ["a list that is none", { result: { resources: "n://2" } }, "invalid"],
  ])(
    "a later page that fails with %s leaves the listing unknown, with its cause (S8)",
    async (_name, reply, reason) => {
      const { connection } = await listing({ first: { uris: ["n://1"], next: "2" }, "cursor:2": reply });
      const { end, uris } = await scan(connection);
      expect(end).toMatchObject({ verdict: "UNKNOWN", reason, cause: expect.any(Error) });
      expect(uris).toEqual(["n://1"]);
    },
  );

  test("a legacy server that offers no templates says so, and its resources are listed", async () => {
    const connection = await connected(await startLegacyServer());
    expect((await scan(connection, { kind: "templates" })).end).toMatchObject({
      verdict: "UNKNOWN",
      reason: "not_offered",
    });
    expect(await scan(connection)).toMatchObject({ end: { verdict: "COMPLETE" }, uris: ["note://a"] });
  });

  test("an abort ends the walk as unknown", async () => {
    const { connection } = await listing({ first: { uris: ["n://1"] } });
    const pages = scanPages(connection, { kind: "resources", budgets: AMPLE, signal: AbortSignal.abort() });
    expect(await pages.next()).toMatchObject({ done: true, value: { verdict: "UNKNOWN", reason: "aborted" } });
  });
});

describe("descriptors", () => {
  const digestOf = async (item: Record<string, unknown>): Promise<string> => {
    const server = await startScriptedServer({ reply: () => ({ result: { resources: [item] } }) });
    const { pages } = await scan(await connected(server));
    return Buffer.from(pages[0]?.entries[0]?.descriptorDigest ?? []).toString("hex");
  };
  const plain = { uri: "n://1", name: "one", title: "One", mimeType: "text/plain", description: "d" };

  test("their digest leaves out size, annotations and _meta, and does not depend on the order of keys", async () => {
    const { description, mimeType, ...rest } = plain;
    const decorated = { description, size: 5, annotations: { priority: 0.5 }, _meta: { a: 1 }, mimeType, ...rest };
    expect(await digestOf(decorated)).toBe(await digestOf(plain));
  });

  test.each([{ description: "e" }, { mimeType: "text/html" }, { title: "Two" }, { name: "two" }, { uri: "n://2" }])(
    "their digest changes with %o",
    async (change) => expect(await digestOf({ ...plain, ...change })).not.toBe(await digestOf(plain)),
  );

  test("each page keeps its own _meta, where a snapshot id may ride (S3)", async () => {
    const { connection } = await listing({
      first: { uris: ["n://1"], next: "2", meta: { "com.example/snapshot": "s1" } },
      "cursor:2": { uris: ["n://2"], meta: { "com.example/snapshot": "s2" } },
    });
    const { pages } = await scan(connection);
    expect(pages.map(({ meta }) => meta?.["com.example/snapshot"])).toEqual(["s1", "s2"]);
  });
});
