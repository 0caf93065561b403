import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FencelineError } from "@fenceline/ledger";
import { afterEach, describe, expect, test, vi } from "vitest";
import { connectSource, type SourceConnection } from "#src/mcp/source-connection.js";
import { startLegacyServer } from "./legacy-server.js";
import { startModernServer } from "./modern-server.js";
import { scanToEnd } from "./scan-to-end.js";
import { isAlive, stdioEndpoint } from "./stdio-endpoint.js";

const EVERYTHING = createRequire(import.meta.url).resolve("@modelcontextprotocol/server-everything/dist/index.js");
const TOKEN = "secret-token-1";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

function closing<T extends { close(): Promise<void> }>(opened: T): T {
  cleanups.push(() => opened.close());
  return opened;
}

async function failureOf(connecting: Promise<SourceConnection>): Promise<FencelineError> {
  const error = await connecting.then(closing, (reason: unknown) => reason);
  expect(error).toBeInstanceOf(FencelineError);
  return error as FencelineError;
}

describe("the era of a connection", () => {
  test("a server of 2026-07-28 is spoken to in the modern era, and its capabilities are told apart (U1, U2)", async () => {
    const server = closing(await startModernServer({ capabilities: { resources: { listChanged: true } } }));
    const connection = closing(await connectSource({ url: server.url }));
    expect(connection).toMatchObject({
      era: "modern",
      protocolVersion: "2026-07-28",
      server: { name: "modern", version: "2.0.0" },
      capabilities: { resources: true, subscribe: false, listChanged: true, snapshotId: false },
    });
  });

  test("a server of the line before is spoken to in the legacy era, and its session is ended on close (U2)", async () => {
    const server = closing(await startLegacyServer());
    const connection = await connectSource({ url: server.url });
    expect(connection).toMatchObject({ era: "legacy", protocolVersion: "2025-11-25", server: { name: "legacy" } });
    expect(server.sessions.size).toBe(1);
    await connection.close();
    expect(server.sessions.size).toBe(0);
  });

  test("server-everything over stdio is legacy, and its afterConnect tool is called", async () => {
    const connection = closing(
      await connectSource({
        command: process.execPath,
        args: [EVERYTHING, "stdio"],
        afterConnect: [{ tool: "toggle-subscriber-updates" }],
      }),
    );
    expect(connection).toMatchObject({ era: "legacy", capabilities: { resources: true, subscribe: true } });
  });
});

describe("how often a server is started", () => {
  test("once, where it answers the question for its era", async () => {
    const endpoint = stdioEndpoint("serve");
    closing(await connectSource(endpoint));
    expect(endpoint.pids()).toHaveLength(1);
  });

  test("once more, where it ended on that question, and then it is spoken to as legacy (U2)", async () => {
    const endpoint = stdioEndpoint("shy");
    expect(closing(await connectSource(endpoint)).era).toBe("legacy");
    expect(endpoint.pids()).toHaveLength(2);
  });

  test("once each time from then on: it is not asked for its era again", async () => {
    const endpoint = stdioEndpoint("shy");
    await (await connectSource(endpoint)).close();
    expect(closing(await connectSource(endpoint)).era).toBe("legacy");
    expect(endpoint.pids()).toHaveLength(3);
  });

  test("a legacy server is asked for its era once, and again when it has become another (U2)", async () => {
    const directory = mkdtempSync(join(tmpdir(), "fenceline-version-"));
    cleanups.push(() => rmSync(directory, { recursive: true }));
    const version = join(directory, "version");
    const { env, ...rest } = stdioEndpoint("old");
    const endpoint = { ...rest, env: { ...env, VERSION_FILE: version }, requestTimeoutMs: 3_000 };
    const asked = async (as: string): Promise<boolean> => {
      writeFileSync(version, as);
      let said = "";
      const connection = await connectSource(endpoint, { onStderr: (chunk) => (said += chunk) });
      await vi.waitFor(() => expect(said).toContain("asked notifications/initialized"), { timeout: 5_000 });
      await connection.close();
      return said.includes("asked server/discover");
    };
    expect(await asked("1")).toBe(true);
    expect(await asked("1")).toBe(false);
    expect(await asked("2")).toBe(false);
    expect(await asked("2")).toBe(true);
  });
});

describe("the end of a connection", () => {
  test("a close of ours looks local and is told once", async () => {
    const server = closing(await startModernServer());
    const connection = await connectSource({ url: server.url });
    await Promise.all([connection.close(), connection.close()]);
    await expect(connection.closed).resolves.toEqual({ reason: "local" });
    expect(connection).toMatchObject({ era: "modern", capabilities: { resources: true } });
  });

  test("after close the server's process is gone", async () => {
    const endpoint = stdioEndpoint("serve");
    const connection = await connectSource(endpoint);
    expect(connection.era).toBe("modern");
    await connection.close();
    expect(endpoint.pids().length).toBeGreaterThan(0);
    expect(endpoint.pids().filter(isAlive)).toEqual([]);
  });

  test("a process that ends neither with its input nor on SIGTERM is gone after close too", async () => {
    const endpoint = stdioEndpoint("stubborn");
    const connection = await connectSource(endpoint);
    await connection.close();
    expect(endpoint.pids().filter(isAlive)).toEqual([]);
  });

  test("a server behind a shell, as npx starts it, is gone after close with the shell", async () => {
    const { command, args, ...endpoint } = stdioEndpoint("stubborn");
    const line = [command, ...args].map((word) => `'${word}'`).join(" ");
    const connection = await connectSource({ ...endpoint, command: "sh", args: ["-c", `${line}; exit 0`] });
    expect(endpoint.pids().filter(isAlive)).toHaveLength(1);
    await connection.close();
    expect(endpoint.pids().filter(isAlive)).toEqual([]);
  });

  test("a process that dies is a remote end", async () => {
    const connection = closing(await connectSource(stdioEndpoint("serve")));
    await connection.wire.client.callTool({ name: "die" }).catch(() => {});
    await expect(connection.closed).resolves.toMatchObject({ reason: "remote" });
  });
});

