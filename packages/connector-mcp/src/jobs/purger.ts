/**
 * Carries revocations through, and empties stores of what nothing holds any more.
 *
 * Invariants:
 * 1. Stores are emptied independently: one that is down stops no other (P5).
 * 2. What is marked is purged while the rest of a large revocation is still being marked.
 */
import type { Ledger } from "@fenceline/ledger";
import type { Logger } from "pino";
import type { BoundedStore } from "../langchain/bounded-store.js";
import { purgeStore } from "../langchain/purge.js";
import type { ConfiguredIndex } from "./configured-indexes.js";
import { problemOf } from "./problem.js";
import { SingleFlight } from "./single-flight.js";

export interface PurgerOptions {
  readonly ledger: Ledger;
  readonly indexes: readonly ConfiguredIndex[];
  readonly logger: Logger;
  readonly signal: AbortSignal;
  readonly onProgress: (done: number) => void;
}

/** What a purge of one store came to. */
export interface StorePurge {
  readonly store: string;
  readonly entries: number;
  readonly failure?: string;
}

export class Purger {
  readonly #flights = new Map<string, SingleFlight<StorePurge>>();
  readonly #failing = new Set<string>();
  #removed = 0;

  constructor(private readonly options: PurgerOptions) {
    for (const index of options.indexes) {
      if (this.#flights.has(index.storeName)) continue;
      this.#flights.set(index.storeName, new SingleFlight(() => this.#purge(index)));
    }
  }

  /** Names of the stores that this process can reach. */
  get stores(): readonly string[] {
    return [...this.#flights.keys()];
  }

  /** Stores whose last purge ended with a failure. */
  get failing(): readonly string[] {
    return [...this.#failing];
  }

  /** Closes and marks what open revocations cover, batch by batch; `onBatch` after each, so that stores can follow. */
  async advance(onBatch: () => void): Promise<{ revocations: number }> {
    const { ledger, signal, logger } = this.options;
    const open = await ledger.revocationsToAdvance();
    for (const revocationId of open) {
      while (!signal.aborted) {
        const end = await ledger.advanceRevocation(revocationId);
        onBatch();
        if (end === "done") break;
      }
      logger.info({ revocationId }, "revocation marked");
    }
    return { revocations: open.length };
  }

  /** Empties one store. A store that is not configured here is left to a process where it is. Never rejects. */
  async purge(store: string): Promise<StorePurge> {
    return (await this.#flights.get(store)?.run()) ?? { store, entries: 0, failure: "not configured here" };
  }

  /** Everything, in this process: revocations first, all stores side by side. Never rejects. */
  async sweep(): Promise<void> {
    const all = () => Promise.all(this.stores.map((store) => this.purge(store)));
    const underWay: Promise<unknown>[] = [];
    try {
      await this.advance(() => underWay.push(all()));
    } catch (error) {
      this.options.logger.warn(problemOf(error), "revocations could not be advanced");
    }
    await Promise.all([...underWay, all()]);
  }

  async #purge(index: ConfiguredIndex): Promise<StorePurge> {
    const { ledger, signal, logger } = this.options;
    const name = index.storeName;
    try {
      const store = await this.#open(index);
      const { entries, failure } = await purgeStore({ ledger, store, name, signal });
      if (entries > 0) logger.info({ store: name, entries }, "entries removed and verified absent");
      this.#removed += entries;
      this.options.onProgress(this.#removed);
      return this.#ended(name, entries, failure?.message);
    } catch (error) {
      return this.#ended(name, 0, problemOf(error).message);
    }
  }

  /** Nothing was claimed yet, so that others may go on; the ledger is told why this process does not (P5). */
  async #open(index: ConfiguredIndex): Promise<BoundedStore> {
    try {
      return (await index.open()).store;
    } catch (error) {
      await this.options.ledger.releasePurge(index.storeName, [], problemOf(error).message);
      throw error;
    }
  }

  #ended(store: string, entries: number, failure: string | undefined): StorePurge {
    if (failure === undefined) {
      this.#failing.delete(store);
      return { store, entries };
    }
    this.#failing.add(store);
    if (!this.options.signal.aborted) this.options.logger.warn({ store }, `purge stopped: ${failure}`);
    return { store, entries, failure };
  }
}
