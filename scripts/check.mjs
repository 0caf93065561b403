/** `npm run check`: everything that can be said of the code without running it. */

import { existsSync } from "node:fs";
import { join } from "node:path";
import { biomeFindings } from "./check/biome-findings.mjs";
import { packedPackages } from "./check/packed-packages.mjs";
import { plantedViolations } from "./check/planted-violations.mjs";
import { uncitedRules } from "./check/spec-rules.mjs";
import { trackedText } from "./check/tracked-text.mjs";
import { endedBy, runCaptured } from "./child-process.mjs";
import { root } from "./set-up.mjs";

/** A check's findings; none when all is well. `notes` are printed and fail nothing. */
/** @typedef {{ faults: string[], notes?: string[] }} Findings */

/** @type {Record<string, () => Promise<Findings>>} */
const checks = {
  "format and lint": formatAndLint,
  "lint rules fire": async () => ({ faults: await plantedViolations() }),
  types: testTypes,
  "unused code": () => tool("scripts/node_modules/knip/bin/knip.js", ["--no-progress", "--no-config-hints"]),
  packages: async () => ({ faults: await packedPackages() }),
  "tracked text": async () => ({ faults: trackedText() }),
  "rules cited by tests": async () => ({ faults: [], notes: uncitedRules() }),
};

/**
 * Runs every check, or those named.
 *
 * @param {string[]} names
 * @returns {Promise<number>} The exit code; 2 where there is no check of a name.
 */
export async function check(names) {
  const unknown = names.filter((name) => !Object.hasOwn(checks, name));
  if (unknown.length > 0) {
    console.error(`There is no check "${unknown.join('", "')}" among: ${Object.keys(checks).join(", ")}.`);
    return 2;
  }
  let failed = 0;
  for (const [name, run] of Object.entries(checks)) {
    if (names.length > 0 && !names.includes(name)) continue;
    const started = performance.now();
    const { faults, notes = [] } = await run();
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    console.log(`${faults.length > 0 ? "✗" : "✓"} ${name.padEnd(24)} ${seconds.padStart(5)} s`);
    for (const text of [...faults, ...notes]) console.log(text.replace(/^/gm, "    "));
    if (faults.length > 0) failed++;
    if (endedBy()) break;
  }
  if (failed > 0) console.log(`${failed} of the checks found something.`);
  return failed > 0 ? 1 : 0;
}

/** The build has checked the sources; this checks the tests, and the scripts by their JSDoc. */
async function testTypes() {
  const projects = ["packages/ledger/test", "packages/connector-mcp/test", "test", "scripts"];
  /** @type {string[]} */
  const faults = [];
  for (const project of projects) {
    if (!existsSync(join(root, project, "tsconfig.json"))) continue;
    faults.push(...(await tool("node_modules/typescript/bin/tsc", ["--pretty", "false", "-p", project])).faults);
  }
  return { faults };
}

async function formatAndLint() {
  const findings = await biomeFindings(root, "ci");
  const lines = (/** @type {boolean} */ fails) =>
    findings
      .filter(({ severity }) => fails === (severity === "error"))
      .map(({ path, line, category, message }) => `${path}:${line} ${category}: ${message}`);
  return { faults: lines(true), notes: lines(false) };
}

/**
 * @param {string} script Path below the root.
 * @param {string[]} args
 * @returns {Promise<Findings>}
 */
async function tool(script, args) {
  const { code, output } = await runCaptured(process.execPath, [join(root, script), ...args], { cwd: root });
  return { faults: code === 0 ? [] : [output] };
}
