import fc from "fast-check";
import { afterEach, describe, expect, test } from "vitest";
import { digestParts, readResource } from "#src/mcp/fenced-read.js";
import { connectSource, type SourceConnection } from "#src/mcp/source-connection.js";
import { startLegacyServer } from "./legacy-server.js";
import { startModernServer } from "./modern-server.js";
import { type Reply, startScriptedServer } from "./scripted-server.js";

const LIMITS = { maxBodyBytes: 1_000 };

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

async function connected(server: { url: string; close(): Promise<void> }): Promise<SourceConnection> {
  opened.push(server);
  const connection = await connectSource({ url: server.url, headers: { Authorization: "Bearer secret-token-1" } });
  opened.push(connection);
  return connection;
}

async function answering(reply: Reply): Promise<{ connection: SourceConnection; uris: () => unknown[] }> {
  const server = await startScriptedServer({ reply: (method) => (method === "resources/read" ? reply : undefined) });
  const connection = await connected(server);
  const uris = () =>
    server.requests.filter(({ method }) => method === "resources/read").map(({ params }) => params["uri"]);
  return { connection, uris };
}

describe("content", () => {
  test("every read reaches the server, whatever ttlMs it promised (F8)", async () => {
    const server = await startModernServer({ ttlMs: 600_000 });
    const connection = await connected(server);
    const first = await readResource(connection, "note://a", LIMITS);
    expect(first).toMatchObject({ outcome: "content", ttlMs: 600_000, cacheScope: "private" });
    server.resources.set("note://a", "changed");
    const second = await readResource(connection, "note://a", LIMITS);
    expect(second).toMatchObject({ outcome: "content", parts: [{ text: "changed" }] });
    expect(server.reads.get("note://a")).toBe(2);
  });

  test("text that no database holds is made valid, so that it costs no batch of the ledger (F3, F5)", async () => {
    const { connection } = await answering({
      result: { contents: [{ uri: "note://a/\0\ud800", mimeType: "text/\0", text: "price\0=\ud800100" }] },
    });
    expect(await readResource(connection, "note://a", LIMITS)).toMatchObject({
      parts: [{ uri: "note://a/%00\ufffd", mimeType: "text/\ufffd", text: "price\ufffd=\ufffd100" }],
    });
  });

  test.each(["", `note://${"a".repeat(100_000)}`])(
    "a part whose URI the ledger would refuse makes the answer invalid, and no deletion (F7)",
    async (uri) => {
      const { connection } = await answering({ result: { contents: [{ uri, text: "x" }] } });
      expect(await readResource(connection, "note://a", LIMITS)).toMatchObject({
        outcome: "invalid",
        message: "the URI of content 1 is empty or too long",
      });
    },
  );

  test.each([
    ["in the URL-safe alphabet", "-_8="],
    ["in the URL-safe alphabet without padding", "-_8"],
    ["as a data URL", "data:application/octet-stream;base64,+/8="],
  ])("a blob %s is the same bytes", async (_, blob) => {
    const { connection } = await answering({ result: { contents: [{ uri: "note://a", blob }] } });
    expect(await readResource(connection, "note://a", LIMITS)).toMatchObject({
      parts: [{ bytes: new Uint8Array([251, 255]) }],
    });
  });

  test("parts keep their own URIs, and the digest covers them all (F5)", async () => {
    const { connection } = await answering({
      result: {
        contents: [
          { uri: "dir://d/1", mimeType: "text/plain", text: "one" },
          { uri: "dir://d/2", blob: Buffer.from([0, 255]).toString("base64") },
        ],
      },
    });
    const outcome = await readResource(connection, "dir://d", LIMITS);
    expect(outcome).toMatchObject({
      outcome: "content",
      bytes: 5,
      parts: [
        { uri: "dir://d/1", mimeType: "text/plain", text: "one" },
        { uri: "dir://d/2", bytes: new Uint8Array([0, 255]) },
      ],
    });
    if (outcome.outcome === "content") expect(outcome.digest).toEqual(digestParts(outcome.parts));
  });

  test("the server's own spelling is sent, even where it is no URI of the RFC (F10)", async () => {
    const { connection, uris } = await answering({ result: { contents: [] } });
    const spellings = ["1password://Vault/%7euser", "SQLITE:////a b?c#d", "note://é"];
    for (const spelling of spellings) await readResource(connection, spelling, LIMITS);
    expect(uris()).toEqual(spellings);
  });

  test("an empty contents array is neither content nor not-found (F7)", async () => {
    const { connection } = await answering({ result: { contents: [] } });
    expect(await readResource(connection, "note://a", LIMITS)).toMatchObject({ outcome: "empty" });
  });

  describe("a name that is listed escaped, and that the server does not unescape in a read", () => {
    async function reading(texts: Record<string, string>): Promise<{ seen: unknown; asked: unknown[] }> {
      const server = await startScriptedServer({
        reply: (_method, { uri }) => ({ result: { contents: [{ uri, text: texts[uri as string] ?? "[]" }] } }),
      });
      const connection = await connected(server);
      const seen = await readResource(connection, "table://odd%20name%20%C3%A9/schema", LIMITS);
      const reads = server.requests.filter(({ method }) => method === "resources/read");
      return { seen, asked: reads.map(({ params }) => params["uri"]) };
    }

    test.each(["[]", "", "null", " {\n} "])(
      "an answer of %j is no content where the plain spelling has some (F7)",
      async (text) => {
        const { seen } = await reading({
          "table://odd%20name%20%C3%A9/schema": text,
          "table://odd name é/schema": '[{"column":"secret"}]',
        });
        expect(seen).toMatchObject({ outcome: "empty", message: expect.stringContaining("does not undo the escapes") });
        expect(JSON.stringify(seen)).not.toContain("secret");
      },
    );

    test("an answer of nothing is content where the plain spelling says no more", async () => {
      const { seen, asked } = await reading({});
      expect(seen).toMatchObject({ outcome: "content", parts: [{ text: "[]" }] });
      expect(asked).toEqual(["table://odd%20name%20%C3%A9/schema", "table://odd name é/schema"]);
    });

    test("content is believed, and no other spelling is sent (F10)", async () => {
      const { seen, asked } = await reading({ "table://odd%20name%20%C3%A9/schema": "[1]" });
      expect(seen).toMatchObject({ outcome: "content", parts: [{ text: "[1]" }] });
      expect(asked).toEqual(["table://odd%20name%20%C3%A9/schema"]);
    });
  });

  test("another spelling of the URI asked for is the resource itself, and another resource's URI a part (F5, F10)", async () => {
    const { connection } = await answering({
      result: {
        contents: [
          { uri: "NOTE://%61%2fb", text: "one" },
          { uri: "note://a/b", text: "two" },
        ],
      },
    });
    const seen = await readResource(connection, "note://a%2Fb", LIMITS);
    expect(seen).toMatchObject({ parts: [{ uri: "note://a%2Fb" }, { uri: "note://a/b" }] });
  });

  test("a body above the limit is refused with its size", async () => {
    const { connection } = await answering({ result: { contents: [{ uri: "note://a", text: "x".repeat(1_001) }] } });
    expect(await readResource(connection, "note://a", LIMITS)).toMatchObject({ outcome: "too_large", bytes: 1_001 });
  });

  test("an answer above the connection's limit is cut off and does not end the connection", async () => {
    const server = await startModernServer();
    opened.push(server);
    server.resources.set("note://a", "x".repeat(100_000));
    const connection = await connectSource({ url: server.url }, { maxMessageBytes: 50_000 });
    opened.push(connection);
    expect(await readResource(connection, "note://a", { maxBodyBytes: 1e9 })).toMatchObject({ outcome: "too_large" });
    expect(await readResource(connection, "note://b", LIMITS)).toMatchObject({ outcome: "content" });
  });
});

