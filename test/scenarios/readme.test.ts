import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, it, onTestFinished } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
const example = join(root, "examples/price-catalog");

describe("the README's API example", () => {
  it("is the text of a program that compiles", async () => {
    const program = await readFile(join(example, "src/ten-lines.ts"), "utf8");
    const readme = await readFile(join(root, "README.md"), "utf8");
    const shown = readme.match(/<!-- ten-lines: [^>]*-->\n```ts\n(.*?)```/s)?.[1];
    const compiled = program.match(/\/\/ README begins\n(.*?)\/\/ README ends/s)?.[1];
    expect(shown?.trim()).toBe(compiled?.trim());
  });

  it("runs: the group sees the basic plan, and nothing once its permission is revoked (P2)", async () => {
    const directory = await mkdtemp(join(tmpdir(), "fenceline-readme-"));
    onTestFinished(() => rm(directory, { recursive: true, force: true }));
    const { stdout } = await promisify(execFile)(process.execPath, [join(example, "dist/ten-lines.js")], {
      cwd: directory,
    });
    const { before, after } = JSON.parse(stdout) as { before: string[]; after: number };
    expect(before).toContain("catalog://plans/basic");
    expect(after).toBe(0);
  }, 120_000);
});
