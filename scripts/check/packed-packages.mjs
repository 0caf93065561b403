/** Packs what would be published and asks publint and Are the Types Wrong about the result. */

import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runCaptured } from "../child-process.mjs";
import { pnpm, root } from "../set-up.mjs";

const published = ["packages/ledger", "packages/connector-mcp"];
const bin = join(root, "scripts/node_modules/.bin");

/** @returns {Promise<string[]>} What is wrong, one text per package and tool. */
export async function packedPackages() {
  const folder = mkdtempSync(join(tmpdir(), "fenceline-pack-"));
  try {
    /** @type {string[]} */
    const faults = [];
    for (const name of published) {
      // pnpm, since npm would leave `workspace:*` in the manifest
      const packing = await runCaptured("npx", [...pnpm, "pack", "--pack-destination", folder], {
        cwd: join(root, name),
      });
      if (packing.code !== 0) faults.push(`${name}: pnpm pack failed\n${packing.output}`);
    }
    for (const tarball of readdirSync(folder).map((file) => join(folder, file))) {
      faults.push(...(await ask("publint", [tarball, "--strict"])));
      faults.push(...(await ask("attw", [tarball, "--profile", "esm-only", "--no-emoji", "--format", "ascii"])));
    }
    return faults;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/**
 * @param {string} tool
 * @param {string[]} args
 */
async function ask(tool, args) {
  const { code, output } = await runCaptured(join(bin, tool), args, { cwd: root });
  return code === 0 ? [] : [output];
}