describe("a connection that does not come about", () => {
  test("a handshake that is never answered times out and leaves no process behind", async () => {
    const endpoint = stdioEndpoint("silent");
    // Long enough for a process to begin on a busy machine.
    const error = await failureOf(connectSource({ ...endpoint, requestTimeoutMs: 3_000 }));
    expect(error.code).toBe("request_timeout");
    expect(endpoint.pids().length).toBeGreaterThan(0);
    expect(endpoint.pids().filter(isAlive)).toEqual([]);
  });

  test("a caller who gives up gets request_aborted, and no process stays behind", async () => {
    const endpoint = stdioEndpoint("silent");
    const abort = new AbortController();
    const connecting = failureOf(connectSource(endpoint, { signal: abort.signal }));
    await vi.waitFor(() => expect(endpoint.pids().length).toBeGreaterThan(0), { timeout: 10_000 });
    abort.abort();
    expect((await connecting).code).toBe("request_aborted");
    await vi.waitFor(() => expect(endpoint.pids().filter(isAlive)).toEqual([]), { timeout: 10_000 });
  });

  test("a command that does not exist is unreachable, and the message names it", async () => {
    const error = await failureOf(connectSource({ command: "no-such-command-of-ours" }));
    expect(error).toMatchObject({
      code: "source_unreachable",
      message: expect.stringContaining("no-such-command-of-ours"),
    });
  });

  test("a port on which nobody listens is unreachable", async () => {
    const probe = createServer();
    await new Promise<void>((resolve) => probe.listen(0, "127.0.0.1", resolve));
    const { port } = probe.address() as { port: number };
    await new Promise((resolve) => probe.close(resolve));
    expect((await failureOf(connectSource({ url: `http://127.0.0.1:${port}/mcp` }))).code).toBe("source_unreachable");
  });

  test.each([
    [401, "source_unauthorized"],
    [403, "source_forbidden"],
    [503, "source_unreachable"],
  ])("HTTP %i is %s, and no token appears in any message", async (status, code) => {
    const server = closing(await startModernServer());
    server.refuseWith(status);
    const error = await failureOf(connectSource({ url: server.url, headers: { Authorization: `Bearer ${TOKEN}` } }));
    expect(error.code).toBe(code);
    expect(error.message).not.toContain(TOKEN);
  });

  test("a header that HTTP does not allow is named without its value", async () => {
    const error = await failureOf(
      connectSource({ url: "http://127.0.0.1:1/mcp", headers: { Authorization: `Bearer ${TOKEN}\u0000` } }),
    );
    expect(error).toMatchObject({ code: "source_endpoint_invalid" });
    expect(error.cause).toBeUndefined();
    expect(error.message).toContain("Authorization");
    expect(error.message).not.toContain(TOKEN);
  });

  test.each(["not a url", "ftp://example.org/", `http://user:${TOKEN}@127.0.0.1:1/mcp`])(
    "the URL %# is refused without being repeated",
    async (url) => {
      const error = await failureOf(connectSource({ url }));
      expect(error.code).toBe("source_endpoint_invalid");
      expect(error.message).not.toContain(TOKEN);
    },
  );
});

describe("tools called after connecting", () => {
  test("each is called once per connection", async () => {
    const server = closing(await startModernServer({ capabilities: { resources: {}, tools: {} } }));
    const endpoint = { url: server.url, afterConnect: [{ tool: "wake" }] };
    closing(await connectSource(endpoint));
    expect(server.toolCalls).toEqual(["wake"]);
    closing(await connectSource(endpoint));
    expect(server.toolCalls).toEqual(["wake", "wake"]);
  });

  test.each([
    ["scold", "not like this"],
    ["absent", "absent"],
  ])("a tool %s that fails is named, and the connection does not come about", async (tool, reason) => {
    const endpoint = stdioEndpoint("serve");
    const error = await failureOf(connectSource({ ...endpoint, afterConnect: [{ tool }] }));
    expect(error.code).toBe("after_connect_failed");
    expect(error.message).toContain(tool);
    expect(error.message).toContain(reason);
    expect(endpoint.pids().filter(isAlive)).toEqual([]);
  });
});

describe("our own output", () => {
  test("a server without resources makes the client print nothing on standard output", async () => {
    const debug = vi.spyOn(console, "debug");
    const write = vi.spyOn(process.stdout, "write");
    cleanups.push(() => vi.restoreAllMocks());
    const server = closing(await startModernServer({ capabilities: { tools: {} } }));
    const connection = closing(await connectSource({ url: server.url }));
    await scanToEnd(connection, { kind: "resources", budgets: { pages: 1, entries: 1, bytes: 1 } }, () => {});
    await expect(connection.wire.client.listResources()).rejects.toThrow();
    expect(debug).not.toHaveBeenCalled();
    expect(write).not.toHaveBeenCalled();
  });

  test("what a server writes to standard error reaches the given receiver only", async () => {
    const error = vi.spyOn(process.stderr, "write");
    cleanups.push(() => vi.restoreAllMocks());
    const lines: string[] = [];
    closing(await connectSource(stdioEndpoint("serve"), { onStderr: (chunk) => lines.push(chunk) }));
    await vi.waitFor(() => expect(lines.join("")).toContain("a line on standard error"), { timeout: 5_000 });
    expect(error).not.toHaveBeenCalled();
  });
});
