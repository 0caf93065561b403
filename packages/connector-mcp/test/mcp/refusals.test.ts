import { describe, expect, onTestFinished, test } from "vitest";
import { readResource } from "#src/mcp/fenced-read.js";
import { openResourceStream } from "#src/mcp/resource-stream.js";
import { connectSource } from "#src/mcp/source-connection.js";
import { startLegacyServer } from "./legacy-server.js";
import { startModernServer } from "./modern-server.js";
import { type Reply, startScriptedServer } from "./scripted-server.js";

const within = { timeout: 10_000, interval: 20 };

async function connect(url: string) {
  const refused: string[] = [];
  const connection = await connectSource(
    { url, headers: { Authorization: "Bearer s3cret-token" }, requestTimeoutMs: 2_000 },
    { onUnauthorized: (message) => refused.push(message) },
  );
  onTestFinished(() => connection.close());
  return { connection, refused };
}

const inBody = (status: number, error: Record<string, unknown>): Reply => ({
  status,
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ jsonrpc: "2.0", id: null, error }),
});

describe("a read that is refused", () => {
  const shapes: [string, Reply, string][] = [
    ["by HTTP 401", { status: 401, body: "no: Bearer s3cret-token" }, "unauthorized"],
    ["by HTTP 403", { status: 403 }, "forbidden"],
    ["by the code 401", { error: { code: 401, message: "token expired" } }, "unauthorized"],
    ["by the code 403", { error: { code: 403, message: "not yours" } }, "forbidden"],
    ["by the code -32401", { error: { code: -32401, message: "no" } }, "unauthorized"],
    ["by the code -32403", { error: { code: -32403, message: "no" } }, "forbidden"],
    ["by a status in its data", { error: { code: -32000, message: "no", data: { statusCode: 401 } } }, "unauthorized"],
    ["by a code in its data", { error: { code: -32603, message: "no", data: { code: "403" } } }, "forbidden"],
    ["by a word", { error: { code: -32001, message: "Unauthorized" } }, "unauthorized"],
    ["by a word and more", { error: { code: -32602, message: "Forbidden: not your note" } }, "forbidden"],
    [
      "by a status in words",
      { error: { code: -32603, message: "Request failed with status code 401" } },
      "unauthorized",
    ],
    ["by a number in words", { error: { code: -32603, message: "GET /x: HTTP 403 Forbidden" } }, "forbidden"],
    ["by a 500 around it", inBody(500, { code: -32603, message: "upstream: status 403" }), "forbidden"],
    ["by a 400 around it", inBody(400, { code: -32000, message: "Unauthorized" }), "unauthorized"],
    // What only sounds like it.
    ["for its spelling", { error: { code: -32603, message: "Forbidden characters in the URI" } }, "failed"],
    ["under a number", { error: { code: -32603, message: "no note 401" } }, "failed"],
  ];

  test.each(shapes)(
    "%s is told apart from a failure, and a refused credential is told to whoever connected (P7)",
    async (_, reply, outcome) => {
      const server = await startScriptedServer({
        reply: (method) => (method === "resources/read" ? reply : undefined),
      });
      onTestFinished(() => server.close());
      const { connection, refused } = await connect(server.url);

      expect(await readResource(connection, "n://1", { maxBodyBytes: 1_000 })).toMatchObject({ outcome });

      expect(refused).toHaveLength(outcome === "unauthorized" ? 1 : 0);
      expect(refused.join()).not.toContain("s3cret-token");
    },
  );
});

describe("a stream that is refused with 401", () => {
  const stream = { uris: ["note://a"], listChanged: true, onUpdated() {}, onListChanged() {}, onClosed() {} };

  test("in the modern era is a refused credential (P7)", async () => {
    const server = await startModernServer();
    onTestFinished(() => server.close());
    const { connection, refused } = await connect(server.url);
    server.refuseWith(401);
    await expect(openResourceStream(connection, stream)).rejects.toMatchObject({ code: "source_unauthorized" });
    expect(refused).toHaveLength(1);
  });

  test("in the legacy era is a refused credential, though nobody waits for it (P7)", async () => {
    const server = await startLegacyServer();
    onTestFinished(() => server.close());
    server.refuseStreams(401);
    const { refused } = await connect(server.url);
    await expect.poll(() => refused.length, within).toBeGreaterThan(0);
  });
});
