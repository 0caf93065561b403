import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const main = fileURLToPath(new URL("../../examples/proven-list/dist/main.js", import.meta.url));

it("S3: a server that binds snapshot ids is walked once, and proven, also when an article was withdrawn", () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [main], { encoding: "utf8" });

  expect(stderr).toBe("");
  expect(stdout).toContain("✓ one walk of three pages proves the list");
  expect(stdout).toContain("✓ and that one is gone");
  expect(stdout).toContain("Everything as expected.");
  expect(status).toBe(0);
}, 120_000);
