import { access, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { runCli } from "./cli-process.js";

let folder: string;
let file: string;
let ledger: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "fenceline-usage-"));
  ledger = join(folder, "ledger");
  file = await configFile("good.json", {
    ledger: `file:${ledger}`,
    mcpServers: { catalog: { url: "http://127.0.0.1:9/mcp", reader: "svc:rag" } },
    indexes: { first: {}, second: {} },
  });
});

afterAll(() => rm(folder, { recursive: true, force: true }));

async function configFile(name: string, config: unknown): Promise<string> {
  const path = join(folder, name);
  await writeFile(path, typeof config === "string" ? config : JSON.stringify(config));
  return path;
}

/** Refused with exit code 2 and this on standard error alone, and nothing was begun. */
async function expectRefusal(args: readonly string[], said: string): Promise<void> {
  const { code, stdout, stderr } = await runCli(args);
  expect(stderr).toContain(said);
  expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  await expect(access(ledger)).rejects.toMatchObject({ code: "ENOENT" });
}

const REVOKE = ["revoke", "--subject", "user:a", "--reason", "r"];
const GRANT = ["--source", "catalog", "--reader", "svc:rag", "--audience", "user:a"];

describe("a command that is asked for wrongly ends with exit code 2 and one clear error, and creates no ledger", () => {
  it.each<[args: string[], said: string]>([
    [["bogus"], "unknown command 'bogus'"],
    [["status", "--bogus"], "unknown option '--bogus'"],
    [["status", "extra"], "too many arguments"],
    [["query", "q"], "--as <asker>"],
    [["query", "q", "--as", "user:a,,b"], "--as <asker>"],
    [["query", "", "--as", "user:a", "--index", "first"], "It is empty"],
    [["query", "q", "--as", "user:a", "--k", "0", "--index", "first"], "above 0"],
    [["query", "q", "--as", "user:a", "--k", "1e3", "--index", "first"], "above 0"],
    [["query", "q", "--as", "user:a"], "No index was named; configured are: first, second"],
    [["query", "q", "--as", "user:a", "--index", "constructor"], "There is no index constructor"],
    [["trace"], "missing required argument"],
    [["trace", " "], "It is empty"],
    [["ingest", "--timeout", "abc"], "Give seconds"],
    [["ingest", "--timeout", "0"], "Give seconds"],
    [["ingest", "--timeout", "99999999"], "Give seconds"],
    [["grant", "add"], "--source <name>"],
    [["grant", "add", ...GRANT], "one of --uri, --prefix and --everything is required"],
    [["grant", "add", ...GRANT, "--uri", "a:b", "--everything"], "cannot be used with"],
    [["grant", "add", ...GRANT, "--prefix", "a:b?"], "segment bound"],
    [["grant", "add", ...GRANT.with(1, "nope"), "--everything"], 'There is no source "nope"'],
    [["grant", "add", ...GRANT.with(3, "svc:nope"), "--everything"], 'Nothing of catalog is read as "svc:nope"'],
    [["grant", "remove", ...GRANT.with(5, ""), "--everything"], "It is empty"],
    [["grant", "list", "--source", "nope"], 'There is no source "nope"'],
    [["revoke", "--subject", "user:a"], "--reason <text>"],
    [[...REVOKE, "--subject", ""], "It is empty"],
    [[...REVOKE, "--reason", " "], "It is empty"],
    [[...REVOKE, "--role", "owner"], "Allowed choices are reader, audience, both"],
    [[...REVOKE, "--uri", "a:b", "--prefix", "a:"], "cannot be used with"],
    [[...REVOKE, "--source", "nope"], 'There is no source "nope"'],
    [[...REVOKE, "--wait", "--timeout", "soon"], "Give seconds"],
    [[...REVOKE, "--timeout", "5"], "not asked for"],
  ])("%j", async (args, said) => {
    const isKnown = args[0] !== "bogus";
    await expectRefusal([...args, ...(isKnown ? ["--config", file, "--json"] : [])], said);
  });

  it("a configuration that is missing, a directory, no JSON, or has wrong fields is named with its fault", async () => {
    await mkdir(join(folder, "directory"));
    const cases: [config: string, said: string][] = [
      [join(folder, "absent.json"), "There is no configuration at"],
      [join(folder, "directory"), "it is a directory"],
      [await configFile("no.json", '{\n  "ledger": "file:x",\n  oops\n}'), "not valid JSON: line 3, column 3"],
      [await configFile("fields.json", { mcpServers: {}, foo: 1, settings: { pollMs: "1" } }), "foo: no such field"],
      [
        await configFile("variable.json", { ledger: `file:\${FENCELINE_TEST_UNSET}`, mcpServers: {} }),
        "environment variable FENCELINE_TEST_UNSET is not set",
      ],
    ];
    for (const [config, said] of cases) await expectRefusal(["status", "--config", config, "--json"], said);
  });
});

describe("a command that fails ends with exit code 1", () => {
  it("naming the ledger that is no database directory", async () => {
    await writeFile(join(folder, "occupied"), "not a directory");
    const config = await configFile("occupied.json", { ledger: "file:occupied", mcpServers: {} });
    const { code, stdout, stderr } = await runCli(["status", "--config", config, "--json"]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toMatch(/^fenceline: .*occupied.*\n$/);
  });
});

describe("the help", () => {
  it("of every command shows what it does, its options and examples", async () => {
    const commands = ["ingest", "worker", "query", "trace", "grant add", "grant remove", "grant list", "revoke"];
    for (const command of [...commands, "status", "verify", "doctor"]) {
      const { code, stdout, stderr } = await runCli([...command.split(" "), "--help"]);
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      for (const part of [
        `Usage: fenceline ${command}`,
        "--config <file>",
        "--json",
        "Examples:",
        `fenceline ${command}`,
      ])
        expect(stdout).toContain(part);
      // Given twice, the second is in milliseconds.
      expect(stdout).not.toMatch(/\(default: [^)]*\)\s+\(default: /);
    }
  });

  it("loads neither LangChain nor BullMQ nor an MCP SDK", async () => {
    const { code, stderr } = await runCli(["status", "--help"], { NODE_DEBUG: "esm,module" });
    expect(code).toBe(0);
    expect(stderr).toContain("commander");
    expect(stderr).not.toMatch(/node_modules\/(@langchain|bullmq|@modelcontextprotocol)/);
  });
});
