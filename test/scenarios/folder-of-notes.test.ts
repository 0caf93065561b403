import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const main = fileURLToPath(new URL("../../examples/folder-of-notes/dist/main.js", import.meta.url));

it("L1, P1, P3: a reader that is no MCP client records reads, entries and a summary, and SQL revokes them", () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [main], { encoding: "utf8" });

  expect(stderr).toBe("");
  expect(stdout).toContain("✓ the store holds none of it any more, and receipts say so");
  expect(stdout).toContain("Everything as expected.");
  expect(status).toBe(0);
}, 120_000);
