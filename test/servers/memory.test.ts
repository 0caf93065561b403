import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { ingest, within } from "./ingestion.js";
import { freePort, published, type RunningServer, startListening } from "./published-servers.js";

vi.setConfig({ testTimeout: 90_000 });

const GRAPH = "memory://knowledge-graph";

describe("server-memory over stdio", () => {
  test("a file changed behind its back, which it does not announce, is found by the periodic read (U6)", async () => {
    const file = await memoryFile("first");
    const { stats, textOf, ledger } = await ingest(
      { command: process.execPath, args: [published.memory], env: { MEMORY_FILE_PATH: file } },
      { rereadMs: 2_000 },
    );
    expect(stats()).toMatchObject({ era: "legacy", pushed: 1, polled: 0, scan: { resources: 1 }, problems: [] });
    expect(await textOf(GRAPH)).toContain("first");

    await writeFile(file, (await readFile(file, "utf8")).replaceAll("first", "second"));

    await expect.poll(() => textOf(GRAPH), within).toContain("second");
    expect(await textOf(GRAPH)).not.toContain("first");
    expect((await ledger.trace({ uri: GRAPH })).versions).toHaveLength(2);
  });
});

describe("server-memory behind mcp-proxy", () => {
  test("2026-07-28 over HTTP: what another client changes is announced, read and shown (U2)", async () => {
    const { port } = await proxiedMemory([]);
    const { stats, textOf } = await ingest({ url: `http://127.0.0.1:${port}/mcp` });
    expect(stats()).toMatchObject({ era: "modern", pushed: 1, polled: 0, scan: { resources: 1 }, problems: [] });

    await createEntity(port, "Lighthouse");

    await expect.poll(() => textOf(GRAPH), within).toContain("Lighthouse");
    expect(stats().reads.accepted).toBe(2);
  });

  test("2025-11-25 over HTTP: a session that the proxy no longer knows, answered with 404 and -32001, leads to a new one that reads all again (U4)", async () => {
    const port = await freePort();
    const args = ["--no-modern"];
    const first = await proxiedMemory(args, port);
    const { stats, textOf, ledger } = await ingest({ url: `http://127.0.0.1:${port}/mcp` });
    expect(stats()).toMatchObject({ era: "legacy", pushed: 1, polled: 0, problems: [] });
    const pushed = async () => (await ledger.status()).sources[0]?.pushed;

    // The proxy forgets every session, and what was changed meanwhile is announced to nobody.
    await first.stop();
    await expect.poll(pushed, within).not.toBe(1);
    await proxiedMemory(args, port, "Beacon");

    await expect.poll(() => textOf(GRAPH), { ...within, timeout: 45_000 }).toContain("Beacon");
    await expect.poll(pushed, within).toBe(1);
    await createEntity(port, "Lighthouse");
    await expect.poll(() => textOf(GRAPH), within).toContain("Lighthouse");
  });
});

/** The server's own file, with one entity in it. */
async function memoryFile(entity: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "fenceline-memory-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const file = join(folder, "memory.jsonl");
  const line = { type: "entity", name: entity, entityType: "note", observations: [`${entity} stands here`] };
  await writeFile(file, `${JSON.stringify(line)}\n`);
  return file;
}

async function proxiedMemory(options: readonly string[], givenPort?: number, entity = "first"): Promise<RunningServer> {
  const port = givenPort ?? (await freePort());
  const address = ["--host", "127.0.0.1", "--port", String(port)];
  return startListening([published.proxy, ...address, ...options, "--", process.execPath, published.memory], {
    port,
    env: { MEMORY_FILE_PATH: await memoryFile(entity) },
  });
}

/** As a client of its own, with which the connector shares nothing. */
async function createEntity(port: number, name: string): Promise<void> {
  const client = new Client({ name: "another", version: "1.0.0" });
  await client.connect(new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${port}/mcp`)));
  try {
    const entities = [{ name, entityType: "note", observations: [`${name} stands here`] }];
    const result = await client.callTool({ name: "create_entities", arguments: { entities } });
    expect(result.isError ?? false).toBe(false);
  } finally {
    await client.close();
  }
}
