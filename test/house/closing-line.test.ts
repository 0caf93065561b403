import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const reporter = join(root, "test/services/dist/closing-line-reporter.js");
const services = { FENCELINE_TEST_POSTGRES_URL: "", FENCELINE_TEST_REDIS_URL: "", FENCELINE_REQUIRE_SERVICES: "" };

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "fenceline-closing-line-"));
  await mkdir(join(folder, "node_modules/@fenceline"), { recursive: true });
  await symlink(join(root, "node_modules/vitest"), join(folder, "node_modules/vitest"));
  await symlink(join(root, "test/services"), join(folder, "node_modules/@fenceline/test-services"));
  const config = { test: { reporters: ["default", reporter] } };
  await writeFile(join(folder, "vitest.config.mjs"), `export default ${JSON.stringify(config)};`);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** Runs one test file in a process of its own. */
async function run(body: string, env: Record<string, string> = {}, args: string[] = []) {
  const file = join(folder, "planted.test.ts");
  const imports = `
    import { describeWhere, describeWithPostgres, describeWithPostgresAndRedis } from "@fenceline/test-services";
    import { beforeAll, describe, expect, test } from "vitest";`;
  await writeFile(file, `${imports}\ntest("holds", () => expect(1).toBe(1));\n${body}`);
  const vitest = join(root, "node_modules/vitest/vitest.mjs");
  const child = spawn(process.execPath, [vitest, "run", ...args], {
    cwd: folder,
    env: { ...process.env, ...services, ...env },
    stdio: ["ignore", "pipe", "ignore"],
  });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  const [code] = await once(child, "close");
  const lines = output.trimEnd().split("\n");
  return { code, lines, closing: lines.at(-1) };
}

test("a run ends with its counts, alone on the line", async () => {
  expect(await run("")).toMatchObject({ code: 0, closing: "1 passed, 0 failed" });
  expect(await run('test("fails", () => expect(1).toBe(2));')).toMatchObject({
    code: 1,
    closing: "1 passed, 1 failed",
  });
});

test("a group whose service is not set is named and skipped, with the service it wants", async () => {
  const { code, lines, closing } = await run(`
    describeWithPostgres("rows", (url) => test("never runs", () => expect(url).toBe("")));
    describeWithPostgresAndRedis("both", () => test("never runs", () => {}));`);
  expect(lines.slice(-4)).toEqual([
    "Not run, for want of what it needs:",
    "  planted.test.ts > rows (PostgreSQL not set)",
    "  planted.test.ts > both (PostgreSQL and Redis not set)",
    closing,
  ]);
  expect({ code, closing }).toEqual({ code: 0, closing: "1 passed, 0 failed, 2 skipped" });
});

test("a group that a machine cannot run is named with what it lacks, also where services are required", async () => {
  const groups = `describeWhere(false, "not root", "for root", () => test("never runs", () => {}));
    describeWhere(true, "not root", "for anybody", () => test("runs", () => {}));`;
  const { lines, code, closing } = await run(groups, { FENCELINE_REQUIRE_SERVICES: "1" });
  expect(lines).toContain("  planted.test.ts > for root (not root)");
  expect({ code, closing }).toEqual({ code: 0, closing: "2 passed, 0 failed, 1 skipped" });
});

test("a group whose service is set gets its address", async () => {
  const url = "postgres://somewhere/test";
  const group = `describeWithPostgres("rows", (url) => test("runs", () => expect(url).toBe("${url}")));`;
  expect(await run(group, { FENCELINE_TEST_POSTGRES_URL: url })).toMatchObject({
    code: 0,
    closing: "2 passed, 0 failed",
  });
});

test("where services are required, a group whose service is not set fails", async () => {
  const group = 'describeWithPostgres("rows", () => test("never runs", () => {}));';
  expect(await run(group, { FENCELINE_REQUIRE_SERVICES: "1" })).toMatchObject({
    code: 1,
    closing: "1 passed, 1 failed",
  });
});

test("a test that is skipped or put off for any other reason fails the run", async () => {
  const { code, lines, closing } = await run('test.skip("skipped", () => {}); test.todo("put off");');
  expect({ code, closing }).toEqual({ code: 1, closing: "1 passed, 2 failed" });
  expect(lines).toContain("  planted.test.ts > skipped");
});

test("what a name filter leaves out is no fault", async () => {
  const { code, closing } = await run('test("another", () => {});', {}, ["-t", "holds"]);
  expect({ code, closing }).toEqual({ code: 0, closing: "1 passed, 0 failed, 1 skipped" });
});

test("a hook that fails counts once, and not again for the tests it kept from running", async () => {
  const { code, closing } = await run(`describe("group", () => {
    beforeAll(() => { throw new TypeError("broken"); });
    test("first", () => {});
    test("second", () => {});
  });`);
  expect({ code, closing }).toEqual({ code: 1, closing: "1 passed, 1 failed, 2 skipped" });
});
