import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, it } from "vitest";
import { runCli } from "./cli-process.js";

const server = fileURLToPath(new URL("../../examples/proven-list/dist/server.js", import.meta.url));

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "fenceline-changed-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function ingest(mcpServers: object, ...options: string[]) {
  const file = join(folder, "fenceline.config.json");
  await writeFile(file, JSON.stringify({ ledger: "file:ledger", mcpServers }));
  const { code, stdout, stderr } = await runCli(["ingest", "--config", file, "--json", ...options]);
  return { code, sources: stdout === "" ? [] : JSON.parse(stdout).sources, stderr };
}

const articlesIn = (region: string) => ({
  articles: { command: process.execPath, args: [server], env: { REGION: region }, reader: "svc:rag" },
});

it("G1: a source that leads elsewhere, or is gone, is asked about with exit code 2, and goes on as --moved and --removed say", async () => {
  expect(await ingest(articlesIn("eu"))).toMatchObject({ code: 0, sources: [{ reads: { accepted: 25 } }] });

  const moved = await ingest(articlesIn("us"));
  expect(moved).toMatchObject({ code: 2, sources: [] });
  expect(moved.stderr).toContain("25 resources of articles");
  expect(moved.stderr).toContain("--moved articles");
  expect(await ingest(articlesIn("us"), "--moved", "articles")).toMatchObject({
    code: 0,
    sources: [{ reads: { unchanged: 25 } }],
  });

  const removed = await ingest({});
  expect(removed).toMatchObject({ code: 2, sources: [] });
  expect(removed.stderr).toContain("--removed articles");
  expect(await ingest({}, "--removed", "articles")).toMatchObject({ code: 0, sources: [] });
  expect(await ingest({})).toMatchObject({ code: 0 });
}, 180_000);
