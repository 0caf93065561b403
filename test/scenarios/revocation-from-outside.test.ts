import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadConfig, openIndex, startWorkers } from "@fenceline/connector-mcp";
import { startPriceCatalog } from "@fenceline/example-price-catalog/server";
import { openLedger } from "@fenceline/ledger";
import { copyDatabase } from "@fenceline/test-services";
import { describe, expect, it, onTestFinished } from "vitest";
import { runCli } from "./cli-process.js";
import { eventually } from "./eventually.js";

const ENTERPRISE = "catalog://plans/enterprise";
const SECONDS = 1_000;

/** A worker in this process with a retriever beside it, on the embedded ledger, with the price catalogue ingested. */
async function startWorkerThatIsAsked() {
  const directory = await mkdtemp(join(tmpdir(), "fenceline-outside-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const catalog = await startPriceCatalog({ token: "t" });
  onTestFinished(() => catalog.close());
  const file = join(directory, "fenceline.config.json");
  await writeFile(
    file,
    JSON.stringify({
      ledger: `file:${join(directory, "ledger")}`,
      mcpServers: { catalog: { url: catalog.url, headers: { Authorization: "Bearer t" }, reader: "svc:rag" } },
      grants: [{ source: "catalog", reader: "svc:rag", audience: "user:alice", prefix: "catalog://plans" }],
    }),
  );
  const config = await loadConfig(file);
  await copyDatabase("ledger", openLedger, join(directory, "ledger"));
  const ledger = await openLedger(config.ledger);
  onTestFinished(() => ledger.close());
  const pool = await startWorkers({ ledger, config });
  onTestFinished(() => pool.close());
  expect(await pool.idle({ timeoutMs: 60 * SECONDS })).toBe("idle");
  const index = await openIndex({ ledger, config });
  onTestFinished(() => index.close());
  const retriever = index.asRetriever({ k: 50 });
  const uris = async (asker: string) => {
    const documents = await retriever.invoke("what does the enterprise plan cost?", {
      configurable: { asker: [asker] },
    });
    return documents.map(({ metadata }) => metadata["uri"] as string);
  };
  const revoke = async (...args: string[]) => {
    const scope = ["--source", "catalog", "--reason", "trial ended", "--config", file, "--json"];
    const { code, stdout, stderr } = await runCli(["revoke", ...args, ...scope]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    return JSON.parse(stdout) as { revocationId: number; effectiveAt: string };
  };
  return { ledger, index, uris, revoke };
}

describe("a revocation asked for in another process", () => {
  it("is heeded by the guard in the worker's process at its next question, and carried through by the worker: every entry is verified absent within 5 s of its taking effect (P2, P3, P6)", async () => {
    const { ledger, index, uris, revoke } = await startWorkerThatIsAsked();
    const { recorded } = await index.compare();
    expect(recorded).toBeGreaterThanOrEqual(40);
    expect(await uris("user:alice")).toContain(ENTERPRISE);

    await revoke("--subject", "user:alice", "--prefix", ENTERPRISE);
    const left = await uris("user:alice");
    expect(left).toContain("catalog://plans/basic");
    expect(left.filter((uri) => uri.startsWith(ENTERPRISE))).toEqual([]);

    const { revocationId, effectiveAt } = await revoke("--subject", "svc:rag", "--everything");
    expect(await uris("user:alice")).toEqual([]);
    const status = await eventually(
      "the worker carries the revocation through",
      () => ledger.revocation(revocationId),
      (seen) => seen?.state === "COMPLETE",
    );
    const [store] = status?.stores ?? [];
    expect(store).toMatchObject({ entries: recorded, remaining: 0, claim: "absent" });
    expect(Number(store?.absentAt) - Date.parse(effectiveAt)).toBeLessThan(5 * SECONDS);
    expect(await index.compare()).toMatchObject({ recorded: 0, present: 0, orphans: 0 });
  }, 90_000);
});
