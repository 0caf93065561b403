import { randomUUID } from "node:crypto";
import { mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { FencelineError } from "./errors.js";
import type { RevocationRequest } from "./revocations.js";

/** A revocation as a witness keeps it: enough to ask for it again. */
export type WitnessedRevocation = RevocationRequest & { readonly requestId: string };

/** What a witness has seen of a ledger. */
export interface Witnessed {
  /** The newest position it was told; `undefined` when it was told none. */
  readonly position: string | undefined;
  /** Every revocation it was told, in any order; one may come twice. */
  readonly revocations: readonly WitnessedRevocation[];
}

/**
 * What remembers, outside of the ledger's database, how far the ledger had come: with it a restored backup is recognised, and
 * revocations given since are asked for again. Keep it where a backup of the database does not reach. Several processes may
 * share one. Each call resolves when what it was told is durable.
 */
export interface Witness {
  read(): Promise<Witnessed>;
  /** `number` of the position rises; positions of several processes may arrive out of order, and the highest counts. */
  advance(position: string, number: number): Promise<void>;
  record(revocations: readonly WitnessedRevocation[]): Promise<void>;
}

const POSITION = /^position-(\d{16})$/;
const JOURNAL = "revocations.jsonl";

/**
 * A witness in a folder of its own, on a disk that outlives the database's.
 *
 * 1. A position is a file whose name bears its number; those with lower numbers are removed afterwards. So processes that
 *    share the folder need no lock: whoever is late removes nothing newer.
 * 2. The journal of revocations is only ever appended to. A line that a crash tore was never answered.
 *
 * @param folder created when missing. Not inside the directory of an embedded ledger, with which it would be restored
 */
export function fileWitness(folder: string): Witness {
  return {
    read: () => attempt(folder, "read", () => readWitnessed(folder)),
    advance: (position, number) => attempt(folder, "written", () => writePosition(folder, position, number)),
    record: (revocations) => attempt(folder, "written", () => append(folder, revocations)),
  };
}

async function readWitnessed(folder: string): Promise<Witnessed> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  for (;;) {
    const [newest] = await positionFiles(folder);
    const position = newest === undefined ? undefined : await readOrGone(join(folder, newest));
    // Another process put a newer one in its place between the two steps.
    if (newest !== undefined && position === undefined) continue;
    return { position, revocations: parseJournal((await readOrGone(join(folder, JOURNAL))) ?? "") };
  }
}

/** Names, the highest number first. */
async function positionFiles(folder: string): Promise<string[]> {
  return (await readdir(folder))
    .filter((name) => POSITION.test(name))
    .sort()
    .reverse();
}

async function writePosition(folder: string, position: string, number: number): Promise<void> {
  const name = `position-${String(number).padStart(16, "0")}`;
  const draft = join(folder, `draft-${randomUUID()}`);
  const file = await open(draft, "wx", 0o600);
  try {
    await file.writeFile(position);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(draft, join(folder, name));
  await syncFolder(folder);
  for (const older of await positionFiles(folder)) if (older < name) await rm(join(folder, older), { force: true });
}

async function append(folder: string, revocations: readonly WitnessedRevocation[]): Promise<void> {
  if (revocations.length === 0) return;
  // Begins a line of its own, so that what a crash left unfinished takes nothing with it.
  const lines = `\n${revocations.map((revocation) => JSON.stringify(revocation)).join("\n")}\n`;
  const file = await open(join(folder, JOURNAL), "a", 0o600);
  try {
    await file.appendFile(lines);
    await file.sync();
  } finally {
    await file.close();
  }
  await syncFolder(folder);
}

function parseJournal(text: string): WitnessedRevocation[] {
  const revocations = new Map<string, WitnessedRevocation>();
  for (const line of text.split("\n")) {
    try {
      const revocation = JSON.parse(line) as WitnessedRevocation;
      if (typeof revocation.requestId === "string") revocations.set(revocation.requestId, revocation);
    } catch {
      // Empty, or torn.
    }
  }
  return [...revocations.values()];
}

async function readOrGone(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** A new name is durable once its folder is. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function attempt<T>(folder: string, verb: string, step: () => Promise<T>): Promise<T> {
  try {
    return await step();
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new FencelineError("witness_failed", `The witness in ${folder} could not be ${verb}: ${reason}`, { cause });
  }
}
