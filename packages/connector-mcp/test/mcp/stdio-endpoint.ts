import { randomUUID } from "node:crypto";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";

const STDIO_SERVER = fileURLToPath(new URL("stdio-server.mjs", import.meta.url));

export interface TestedStdioEndpoint {
  command: string;
  args: string[];
  env: Record<string, string>;
  /** Of everything that was started, in order. */
  pids(): number[];
}

/** An endpoint of the stdio server in one of its modes. */
export function stdioEndpoint(mode: string): TestedStdioEndpoint {
  const pidFile = join(tmpdir(), `fenceline-${randomUUID()}`);
  onTestFinished(() => rmSync(pidFile, { force: true }));
  const pids = (): number[] =>
    existsSync(pidFile) ? readFileSync(pidFile, "utf8").trim().split("\n").map(Number) : [];
  return { command: process.execPath, args: [STDIO_SERVER], env: { PID_FILE: pidFile, MODE: mode }, pids };
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  // An orphan that ended stays as a zombie where no init process reaps it.
  return !existsSync(`/proc/${pid}/stat`) || !readFileSync(`/proc/${pid}/stat`, "utf8").includes(") Z ");
}
