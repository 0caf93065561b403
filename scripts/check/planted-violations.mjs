/**
 * Shows that the lint rules of ours fire: plants one violation of each, and beside each a twin that keeps the rule, in a
 * copy of the configuration. A rule whose pattern matches nothing would otherwise pass unseen.
 */

import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { root } from "../set-up.mjs";
import { biomeFindings } from "./biome-findings.mjs";

const imports = "lint/style/noRestrictedImports";
const globals = "lint/style/noRestrictedGlobals";
const properties = "lint/nursery/noJsRestrictedProperties";

/** @param {string} specifier */
const importOf = (specifier) => `import { it } from "${specifier}";\n\nexport const kept = it;\n`;
/** @param {string} expression */
const constantOf = (expression) => `export const value = ${expression};\n`;

/** One row per violation: the file it is planted in, the rule that must fire, the violation, and its lawful twin. */
const violations = [
  ...["@fenceline/connector-mcp", "@modelcontextprotocol/client", "bullmq", "@langchain/core/documents"].map(
    (specifier) => plant("packages/ledger/src/reads", imports, importOf(specifier), importOf("pg")),
  ),
  ...["node:crypto", "node:fs/promises", "../database/database.js", "bullmq"].map((specifier) =>
    plant("packages/ledger/src/records/scan", imports, importOf(specifier), importOf("zod")),
  ),
  ...["subscription-state", "resource-uri", "entry-id"].map((file) =>
    plant(`packages/ledger/src/${file}`, imports, importOf("node:crypto"), importOf("zod")),
  ),
  plant("packages/ledger/src/records/scan", properties, constantOf("Date.now()"), constantOf("Date.UTC(2026, 1)")),
  plant("packages/ledger/src/resource-uri", properties, constantOf("Math.random()"), constantOf("Math.max(1, 2)")),
  plant("packages/ledger/src/entry-id", "plugin", constantOf("new Date()"), constantOf("new Date(0)")),
  plant("packages/ledger/src/subscription-state", globals, constantOf("process.env"), constantOf("globalThis.name")),
  ...["../langchain/loader.js", "../jobs/queues.js", "../cli/main.js", "bullmq", "@langchain/core/documents"].map(
    (specifier) => plant("packages/connector-mcp/src/mcp/scan", imports, importOf(specifier), importOf("./text.js")),
  ),
  ...["../mcp/scan.js", "../jobs/queues.js", "../cli/main.js", "bullmq", "@modelcontextprotocol/client"].map(
    (specifier) =>
      plant("packages/connector-mcp/src/langchain/load", imports, importOf(specifier), importOf("@langchain/core")),
  ),
  plant("packages/connector-mcp/src/jobs/pool", imports, importOf("../cli/main.js"), importOf("../mcp/scan.js")),
  plant(
    "packages/ledger/src/reads",
    "plugin",
    'export function read() {\n  throw new Error("no");\n}\n',
    'import { OurError } from "./errors.js";\n\nexport function read() {\n  throw new OurError("no");\n}\n',
  ),
  plant(
    "packages/ledger/src/reads",
    "lint/nursery/noFloatingPromises",
    "async function read() {}\n\nexport function go() {\n  read();\n}\n",
    "async function read() {}\n\nexport async function go() {\n  await read();\n}\n",
  ),
  plant(
    "packages/ledger/src/reads",
    "lint/suspicious/noConsole",
    "console.log(1);\n\nexport const value = 1;\n",
    "export const value = 1;\n",
  ),
  plant(
    "packages/connector-mcp/test/scan.test",
    "lint/suspicious/noSkippedTests",
    'import { test } from "vitest";\n\ntest.skip("later", () => {});\n',
    'import { test } from "vitest";\n\ntest("now", () => {});\n',
  ),
];

/**
 * @returns {Promise<string[]>} A line for each rule that did not fire on its violation, or fired on the lawful twin.
 */
export async function plantedViolations() {
  /** @type {string[]} */
  const faults = [];
  for (const round of rounds()) {
    const fired = await rulesFired(round.map(({ file, violation }) => ({ file, text: violation })));
    const firedOnTwin = await rulesFired(round.map(({ file, twin }) => ({ file, text: twin })));
    for (const { file, rule, violation, twin } of round) {
      if (!fired.get(file)?.includes(rule)) faults.push(`${rule} let this pass in ${file}:\n${violation}`);
      if (firedOnTwin.has(file)) faults.push(`${firedOnTwin.get(file)} fired in ${file} on:\n${twin}`);
    }
  }
  return faults;
}

/** Several violations are planted in one file, so each round takes at most one for every file. */
function rounds() {
  const files = new Set(violations.map(({ file }) => file));
  const byFile = [...files].map((file) => violations.filter((planted) => planted.file === file));
  const length = Math.max(...byFile.map((planted) => planted.length));
  return Array.from({ length }, (_, index) => byFile.flatMap((planted) => planted.slice(index, index + 1)));
}

/**
 * @param {string} file Without `.ts`.
 * @param {string} rule
 * @param {string} violation
 * @param {string} twin
 */
function plant(file, rule, violation, twin) {
  return { file: `${file}.ts`, rule, violation, twin };
}

/**
 * @param {Array<{ file: string, text: string }>} files
 * @returns {Promise<Map<string, string[]>>} The rules that fired, by file.
 */
async function rulesFired(files) {
  const folder = mkdtempSync(join(tmpdir(), "fenceline-lint-"));
  try {
    for (const config of ["biome.jsonc", ".gitignore", "scripts/lint"])
      cpSync(join(root, config), join(folder, config), { recursive: true });
    for (const { file, text } of files) {
      mkdirSync(join(folder, dirname(file)), { recursive: true });
      writeFileSync(join(folder, file), text);
    }
    const fired = new Map();
    for (const { path, category } of await biomeFindings(folder, "lint"))
      fired.set(path, [...(fired.get(path) ?? []), category]);
    return fired;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
