/** The rules that the product promises, and which of them no test names. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../set-up.mjs";

/** The number of rules in each family: S discovery, U subscriptions, F reads, G grants, L lineage, P revocation. */
const families = { S: 9, U: 11, F: 11, G: 2, L: 6, P: 8 };

const testFolders = ["packages/ledger/test", "packages/connector-mcp/test", "test"];

/** The first argument of a call that makes a test or a group of them, also after `.each(…)`. */
const testName = /(?:\b(?:test|it|prop|describe\w*)(?:\.\w+)*|\))\(\s*(["'`])((?:\\.|(?!\1)[^\\])*)\1/g;

/** @returns {string[]} One line with the ids of the rules that no test cites, if there are any. */
export function uncitedRules() {
  const cited = new Set(testFolders.flatMap(testFilesIn).flatMap(citedIn));
  const rules = Object.entries(families).flatMap(([family, count]) =>
    Array.from({ length: count }, (_, index) => `${family}${index + 1}`),
  );
  const uncited = rules.filter((rule) => !cited.has(rule));
  return uncited.length > 0 ? [`No test cites ${uncited.join(", ")}.`] : [];
}

/** @param {string} folder */
function testFilesIn(folder) {
  return readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts") && !file.includes("node_modules"))
    .map((file) => join(root, folder, file));
}

/** @param {string} file */
function citedIn(file) {
  const names = [...readFileSync(file, "utf8").matchAll(testName)].map((match) => match[2] ?? "");
  return names.flatMap((name) => name.match(/\b[SUFGLP]\d{1,2}\b/g) ?? []);
}
