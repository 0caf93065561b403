import { randomUUID } from "node:crypto";
import { linkSync, readdirSync, readFileSync, rmSync, statSync, unlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { z } from "zod";
import { livenessOf, ownIdentity } from "./process-identity.js";

/** Raised when a holder and a client of different versions could not work together. */
export const LOCK_PROTOCOL = 1;

/** A holder in another container, whose process cannot be seen, is taken for gone when it left no sign for this long. */
const UNSEEN_HOLDER_GONE_AFTER_MS = 30_000;

const lockRecord = z.object({
  /** Of this one holding; never used again. */
  id: z.string(),
  holder: z.object({ pid: z.int(), startedAt: z.string().nullable(), pidNamespace: z.string().nullable() }),
  protocol: z.int(),
  socketFolder: z.string(),
});

/** What stands in a lock file: who holds the directory, and where it is reached. */
export type LockRecord = z.infer<typeof lockRecord>;

/**
 * The lock on an embedded directory.
 *
 * 1. A lock file appears whole and only where there was none (`link`), so one process at most creates it.
 * 2. Its holder removes it, or, when the holder is dead, whoever holds `LOCK.break-ID`, a lock of the same kind named
 *    after the very holding that is to be broken, and only after reading again that the file still names that holding.
 *    A slow process that saw a dead holder therefore can never remove the lock of the successor.
 *
 * The steps are synchronous: they touch a few small files, and nothing of this process may come in between.
 */
export class DirectoryLock {
  readonly #path: string;
  readonly #socketFolder: string;
  #id: string | undefined;

  constructor(path: string, socketFolder: string) {
    this.#path = path;
    this.#socketFolder = socketFolder;
  }

  /** Takes the lock, unless a living process holds it or one is just breaking it: then returns that record. */
  tryAcquire(): LockRecord | undefined {
    const record = newRecord(this.#socketFolder);
    const holder = acquire(this.#path, record);
    if (holder) return holder;
    this.#id = record.id;
    removeLeftovers(this.#path);
    return undefined;
  }

  /** Of this holding; `undefined` while it does not hold. */
  get id(): string | undefined {
    return this.#id;
  }

  release(): void {
    if (this.#id !== undefined && readLock(this.#path)?.id === this.#id) unlinkSync(this.#path);
    this.#id = undefined;
  }
}

/** The record in a lock file; undefined where there is no file. */
export function readLock(path: string): LockRecord | undefined {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
  return parseRecord(text);
}

function parseRecord(text: string): LockRecord {
  try {
    return lockRecord.parse(JSON.parse(text));
  } catch {
    // Files appear whole, so only a crash of the machine leaves a torn one, and no holder survives that.
    const nobody = { pid: 2 ** 31 - 1, startedAt: null, pidNamespace: ownIdentity().pidNamespace };
    return { id: "torn", holder: nobody, protocol: LOCK_PROTOCOL, socketFolder: "" };
  }
}

function newRecord(socketFolder: string): LockRecord {
  return { id: randomUUID(), holder: ownIdentity(), protocol: LOCK_PROTOCOL, socketFolder };
}

function acquire(path: string, record: LockRecord): LockRecord | undefined {
  for (;;) {
    if (createWhole(path, record)) return undefined;
    const current = readLock(path);
    if (!current) continue;
    if (isHeld(path, current) || !breakLock(path, current)) return current;
  }
}

function createWhole(path: string, record: LockRecord): boolean {
  const draft = `${path}.draft-${record.id}`;
  writeFileSync(draft, JSON.stringify(record), { mode: 0o600 });
  try {
    linkSync(draft, path);
    return true;
  } catch (error) {
    // ENOENT: the draft was swept as a leftover by a process that has just got the lock.
    if (hasCode(error, "EEXIST") || hasCode(error, "ENOENT")) return false;
    throw error;
  } finally {
    rmSync(draft, { force: true });
  }
}

/** Removes the lock of a dead holder; false while another process is doing that. */
function breakLock(path: string, stale: LockRecord): boolean {
  const breakPath = `${path}.break-${stale.id}`;
  if (acquire(breakPath, newRecord(""))) return false;
  try {
    if (readLock(path)?.id === stale.id) unlinkSync(path);
  } finally {
    rmSync(breakPath, { force: true });
  }
  return true;
}

function isHeld(path: string, { holder }: LockRecord): boolean {
  switch (livenessOf(holder)) {
    case "alive":
      return true;
    case "dead":
      return false;
    case "unknown": {
      const signAt = statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
      return Date.now() - signAt < UNSEEN_HOLDER_GONE_AFTER_MS;
    }
  }
}

/** Drafts and break locks of processes killed in the middle. They mean nothing once the lock names a new holding. */
function removeLeftovers(path: string): void {
  const folder = dirname(path);
  for (const name of readdirSync(folder)) {
    if (name.startsWith(`${basename(path)}.`)) rmSync(join(folder, name), { force: true });
  }
}

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && (error as NodeJS.ErrnoException).code === code;
}
