import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, test } from "vitest";
import { readResource } from "#src/mcp/fenced-read.js";
import { connectSource, type SourceConnection } from "#src/mcp/source-connection.js";
import { bodyOf, serveHttp } from "./http-server.js";

const SERVER = fileURLToPath(new URL("large-stdio-server.mjs", import.meta.url));
const MB = 1_000_000;
const LIMITS = { maxBodyBytes: 8 * MB };

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
});

async function connected(options: Parameters<typeof connectSource>[1] = {}): Promise<SourceConnection> {
  const connection = await connectSource({ command: process.execPath, args: [SERVER] }, options);
  opened.push(connection);
  return connection;
}

/** Reads them all at once; what came of each, with the number of its bytes. */
async function read(connection: SourceConnection, uris: readonly string[]): Promise<unknown[]> {
  const outcomes = await Promise.all(uris.map((uri) => readResource(connection, uri, LIMITS)));
  return outcomes.map((seen) => ("bytes" in seen ? [seen.outcome, seen.bytes] : [seen.outcome]));
}

describe("over stdio", () => {
  test("one resource of 12 MB beside three small ones is refused by name, and the small ones arrive", async () => {
    const connection = await connected();
    expect(await read(connection, ["note://10", "note://12000000", "note://20", "note://30"])).toEqual([
      ["content", 10],
      ["too_large", 12 * MB],
      ["content", 20],
      ["content", 30],
    ]);
  });

  test("one of 12 MB arrives where the limit allows it", async () => {
    const connection = await connected();
    const seen = await readResource(connection, "note://12000000", { maxBodyBytes: 12 * MB });
    expect(seen).toMatchObject({ outcome: "content", bytes: 12 * MB });
  });

  test("the connection's limit follows the largest body that is asked for", async () => {
    const large = "note://68000000";
    expect(await read(await connected(), [large])).toEqual([["too_large", undefined]]);
    const seen = await readResource(await connected({ maxBodyBytes: 70 * MB }), large, { maxBodyBytes: 70 * MB });
    expect(seen).toMatchObject({ outcome: "content", bytes: 68 * MB });
  });

  test.each(["note://3000000", "note://3000000#last"])(
    "a message above the connection's limit fails its own read alone, and the connection lives on (%s)",
    async (large) => {
      const connection = await connected({ maxMessageBytes: MB });
      expect(await read(connection, ["note://10", large, "note://20"])).toEqual([
        ["content", 10],
        ["too_large", undefined],
        ["content", 20],
      ]);
      expect(await read(connection, ["note://30"])).toEqual([["content", 30]]);
    },
  );
});

describe("over HTTP, on an event stream", () => {
  test.each(["\n", "\r\n"])("an answer above the limit fails its own read alone (lines end in %j)", async (eol) => {
    const server = await serveHttp(async (request, response) => {
      if (request.method !== "POST") return void response.writeHead(405).end();
      const { id, method, params } = JSON.parse(await bodyOf(request)) as Asked;
      if (id === undefined) return void response.writeHead(202).end();
      const result = resultOf(method, params?.uri);
      const answer = result ? { result } : { error: { code: -32601, message: "no such method" } };
      response.writeHead(200, { "content-type": "text/event-stream" });
      const data = JSON.stringify({ jsonrpc: "2.0", id, ...answer });
      response.end(`: comment${eol}${eol}event: message${eol}id: ${String(id)}${eol}data: ${data}${eol}${eol}`);
    });
    const connection = await connectSource({ url: server.url, requestTimeoutMs: 5_000 }, { maxMessageBytes: MB });
    opened.push(connection, server);
    expect(await read(connection, ["note://10", "note://3000000", "note://20"])).toEqual([
      ["content", 10],
      ["too_large", undefined],
      ["content", 20],
    ]);
  });
});

interface Asked {
  id?: unknown;
  method: string;
  params?: { uri?: string };
}

function resultOf(method: string, uri = ""): Record<string, unknown> | undefined {
  const serverInfo = { name: "large", version: "1" };
  if (method === "initialize") return { protocolVersion: "2025-11-25", capabilities: { resources: {} }, serverInfo };
  if (method !== "resources/read") return undefined;
  return { contents: [{ uri, text: "x".repeat(Number.parseInt(uri.slice(7), 10)) }] };
}
