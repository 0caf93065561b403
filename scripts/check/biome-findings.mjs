import { join } from "node:path";
import { runCaptured } from "../child-process.mjs";
import { root } from "../set-up.mjs";

const biome = join(root, "node_modules/@biomejs/biome/bin/biome");

/**
 * @typedef {object} BiomeFinding
 * @property {"error" | "warning" | "information"} severity
 * @property {string} category The rule, or `format`.
 * @property {string} message
 * @property {string} path Relative to the folder.
 * @property {number} line
 */

/**
 * What Biome finds in a folder by the configuration there.
 *
 * @param {string} folder
 * @param {"ci" | "lint"} command `ci` checks the format and the order of imports too.
 * @returns {Promise<BiomeFinding[]>}
 */
export async function biomeFindings(folder, command) {
  const args = [biome, command, "--colors=off", "--reporter=json", "--max-diagnostics=none", "."];
  const { output, stdout } = await runCaptured(process.execPath, args, { cwd: folder });
  // Of both streams in one, the report may begin in the middle of a line on standard error.
  const report = stdout.split("\n").find((line) => line.startsWith('{"summary"'));
  if (!report) throw new Error(`biome ${command} gave no report:\n${output}`);
  return JSON.parse(report).diagnostics.map((/** @type {any} */ { severity, category, message, location }) => ({
    severity,
    category,
    message,
    path: location?.path ?? ".",
    line: location?.start?.line ?? 1,
  }));
}
