import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type PriceCatalog, startPriceCatalog } from "@fenceline/example-price-catalog/server";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CliProcess, type CliResult, runCli } from "./cli-process.js";
import { eventually } from "./eventually.js";

const everything = createRequire(import.meta.resolve("@fenceline/example-price-catalog/server")).resolve(
  "@modelcontextprotocol/server-everything/dist/index.js",
);

describe("a worker in one terminal, commands in another", () => {
  let directory: string;
  let file: string;
  let catalog: PriceCatalog;
  let worker: CliProcess;

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), "fenceline two terminals-"));
    file = join(directory, "fenceline.config.json");
    catalog = await startPriceCatalog({ token: "t" });
    await writeFile(
      file,
      JSON.stringify({
        ledger: `file:${join(directory, "ledger")}`,
        mcpServers: {
          everything: { command: process.execPath, args: [everything, "stdio"], reader: "svc:rag" },
          catalog: { url: catalog.url, headers: { Authorization: `Bearer \${CATALOG_TOKEN}` }, reader: "svc:rag" },
        },
        grants: [
          { source: "catalog", reader: "svc:rag", audience: "group:sales", prefix: "catalog://plans" },
          { source: "everything", reader: "svc:rag", audience: "user:alice", everything: true },
        ],
      }),
    );
    worker = new CliProcess(["worker", "--config", file], { CATALOG_TOKEN: "t" });
    await worker.says("worker ready");
  });

  afterAll(async () => {
    await worker?.stop();
    await catalog?.close();
    if (directory !== undefined) await rm(directory, { recursive: true, force: true });
  });

  const run = (...args: string[]): Promise<CliResult> =>
    runCli([...args, "--config", file, "--json"], { CATALOG_TOKEN: "t" });
  const json = async (...args: string[]) => {
    const { stdout, stderr, code } = await run(...args);
    expect(stderr).toBe("");
    expect(code).toBe(0);
    return JSON.parse(stdout);
  };
  const prices = async () => {
    const { hits } = await json("query", "what does the basic plan cost?", "--as", "user:alice,group:sales");
    const basic = (hits as { uri: string; text: string; id: string }[]).find(
      (hit) => hit.uri === "catalog://plans/basic",
    );
    return { id: basic?.id, price: basic?.text.match(/price=\d+/)?.[0] };
  };

  it("query shows what the worker ingests, and the new value once the source announced it", async () => {
    await eventually("the catalogue is ingested", prices, ({ price }) => price === "price=100", 40_000);
    catalog.setPrice("basic", 120);
    await eventually("the new price is served", prices, ({ price }) => price === "price=120");
  }, 90_000);

  it("trace answers both ways, with reader, session and server (L4)", async () => {
    const { id } = await prices();
    const fromEntry = await json("trace", id as string);
    expect(fromEntry.versions[0]).toMatchObject({ uri: "catalog://plans/basic", source: "catalog", reader: "svc:rag" });
    const fromUri = await json("trace", "catalog://plans/basic");
    const entries = fromUri.versions.flatMap((version: { entries: { id: string }[] }) => version.entries);
    expect(entries.map((entry: { id: string }) => entry.id)).toContain(id);
  });

  it("revoke --wait returns when every derived entry is verified absent, and the next query shows nothing (P2, P3)", async () => {
    const revoked = await json(
      "revoke",
      "--subject",
      "svc:rag",
      "--source",
      "catalog",
      "--everything",
      "--reason",
      "trial",
      "--wait",
    );
    expect(revoked).toMatchObject({ state: "COMPLETE", covered: { resources: 40 } });
    expect(revoked.stores).toHaveLength(1);
    expect(revoked.stores[0].absentAt).toEqual(expect.any(String));
    expect((await prices()).price).toBeUndefined();
    const echo = await json("query", "what does the echo tool do?", "--as", "user:alice");
    expect(echo.hits[0].uri).toMatch(/^demo:/);
  }, 60_000);

  it("verify finds every invariant kept and every store equal to the ledger", async () => {
    const verified = await json("verify");
    expect(verified.ok).toBe(true);
    expect(verified.invariants.length).toBeGreaterThanOrEqual(10);
    expect(verified.stores[0]).toMatchObject({ missing: 0, orphans: 0, foreign: 0 });
  });

  it("status names the sources, the worker and the revocation", async () => {
    const status = await json("status");
    expect(status.sources.map(({ name }: { name: string }) => name).sort()).toEqual(["catalog", "everything"]);
    expect(status.revocations).toEqual({ open: 0, complete: 1 });
    expect(status.workers).toHaveLength(1);
  });

  it("a worker that is asked to stop ends by itself with exit code 0", async () => {
    expect(await worker.stop()).toBe(0);
  });
});
