/**
 * The npm scripts: `run.cjs COMMAND [ARGS]` sets the checkout up (packages, build) and runs the command. Set-up speaks on
 * standard error only, so that standard output is the command's own.
 */

import { join } from "node:path";
import { check } from "./check.mjs";
import { endedBy, runAttached } from "./child-process.mjs";
import { root, SetUpError, setUp, setUpServers } from "./set-up.mjs";

const vitest = join(root, "node_modules/vitest/vitest.mjs");
const biome = join(root, "node_modules/@biomejs/biome/bin/biome");
const endWithParent = new URL("end-with-parent.mjs", import.meta.url).href;
const bench = join(root, "test/bench/dist/main.js");
const demo = join(root, "examples/price-catalog/dist/main.js");
const ordeal = join(root, "test/ordeal/dist/main.js");

/** @typedef {{ needsChecks?: boolean, needsServers?: boolean, run(args: string[]): Promise<number> }} Command */

/** @type {Record<string, Command>} */
const commands = {
  demo: { run: (args) => node(["--enable-source-maps", demo, ...args]) },
  // The config is loaded in memory: a checkout that belongs to someone else can be tested without writing to it.
  test: { run: (args) => node([vitest, "run", "--configLoader", "runner", ...args]) },
  "test:servers": {
    needsServers: true,
    run: (args) => node([vitest, "run", "--configLoader", "runner", "--config", "vitest.servers.config.ts", ...args]),
  },
  bench: { run: (args) => node(["--enable-source-maps", bench, ...args]) },
  ordeal: { run: (args) => node(["--enable-source-maps", ordeal, ...args]) },
  check: { needsChecks: true, run: check },
  format: { needsChecks: true, run: (args) => node([biome, "check", "--write", ...(args.length > 0 ? args : ["."])]) },
  build: { run: async () => 0 },
};

/** @param {string[]} args The command and its own arguments. */
export async function main([name = "", ...args]) {
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (!command) {
    console.error(`Usage: node scripts/run.cjs ${Object.keys(commands).join("|")} [arguments]`);
    process.exitCode = 2;
    return;
  }
  try {
    await setUp({ needsChecks: command.needsChecks ?? false });
    if (command.needsServers && !endedBy()) await setUpServers();
    process.exitCode = endedBy() ?? (await command.run(args));
  } catch (error) {
    if (!(error instanceof SetUpError)) throw error;
    console.error(error.message);
    process.exitCode = endedBy() ?? 1;
  }
}

/** @param {string[]} args */
function node(args) {
  return runAttached(process.execPath, ["--import", endWithParent, ...args], { cwd: root });
}
