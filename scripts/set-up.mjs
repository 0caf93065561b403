/**
 * Makes a checkout ready to run: the packages of the lock file, and the build. Does nothing that is done already, and
 * two at once in one checkout wait for each other.
 */

import { createHash } from "node:crypto";
import { accessSync, chmodSync, constants, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { runCaptured } from "./child-process.mjs";
import { withSetUpLock } from "./set-up-lock.mjs";

/** The top folder of the checkout. */
export const root = dirname(dirname(fileURLToPath(import.meta.url)));

/** The project's pnpm, as arguments of `npx`. */
export const pnpm = ["--yes", "--loglevel=error", JSON.parse(read("package.json")).packageManager];

/** The packages of the workspace, apart from the root and from the one that holds the tools of `npm run check`. */
const packages = ["packages/ledger", "packages/connector-mcp", "examples/price-catalog", "test", "test/services"];
const checks = "scripts";
/** The published servers that `npm run test:servers` runs: a workspace and a lock file of their own. */
const servers = join(root, "test/servers");
const stampFile = join(root, "node_modules/.fenceline-set-up.json");

/** A set-up that failed for a reason the message tells in full. */
export class SetUpError extends Error {}

/**
 * @param {{ needsChecks: boolean }} options Whether the tools of `npm run check` are needed too.
 * @throws {SetUpError}
 */
export async function setUp({ needsChecks }) {
  if (isInstalled(needsChecks) && !writable(root)) return build();
  await withSetUpLock(join(root, ".set-up.lock"), async () => {
    if (!isInstalled(needsChecks)) await install(needsChecks);
    await build();
  });
}

/**
 * Installs the servers of `npm run test:servers`; pnpm itself sees what is there already.
 *
 * @throws {SetUpError}
 */
export async function setUpServers() {
  await withSetUpLock(join(root, ".set-up.lock"), async () => {
    const started = Date.now();
    console.error("Installing the servers of test/servers/pnpm-lock.yaml …");
    const { code, output } = await installFrozen(servers, []);
    if (code !== 0) {
      const lines = output.split("\n").slice(-12).join("\n");
      throw new SetUpError(
        `${lines}\n\n${whyInstallFailed(output)}\nThe servers of test/servers are not there: none was tested.`,
      );
    }
    console.error(`Installed in ${Math.round((Date.now() - started) / 1000)} s.`);
  });
}

/** @param {boolean} needsChecks */
async function install(needsChecks) {
  const started = Date.now();
  console.error("Installing the packages of pnpm-lock.yaml …");
  const { code, output } = await installFrozen(root, needsChecks ? [] : ["--filter", "!@fenceline/scripts"]);
  if (code !== 0) throw new SetUpError(`${output.split("\n").slice(-12).join("\n")}\n\n${whyInstallFailed(output)}`);
  writeFileSync(stampFile, JSON.stringify({ digest: digestOfDependencies(), checks: needsChecks }));
  console.error(`Installed in ${Math.round((Date.now() - started) / 1000)} s.`);
}

/**
 * @param {string} workspace
 * @param {string[]} more
 */
function installFrozen(workspace, more) {
  // The lock file is the project's own; checking its 400 entries against the registry again costs 96 MB of metadata.
  const args = [...pnpm, "install", "--frozen-lockfile", "--trust-lockfile", "--reporter=append-only", ...more];
  const caches = cachesInCheckout();
  if (caches) args.push("--store-dir", join(caches, "pnpm-store"), `--config.cache-dir=${join(caches, "pnpm")}`);
  const env = {
    ...process.env,
    CI: "true",
    npm_config_fetch_retry_mintimeout: "1000",
    npm_config_fetch_retry_maxtimeout: "5000",
    ...(caches && { npm_config_cache: join(caches, "npm") }),
    // pnpm stops at a settings file that it may not read, as below a HOME kept from root.
    ...(caches && !permits(homedir(), constants.X_OK) && { XDG_CONFIG_HOME: join(caches, "config") }),
  };
  return runCaptured("npx", args, { cwd: workspace, env }).catch(withoutNpx);
}

async function build() {
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  const bin = join(root, "packages/connector-mcp/dist/cli/main.js");
  if (!existsSync(bin)) console.error("Building …");
  const { code, output } = await runCaptured(process.execPath, [tsc, "-b"], { cwd: root });
  if (code !== 0) throw new SetUpError(`${output}\n\nThe build failed: tsc -b`);
  if (existsSync(bin) && writable(bin)) chmodSync(bin, 0o755);
}

/** @param {boolean} needsChecks */
function isInstalled(needsChecks) {
  if (!existsSync(stampFile)) return false;
  const stamp = JSON.parse(readFileSync(stampFile, "utf8"));
  return stamp.digest === digestOfDependencies() && (stamp.checks || !needsChecks);
}

/** Changes with all that decides what is installed: the lock, the manifests, the settings, Node and the platform. */
function digestOfDependencies() {
  const manifests = [".", ...packages, checks].map((folder) => join(folder, "package.json"));
  const digest = createHash("sha256").update(`${process.version} ${process.platform} ${process.arch}`);
  for (const file of ["pnpm-lock.yaml", "pnpm-workspace.yaml", ...manifests]) digest.update(`\0${file}\0${read(file)}`);
  return digest.digest("hex");
}

/**
 * A folder for the caches of npm and pnpm where the home folder cannot hold them: a read-only home, a service account
 * without one, or `HOME` kept from another user by `sudo`.
 */
function cachesInCheckout() {
  const home = homedir();
  const own = [home, join(home, ".npm"), join(home, ".npm/_cacache"), join(home, ".local"), join(home, ".local/share")];
  if (existsSync(home) && own.every((folder) => !existsSync(folder) || writable(folder))) return undefined;
  const folder = join(root, "node_modules/.cache");
  mkdirSync(folder, { recursive: true });
  return folder;
}

/** @param {string} output What the failed installation printed. */
function whyInstallFailed(output) {
  if (
    /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|META_FETCH_FAIL|error sending request/.test(
      output,
    )
  )
    return "The package registry cannot be reached. The first run installs packages and needs the network.";
  if (/ENOSPC/.test(output)) return "The disk is full: the packages need about 300 MB.";
  return "The packages could not be installed; the lines above say why.";
}

/**
 * @param {NodeJS.ErrnoException} error
 * @returns {never}
 */
function withoutNpx(error) {
  throw new SetUpError(`npx, which comes with Node, could not be started (${error.message}); is it on the PATH?`);
}

/** @param {string} file */
function read(file) {
  return readFileSync(join(root, file), "utf8");
}

/** @param {string} path */
function writable(path) {
  return permits(path, constants.W_OK);
}

/**
 * @param {string} path
 * @param {number} access
 */
function permits(path, access) {
  try {
    accessSync(path, access);
    return true;
  } catch {
    return false;
  }
}
