import { readFileSync, readlinkSync } from "node:fs";

/** A process, told apart from a later one that was given the same number. */
export interface ProcessIdentity {
  pid: number;
  /** Boot and start time of the process, or null where the system does not say (no /proc). */
  startedAt: string | null;
  /** The namespace in which `pid` means something, or null. Containers have their own. */
  pidNamespace: string | null;
}

export function ownIdentity(): ProcessIdentity {
  return { pid: process.pid, startedAt: startOf(process.pid), pidNamespace: pidNamespace() };
}

/**
 * Whether the process still runs.
 *
 * `unknown` when it belongs to another container, whose processes cannot be seen from here.
 */
export function livenessOf({ pid, startedAt, pidNamespace: namespace }: ProcessIdentity): "alive" | "dead" | "unknown" {
  if (namespace !== pidNamespace()) return "unknown";
  try {
    process.kill(pid, 0);
  } catch (error) {
    // EPERM: it runs, as another user.
    if ((error as NodeJS.ErrnoException).code !== "EPERM") return "dead";
  }
  return startedAt === null || startOf(pid) === startedAt ? "alive" : "dead";
}

/** See proc(5): the fields after the command, which may itself hold spaces and parentheses, begin with the third. */
function startOf(pid: number): string | null {
  const stat = readText(`/proc/${pid}/stat`);
  const boot = readText("/proc/sys/kernel/random/boot_id");
  if (stat === null || boot === null) return null;
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state, startTime] = [fields[0], fields[19]];
  // A zombie holds nothing any more, but keeps its number until its parent looks, which in a container may be never.
  if (state === "Z" || state === "X" || startTime === undefined) return null;
  return `${boot.trim()}:${startTime}`;
}

function pidNamespace(): string | null {
  try {
    return readlinkSync("/proc/self/ns/pid");
  } catch {
    return null;
  }
}

function readText(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return null;
  }
}
