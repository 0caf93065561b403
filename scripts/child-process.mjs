/**
 * Child processes of the npm scripts. A signal to us goes on to every child; an attached child leads a process group
 * of its own, so that whatever it left behind is found and ended.
 */

import { spawn } from "node:child_process";
import { constants } from "node:os";
import { setTimeout as delay } from "node:timers/promises";

/** How long what a child started may outlive it before it counts as left behind. */
const graceMs = 3000;

/** @type {Set<{ signal(name: NodeJS.Signals): void }>} */
const running = new Set();

/** @type {NodeJS.Signals | undefined} */
let received;

for (const name of /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"])) process.on(name, () => passOn(name));

// npm runs us through a shell and signals only that, so an `npm test` that is ended shows here as another parent.
if (process.env["npm_lifecycle_event"]) {
  const parent = process.ppid;
  setInterval(() => process.ppid !== parent && !received && passOn("SIGTERM"), 500).unref();
}

/** @param {NodeJS.Signals} name */
function passOn(name) {
  received = name;
  for (const child of running) child.signal(name);
}

/** The exit code that the signal we were sent asks for, if there was one. */
export function endedBy() {
  return received && 128 + constants.signals[received];
}

/**
 * Runs a command with our output as its output. Ends what it leaves running and then fails, whatever its own exit code.
 *
 * @param {string} command
 * @param {string[]} args
 * @param {{ cwd: string, env?: NodeJS.ProcessEnv }} options
 * @returns {Promise<number>} The exit code, 128 + N after signal N.
 */
export async function runAttached(command, args, options) {
  const child = spawn(command, args, { ...options, detached: true, stdio: ["ignore", "inherit", "inherit"] });
  const group = -(/** @type {number} */ (child.pid));
  const code = await exitCode(child, (name) => sendSignal(group, name));
  if (!(await outlives(group))) return code;
  console.error(`A process that the command started was still running after it ended; it is ended now.`);
  sendSignal(group, "SIGKILL");
  return code || 1;
}

/**
 * Runs a command and collects what it prints: standard output alone, and both streams in one, as they came.
 *
 * @param {string} command
 * @param {string[]} args
 * @param {{ cwd: string, env?: NodeJS.ProcessEnv }} options
 */
export async function runCaptured(command, args, options) {
  const child = spawn(command, args, { ...options, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  let stdout = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text) => (output += text));
  child.stdout.on("data", (text) => (stdout += text));
  const code = await exitCode(child, (name) => child.kill(name));
  return { code, output: output.trim(), stdout: stdout.trim() };
}

/**
 * @param {import("node:child_process").ChildProcess} child
 * @param {(name: NodeJS.Signals) => void} signal
 * @returns {Promise<number>}
 */
async function exitCode(child, signal) {
  const entry = { signal };
  running.add(entry);
  try {
    return await new Promise((resolve, reject) => {
      child.once("error", reject);
      child.once("close", (code, name) => resolve(code ?? 128 + constants.signals[name ?? "SIGKILL"]));
    });
  } finally {
    running.delete(entry);
  }
}

/** @param {number} group A negated process group id. */
async function outlives(group) {
  for (const deadline = Date.now() + graceMs; Date.now() < deadline; await delay(50)) {
    if (!sendSignal(group, 0)) return false;
  }
  return true;
}

/**
 * @param {number} group
 * @param {NodeJS.Signals | 0} signal
 * @returns {boolean} Whether the group has a process.
 */
function sendSignal(group, signal) {
  try {
    return process.kill(group, signal);
  } catch {
    return false;
  }
}
