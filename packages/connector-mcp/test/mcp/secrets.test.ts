import { inspect } from "node:util";
import { describe, expect, onTestFinished, test } from "vitest";
import { readResource } from "#src/mcp/fenced-read.js";
import { connectSource } from "#src/mcp/source-connection.js";
import { describeEndpoint, redactor, type SourceEndpoint } from "#src/mcp/source-endpoint.js";
import { type Reply, startScriptedServer } from "./scripted-server.js";

const TOKEN = "s3cret-token-1";

describe("what an error carries as its cause", () => {
  const body = `CONTENT, and your header was Bearer ${TOKEN}`;
  const replies: [string, Reply][] = [
    ["an HTTP error with a body", { status: 500, body }],
    ["an HTTP error with an answer", { status: 500, body: `{"error":{"code":-32603,"message":"no ${TOKEN}"}}` }],
    ["a JSON-RPC error with data", { error: { code: -32603, message: `no ${TOKEN}`, data: { sent: [TOKEN] } } }],
    ["what is no JSON", { status: 200, headers: { "content-type": "application/json" }, body }],
  ];

  test.each(replies)("for %s holds neither credential nor body, however it is printed (P8)", async (_, reply) => {
    const server = await startScriptedServer({ reply: () => reply });
    onTestFinished(() => server.close());
    const connection = await connectSource({ url: server.url, headers: { Authorization: `Bearer ${TOKEN}` } });
    onTestFinished(() => connection.close());
    const outcome = await readResource(connection, "n://1", { maxBodyBytes: 1_000 });
    expect(outcome).toMatchObject({ cause: expect.any(Error) });
    expect(inspect(outcome, { depth: 10, showHidden: true })).not.toMatch(/s3cret|CONTENT/);
  });

  test("for a handshake that failed holds no credential either (P8)", async () => {
    const server = await startScriptedServer({ discover: () => ({ status: 401, body: `no: Bearer ${TOKEN}` }) });
    onTestFinished(() => server.close());
    const connecting = connectSource({ url: server.url, headers: { Authorization: `Bearer ${TOKEN}` } });
    const error = await connecting.catch((caught: unknown) => caught);
    expect(error).toMatchObject({ code: "source_unauthorized", cause: expect.any(Error) });
    expect(inspect(error, { depth: 10, showHidden: true })).not.toContain("s3cret");
  });
});

test("an answer to nothing that was asked is told for a log without what it holds (P8)", async () => {
  const body = JSON.stringify({ jsonrpc: "2.0", id: 999, result: { contents: [{ uri: "n://1", text: "CONTENT" }] } });
  const stray: Reply = { status: 200, headers: { "content-type": "application/json" }, body };
  const server = await startScriptedServer({ reply: () => stray });
  onTestFinished(() => server.close());
  const problems: string[] = [];
  const connection = await connectSource({ url: server.url }, { onProblem: (problem) => problems.push(problem) });
  onTestFinished(() => connection.close());
  const giveUp = new AbortController();
  const reading = readResource(connection, "n://1", { maxBodyBytes: 1_000, signal: giveUp.signal });
  await expect.poll(() => problems.length, { timeout: 5_000 }).toBeGreaterThan(0);
  giveUp.abort();
  expect(await reading).toMatchObject({ outcome: "aborted" });
  expect(problems.join()).toContain("unknown message ID");
  expect(problems.join()).not.toContain("CONTENT");
});

describe("texts that came from a server", () => {
  test.each<[string, SourceEndpoint, string, string]>([
    ["an option's value", { command: "npx", args: ["--token", "abcdef"] }, "no: abcdef", "no: ***"],
    ["an option with its value", { command: "npx", args: ["--token=abcdef"] }, "no: abcdef", "no: ***"],
    ["a bare argument", { command: "npx", args: ["ghp_0abcdef"] }, "no: ghp_0abcdef", "no: ***"],
    [
      "a password in an address",
      { command: "npx", args: ["-y", "server-postgres", "postgres://me:pa%20ss-word@db/x?key=a+key+of+it"] },
      "pa ss-word for pa%20ss-word at a+key+of+it",
      "*** for *** at ***",
    ],
    ["an environment's value", { command: "npx", env: { KEY: "abcdef" } }, "no: abcdef", "no: ***"],
    ["a header's value", { url: "http://h/", headers: { "X-Key": "abcdef" } }, "no: abcdef", "no: ***"],
    ["a query's value", { url: "http://h/?key=abc%2Fdef" }, "no: abc/def, abc%2Fdef", "no: ***, ***"],
    ["a token in a path", { url: "http://h/s/4f0a9c1b2d3e4f5a6b7c/mcp" }, "no: 4f0a9c1b2d3e4f5a6b7c", "no: ***"],
    // What a person needs to see.
    [
      "the package",
      { command: "npx", args: ["-y", "@scope/server-x@1.2.3", "stdio"] },
      "404 @scope/server-x@1.2.3",
      "404 @scope/server-x@1.2.3",
    ],
    ["the script", { command: "node", args: ["/srv/app2/index.js"] }, "no /srv/app2/index.js", "no /srv/app2/index.js"],
  ])("show %s only where it keeps no secret (P8)", (_, endpoint, said, shown) => {
    expect(redactor(endpoint)(said)).toBe(shown);
  });

  test("name an endpoint without arguments, query, and what looks like a token in its path (P8)", () => {
    expect(describeEndpoint({ command: "npx", args: ["--token", "abcdef"] })).toBe("command npx");
    const url = "https://example.test/api/s/4f0a9c1b2d3e4f5a6b7c/mcp?key=abcdef";
    expect(describeEndpoint({ url })).toBe("https://example.test/api/s/***/mcp");
  });
});
