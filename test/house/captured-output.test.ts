import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const scripts = new URL("../../scripts/", import.meta.url);
const here = fileURLToPath(scripts);

test("a report on standard output is whole, though a line on standard error was broken off for it", async () => {
  const { runCaptured } = (await import(new URL("child-process.mjs", scripts).href)) as {
    runCaptured(
      command: string,
      args: readonly string[],
      options: { cwd: string },
    ): Promise<{ code: number; output: string; stdout: string }>;
  };
  const program = `process.stderr.write("x Some ", () => process.stdout.write('{"summary":1}\\n', () => process.stderr.write("errors.\\n")));`;
  const { code, output, stdout } = await runCaptured(process.execPath, ["-e", program], { cwd: here });

  expect({ code, stdout }).toEqual({ code: 0, stdout: '{"summary":1}' });
  expect(output).toContain("x Some");
  expect(output).toContain("errors.");
});
