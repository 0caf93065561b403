import { createHash } from "node:crypto";

/** One page of a state of a list. */
export interface SnapshotPage<Entry> {
  readonly entries: readonly Entry[];
  /** Absent on the last page. */
  readonly nextCursor?: string;
  readonly snapshotId: string;
}

/** A cursor that names no state that is kept, or no place in it. */
export class UnknownCursor extends Error {}

/**
 * A list in states. A walk that began in one goes on in it, whatever changes meanwhile, for as long as the state is kept; then its
 * cursors are refused, so that no page ever comes from another state than the one before.
 *
 * A state is named by a digest of what is in it: the same name never stands for two sets, also not after a restart.
 */
export class SnapshotList<Entry> {
  readonly #states = new Map<string, readonly Entry[]>();
  #current = "";

  constructor(
    entries: readonly Entry[],
    private readonly options: { readonly pageSize: number; readonly keptStates: number },
  ) {
    this.set(entries);
  }

  /** From now on the list is this. */
  set(entries: readonly Entry[]): void {
    this.#current = createHash("sha256").update(JSON.stringify(entries)).digest("base64url");
    this.#states.delete(this.#current);
    this.#states.set(this.#current, [...entries]);
    for (const state of this.#states.keys()) {
      if (this.#states.size <= this.options.keptStates) return;
      this.#states.delete(state);
    }
  }

  /** @throws {UnknownCursor} */
  page(cursor: string | undefined): SnapshotPage<Entry> {
    const [snapshotId = "", start = "0"] = cursor === undefined ? [this.#current] : cursor.split(" ");
    const state = this.#states.get(snapshotId);
    const from = Number(start);
    if (!state || !Number.isInteger(from) || from < 0) throw new UnknownCursor("no such cursor");
    const to = from + this.options.pageSize;
    const next = to < state.length ? { nextCursor: `${snapshotId} ${to}` } : {};
    return { entries: state.slice(from, to), snapshotId, ...next };
  }
}
