import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";
import type { EndpointAuth } from "#src/mcp/endpoint-authorization.js";
import { readResource } from "#src/mcp/fenced-read.js";
import { connectSource, type SourceConnection } from "#src/mcp/source-connection.js";
import { bodyOf, serveHttp } from "./http-server.js";
import { startScriptedServer } from "./scripted-server.js";

const SECRET = "s3cret-of-the-client";
const BASIC = Buffer.from(`fenceline:${SECRET}`).toString("base64");

const opened: { close(): Promise<unknown> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

interface Guarded {
  url: string;
  issuer: string;
  /** Tokens that are let through. */
  readonly valid: Set<string>;
  /** `Authorization` of every request to the token endpoint, and its body. */
  readonly asked: { authorization: string | undefined; body: string }[];
  /** The second refusal of this token is held back until a request with another one has come. */
  refuseLate?: string;
}

/** An MCP server that wants a bearer token, and the authorization server that gives them out. */
async function startGuardedServer(options: { refuse?: number } = {}): Promise<Guarded> {
  const inner = await startScriptedServer({
    reply: (method) =>
      method === "resources/read" ? { result: { contents: [{ uri: "n://1", text: "one" }] } } : undefined,
  });
  opened.push(inner);
  const valid = new Set<string>();
  const asked: Guarded["asked"] = [];
  const guarded: Guarded = { url: "", issuer: "", valid, asked };
  let given = 0;
  let refused = 0;
  let anotherCame!: () => void;
  const another = new Promise<void>((resolve) => {
    anotherCame = resolve;
  });
  const outer = await serveHttp(async (request, response) => {
    const json = (status: number, body: unknown) =>
      void response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    const path = request.url ?? "";
    const origin = new URL(outer.url).origin;
    if (path.startsWith("/.well-known/oauth-protected-resource")) {
      return json(200, { resource: outer.url, authorization_servers: [origin] });
    }
    if (path.startsWith("/.well-known/oauth-authorization-server")) {
      return json(200, {
        issuer: origin,
        token_endpoint: `${origin}/token`,
        authorization_endpoint: `${origin}/authorize`,
        response_types_supported: ["code"],
        grant_types_supported: ["client_credentials"],
        token_endpoint_auth_methods_supported: ["client_secret_basic"],
      });
    }
    if (path === "/token") {
      asked.push({ authorization: request.headers.authorization, body: await bodyOf(request) });
      const description = `not ${request.headers.authorization}`;
      if (options.refuse) return json(options.refuse, { error: "invalid_client", error_description: description });
      given += 1;
      const token = `token-number-${given}`;
      valid.add(token);
      return json(200, { access_token: token, token_type: "Bearer" });
    }
    const sent = (request.headers.authorization ?? "").replace("Bearer ", "");
    const { refuseLate } = guarded;
    if (refuseLate !== undefined && sent !== refuseLate) anotherCame();
    if (!valid.has(sent)) {
      if (sent === refuseLate) refused += 1;
      if (refused > 1 && sent === refuseLate) await another;
      const metadata = `${origin}/.well-known/oauth-protected-resource`;
      response.setHeader("www-authenticate", `Bearer resource_metadata="${metadata}"`);
      return json(401, { error: `no: ${request.headers.authorization}` });
    }
    if (request.method !== "POST") return void response.writeHead(405).end();
    const headers = Object.fromEntries(
      Object.entries(request.headers).filter(
        ([name]) => name.startsWith("mcp-") || name === "accept" || name === "content-type",
      ),
    ) as Record<string, string>;
    const answer = await fetch(inner.url, { method: "POST", headers, body: await bodyOf(request) });
    response.writeHead(answer.status, { "content-type": answer.headers.get("content-type") ?? "text/plain" });
    response.end(await answer.text());
  });
  opened.push(outer);
  guarded.url = outer.url;
  guarded.issuer = new URL(outer.url).origin;
  return guarded;
}

async function connect(url: string, auth: EndpointAuth): Promise<SourceConnection> {
  const connection = await connectSource({ url, auth, requestTimeoutMs: 5_000 });
  opened.push(connection);
  return connection;
}

const read = (connection: SourceConnection) => readResource(connection, "n://1", { maxBodyBytes: 1_000 });

describe("client credentials", () => {
  const credentials = (issuer: string): EndpointAuth => ({
    type: "client_credentials",
    clientId: "fenceline",
    clientSecret: SECRET,
    issuer,
    scope: "resources:read",
  });

  test("bring a token, a new one when it is refused, and one for all connections (P7)", async () => {
    const server = await startGuardedServer();
    const auth = credentials(server.issuer);
    const connection = await connect(server.url, auth);
    expect(connection.era).toBe("modern");
    expect(await read(connection)).toMatchObject({ outcome: "content" });
    expect(server.asked).toHaveLength(1);
    expect(server.asked[0]?.authorization).toBe(`Basic ${BASIC}`);
    expect(new URLSearchParams(server.asked[0]?.body).get("grant_type")).toBe("client_credentials");
    expect(new URLSearchParams(server.asked[0]?.body).get("scope")).toBe("resources:read");
    server.valid.clear();
    expect(await read(connection)).toMatchObject({ outcome: "content" });
    expect(server.asked).toHaveLength(2);
    expect(await read(await connect(server.url, auth))).toMatchObject({ outcome: "content" });
    expect(server.asked).toHaveLength(2);
  });

  test("whose token is refused to many requests at once bring one new token for all of them (P7)", async () => {
    const server = await startGuardedServer();
    const connection = await connect(server.url, credentials(server.issuer));
    expect(server.asked).toHaveLength(1);
    server.valid.clear();

    const outcomes = await Promise.all(Array.from({ length: 8 }, () => read(connection)));

    expect(new Set(outcomes.map(({ outcome }) => outcome))).toEqual(new Set(["content"]));
    expect(server.asked).toHaveLength(2);
  });

  test("that are refused are a credential problem, asked once and told without a secret (P7, P8)", async () => {
    const output = ["log", "info", "warn", "error", "debug"] as const;
    const printed = output.map((method) => vi.spyOn(console, method));
    onTestFinished(() => void vi.restoreAllMocks());
    const server = await startGuardedServer({ refuse: 401 });
    const error = await connect(server.url, credentials(server.issuer)).catch((caught: Error) => caught);
    expect(error).toMatchObject({
      code: "source_unauthorized",
      message: expect.stringContaining("HTTP 401 (invalid_client)"),
    });
    expect(inspect(error, { depth: 10, showHidden: true })).not.toMatch(new RegExp(`${SECRET}|${BASIC}`));
    expect(server.asked).toHaveLength(1);
    for (const method of printed) expect(method).not.toHaveBeenCalled();
  });

  test.each([
    [503, "source_unreachable"],
    [429, "source_throttled"],
  ])("that cannot be judged now (HTTP %i) are no credential problem (P7)", async (status, code) => {
    const server = await startGuardedServer({ refuse: status });
    await expect(connect(server.url, credentials(server.issuer))).rejects.toMatchObject({ code });
  });

  test("go to no other authorization server than the configured one", async () => {
    const server = await startGuardedServer();
    const error = await connect(server.url, credentials("https://auth.example.test")).catch((caught: Error) => caught);
    expect(error).toMatchObject({ code: "source_unauthorized" });
    expect(server.asked).toEqual([]);
  });
});

describe("a token command", () => {
  /** A program that writes a line of its file, and counts how often it was run. */
  function tokenFile(first: string) {
    const directory = mkdtempSync(join(tmpdir(), "fenceline-token-"));
    opened.push({ close: async () => rmSync(directory, { recursive: true }) });
    const file = join(directory, "token");
    const write = (text: string) => writeFileSync(file, text);
    write(first);
    const runs = join(directory, "runs");
    const program = `const fs = require("fs"); fs.appendFileSync(process.argv[2], "."); process.stdout.write(fs.readFileSync(process.argv[1], "utf8"))`;
    return {
      write,
      command: [process.execPath, "-e", program, file, runs],
      runs: () => readFileSync(runs, "utf8").length,
    };
  }

  test("is asked once for its time, and again when its token is refused (P7)", async () => {
    const server = await startGuardedServer();
    server.valid.add("token-one");
    const { write, command } = tokenFile("token-one\nand more\n");
    const connection = await connect(server.url, { type: "command", command });
    write("token-two");
    expect(await read(connection)).toMatchObject({ outcome: "content" });
    server.valid.clear();
    server.valid.add("token-two");
    expect(await read(connection)).toMatchObject({ outcome: "content" });
  });

  test("is run once more for many requests that are refused at once, whenever their refusals come (P7)", async () => {
    const server = await startGuardedServer();
    server.valid.add("token-one");
    const { write, command, runs } = tokenFile("token-one");
    const connection = await connect(server.url, { type: "command", command });
    write("token-two");
    server.valid.clear();
    server.valid.add("token-two");
    server.refuseLate = "token-one";

    const outcomes = await Promise.all(Array.from({ length: 4 }, () => read(connection)));

    expect(new Set(outcomes.map(({ outcome }) => outcome))).toEqual(new Set(["content"]));
    expect(runs()).toBe(2);
  });

  test("that does not end is killed, and is a credential problem (P7)", async () => {
    const server = await startGuardedServer();
    const program = `process.on("SIGTERM", () => {}); setInterval(() => {}, 1_000)`;
    const auth: EndpointAuth = { type: "command", command: [process.execPath, "-e", program], timeoutMs: 500 };
    const error = await connect(server.url, auth).catch((caught: Error) => caught);
    expect(error).toMatchObject({ code: "source_unauthorized" });
    expect((error as Error).message).toContain("did not end within 500 ms");
  });

  test("whose token the server refuses for good is a credential problem, and the token is in no message (P7, P8)", async () => {
    const server = await startGuardedServer();
    server.valid.add("token-one");
    const connection = await connect(server.url, { type: "command", command: tokenFile("token-one").command });
    server.valid.clear();
    const outcome = await read(connection);
    expect(outcome).toMatchObject({ outcome: "unauthorized" });
    expect(JSON.stringify(outcome)).not.toContain("token-one");
  });

  test.each([
    ["fails", [process.execPath, "-e", "console.error('hidden-value'); process.exit(3)"], "ended with 3"],
    ["is not there", ["/nonexistent/program", "hidden-value"], "could not be run (ENOENT)"],
    ["writes too much", [process.execPath, "-e", "console.log('x'.repeat(100_000))"], "wrote more than 65536 bytes"],
    ["writes nothing", [process.execPath, "-e", ""], "wrote no token"],
    ["writes what is no token", [process.execPath, "-e", "console.log('two words')"], "wrote no token"],
  ])("that %s is a credential problem, told without what it wrote (P7, P8)", async (_, command, reason) => {
    const server = await startGuardedServer();
    const error = await connect(server.url, { type: "command", command }).catch((caught: Error) => caught);
    expect(error).toMatchObject({ code: "source_unauthorized" });
    expect((error as Error).message).toContain(reason);
    expect((error as Error).message).not.toContain("hidden-value");
  });
});
