import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describeWhere } from "@fenceline/test-services";
import { expect, onTestFinished, test, vi } from "vitest";
import { fileHere, node22, published } from "./published-servers.js";

vi.setConfig({ testTimeout: 60_000 });

describeWhere(node22 !== undefined, "no Node 22 for this platform", "the conformance suite's client scenarios", () => {
  test.each(["initialize", "sse-retry", "auth/client-credentials-basic"])("%s passes", async (scenario) => {
    const { code, said, checks } = await runScenario(scenario);
    expect(
      checks.filter(({ status }) => status !== "SUCCESS" && status !== "INFO"),
      said,
    ).toEqual([]);
    expect(
      checks.some(({ status }) => status === "SUCCESS"),
      said,
    ).toBe(true);
    expect(code, said).toBe(0);
  });
});

interface Check {
  readonly id: string;
  readonly status: "SUCCESS" | "FAILURE" | "WARNING" | "INFO" | "SKIPPED";
  readonly errorMessage?: string;
}

/** Runs one scenario of the suite against the connector, in the Node that the connector itself is tested in. */
async function runScenario(scenario: string): Promise<{ code: number | null; said: string; checks: Check[] }> {
  const results = await mkdtemp(join(tmpdir(), "fenceline-conformance-"));
  onTestFinished(() => rm(results, { recursive: true, force: true }));
  // The suite cuts it at spaces and hands the pieces to a shell, where quotes bring them together again.
  const client = `"${process.execPath}" "${fileHere("conformance-client.mjs")}"`;
  const suite = spawn(
    node22 as string,
    [published.conformance, "client", "--command", client, "--scenario", scenario, "--output-dir", results],
    { stdio: ["ignore", "pipe", "pipe"] },
  );
  let said = "";
  for (const stream of [suite.stdout, suite.stderr]) {
    stream.setEncoding("utf8").on("data", (chunk: string) => {
      said += chunk;
    });
  }
  const [code] = (await once(suite, "close")) as [number | null];
  const files = await readdir(results, { recursive: true });
  const file = files.find((name) => name.endsWith("checks.json"));
  expect(file, said).toBeDefined();
  return { code, said, checks: JSON.parse(await readFile(join(results, file as string), "utf8")) as Check[] };
}
