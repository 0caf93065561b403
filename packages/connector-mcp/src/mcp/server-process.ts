import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { assert } from "@fenceline/ledger";
import { StdioClientTransport, type StdioServerParameters } from "@modelcontextprotocol/client/stdio";
import { StdioMessages } from "./stdio-messages.js";

/** How long a server may take to end by itself when its input ends. Many never do. */
const LEAVE_WITHIN_MS = 300;
const TERMINATE_WITHIN_MS = 2_000;
const KILL_WITHIN_MS = 2_000;
const LOOK_EVERY_MS = 10;

/**
 * A server as a child process, with everything it started.
 *
 * The SDK's transport signals the process it spawned; behind `npx` or a shell that is not the server, which then lives on.
 *
 * As a subclass it is also probed in place: the SDK would otherwise start every server twice, once to ask for its era, and
 * could not end what that first process started.
 */
export class ServerProcess extends StdioClientTransport {
  #closing: Promise<void> | undefined;

  /** @param maxMessageBytes of one message; a larger one is dropped, and the request it answers fails */
  constructor(server: StdioServerParameters, maxMessageBytes: number) {
    super(server);
    // It offers no way to give it another; a version that has none under this name must not pass unnoticed.
    assert(Reflect.has(this, "_readBuffer"), "The SDK's stdio transport reads through its _readBuffer.");
    Reflect.set(this, "_readBuffer", new StdioMessages(maxMessageBytes));
  }

  /** Its end was asked for. */
  get isClosing(): boolean {
    return this.#closing !== undefined;
  }

  /** Ends the input, then asks, then kills; resolves when the whole family is gone. */
  override close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const { pid } = this;
    if (pid === null) return super.close();
    const family = new Set([pid, ...descendantsOf(pid)]);
    const closing = super.close();
    await allGone(family, LEAVE_WITHIN_MS);
    signal(family, "SIGTERM");
    await allGone(family, TERMINATE_WITHIN_MS);
    signal(family, "SIGKILL");
    await allGone(family, KILL_WITHIN_MS);
    await closing;
  }
}

/** Waits until none of them lives; those that are gone leave the set. */
async function allGone(family: Set<number>, withinMs: number): Promise<void> {
  for (const pid of family) for (const descendant of descendantsOf(pid)) family.add(descendant);
  const deadline = performance.now() + withinMs;
  for (;;) {
    for (const pid of family) if (!isAlive(pid)) family.delete(pid);
    if (family.size === 0 || performance.now() >= deadline) return;
    await delay(LOOK_EVERY_MS);
  }
}

function signal(family: ReadonlySet<number>, name: NodeJS.Signals): void {
  for (const pid of family) {
    try {
      process.kill(pid, name);
    } catch {
      // It ended in this very moment.
    }
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  // Without an init process that reaps, as in many containers, the dead stay as zombies.
  return process.platform !== "linux" || statOf(pid)?.state !== "Z";
}

function descendantsOf(pid: number): number[] {
  const all = processes();
  const found: number[] = [];
  const visit = (parent: number): void => {
    for (const child of all) {
      if (child.parent !== parent) continue;
      found.push(child.pid);
      visit(child.pid);
    }
  };
  visit(pid);
  return found;
}

/** All processes with their parents; nothing where the system offers no way to ask. */
function processes(): { pid: number; parent: number }[] {
  if (process.platform === "win32") return [];
  if (process.platform !== "linux") return processesOfPs();
  return readdirSync("/proc").flatMap((name) => {
    const stat = /^\d+$/.test(name) ? statOf(Number(name)) : undefined;
    return stat ? [{ pid: Number(name), parent: stat.parent }] : [];
  });
}

function processesOfPs(): { pid: number; parent: number }[] {
  const { stdout = "" } = spawnSync("ps", ["-axo", "pid=,ppid="], { encoding: "utf8" });
  return stdout.split("\n").flatMap((line) => {
    const [pid, parent] = line.trim().split(/\s+/).map(Number);
    return pid === undefined || parent === undefined ? [] : [{ pid, parent }];
  });
}

function statOf(pid: number): { state: string; parent: number } | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The second field is the command in parentheses and may itself hold spaces and parentheses.
    const [state = "", parent = ""] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return { state, parent: Number(parent) };
  } catch {
    return undefined;
  }
}