describe("what is no content", () => {
  const uri = "note://a";

  test.each<[string, Reply, string]>([
    ["-32602 that names the URI", { error: { code: -32602, message: "no", data: { uri } } }, "not_found"],
    ["bare -32602", { error: { code: -32602, message: "no" } }, "not_found"],
    ["-32002 that names the URI", { error: { code: -32002, message: "no", data: { uri } } }, "not_found"],
    ["bare -32002", { error: { code: -32002, message: "no" } }, "not_found"],
    [
      "-32602 inside HTTP 404",
      { status: 404, body: '{"error":{"code":-32602,"message":"no","data":{"uri":"note://a"}}}' },
      "not_found",
    ],
    [
      "-32602 with another reason",
      { error: { code: -32602, message: "no", data: { uri, reason: "invalid_uri" } } },
      "failed",
    ],
    ["-32603", { error: { code: -32603, message: "Resource not found" } }, "failed"],
    ["-32601", { error: { code: -32601, message: "no such method" } }, "failed"],
    ["HTTP 404 without an answer", { status: 404, body: "not found" }, "failed"],
    ["HTTP 500", { status: 500 }, "failed"],
    ["HTTP 503", { status: 503 }, "unreachable"],
    ["HTTP 401", { status: 401, body: "Bearer secret-token-1 has expired" }, "unauthorized"],
    ["HTTP 403", { status: 403, body: "Bearer secret-token-1 may not" }, "forbidden"],
    ["a blob that is no base64", { result: { contents: [{ uri, blob: "no!" }] } }, "invalid"],
    ["a blob in two alphabets of base64", { result: { contents: [{ uri, blob: "_-8+" }] } }, "invalid"],
    ["a blob that ends inside a byte", { result: { contents: [{ uri, blob: "_-8_A" }] } }, "invalid"],
    ["a question to a person", { result: { resultType: "input_required", inputRequests: {} } }, "invalid"],
  ])("%s is %s (F7, P7)", async (_name, reply, outcome) => {
    const { connection } = await answering(reply);
    const seen = await readResource(connection, uri, LIMITS);
    expect(seen).toMatchObject({ outcome, cause: expect.any(Error) });
    expect("message" in seen && seen.message).not.toContain("secret-token-1");
  });

  test.each<[string, Parameters<typeof answering>[0], string]>([
    [
      "the body of an HTTP error",
      { status: 500, body: "CONTENT ".repeat(500) },
      "Error POSTing to endpoint (HTTP 500)",
    ],
    [
      "fields that do not fit, each by its name",
      { result: { contents: [{ uri, text: 7, note: "CONTENT" }] } },
      "Invalid result for resources/read: contents.0: ",
    ],
  ])("a message leaves out content and is one short line: %s (P8)", async (_name, reply, message) => {
    const { connection } = await answering(reply);
    const seen = await readResource(connection, uri, LIMITS);
    const said = "message" in seen ? seen.message : "";
    expect(said).toContain(message);
    expect(said).not.toMatch(/CONTENT|\n/);
    expect(said.length).toBeLessThan(320);
  });

  test("a typed and a bare not-found of real servers of both lines are not_found (F7)", async () => {
    const modern = await connected(await startModernServer());
    const legacy = await connected(await startLegacyServer());
    expect(await readResource(modern, "note://none", LIMITS)).toMatchObject({ outcome: "not_found" });
    expect(await readResource(legacy, "note://none", LIMITS)).toMatchObject({ outcome: "not_found" });
  });

  test("a session that the server forgot is lost, and the connection says so (U11)", async () => {
    const server = await startLegacyServer();
    const connection = await connected(server);
    server.forgetSessions();
    expect(await readResource(connection, uri, LIMITS)).toMatchObject({ outcome: "session_lost" });
    await expect(connection.closed).resolves.toMatchObject({ reason: "session_lost" });
  });

  test("a server that is gone is unreachable", async () => {
    const server = await startModernServer();
    const connection = await connected(server);
    await server.close();
    opened.splice(opened.indexOf(server), 1);
    expect(await readResource(connection, uri, LIMITS)).toMatchObject({ outcome: "unreachable" });
  });

  test("an abort and a silence are told apart", async () => {
    const { connection } = await answering("silence");
    const signal = AbortSignal.timeout(50);
    expect(await readResource(connection, uri, { ...LIMITS, signal })).toMatchObject({ outcome: "aborted" });
    expect(await readResource(connection, uri, { ...LIMITS, timeoutMs: 50 })).toMatchObject({ outcome: "timed_out" });
  });
});

describe("the digest of a content", () => {
  const part = fc.record({ uri: fc.string(), mimeType: fc.string(), text: fc.string() });

  test("differs whenever a URI, a MIME type, a text or the order differs", () => {
    fc.assert(
      fc.property(fc.array(part), fc.array(part), (a, b) => {
        const same = JSON.stringify(a) === JSON.stringify(b);
        expect(Buffer.from(digestParts(a)).equals(Buffer.from(digestParts(b)))).toBe(same);
      }),
    );
  });

  test("cannot be moved from one field into the next", () => {
    const one = digestParts([{ uri: "a", mimeType: "b", text: "c" }]);
    expect(digestParts([{ uri: "ab", mimeType: "", text: "c" }])).not.toEqual(one);
    expect(digestParts([{ uri: "a", text: "bc" }])).not.toEqual(digestParts([{ uri: "a", mimeType: "", text: "bc" }]));
  });
});
