import type { Wake } from "@fenceline/ledger";
import type { JobQueues, QueueKind } from "./queues.js";
import { sourceKey } from "./source-sessions.js";

/** What is done where the queue does not take a wake. */
export type WakeFallback = (wake: Wake | { readonly kind: "purge"; readonly store?: string }) => void;

/** Deduplication id of the job that advances revocations. No store is called so: names hold no line feed. */
const ADVANCE = "\n";

/**
 * Sends every kind of wake through its queue, deduplicated by what it is about, and does the work itself where the queue
 * does not answer: a lost Redis costs the sharing of work, not the work.
 */
export class Wakes {
  constructor(
    private readonly queues: JobQueues,
    private readonly fallback: WakeFallback,
  ) {}

  read(source: string, reader: string): void {
    this.#send("read", sourceKey(source, reader), { source, reader }, { kind: "read", source, reader });
  }

  discovery(source: string, reader: string): void {
    this.#send("discovery", sourceKey(source, reader), { source, reader }, { kind: "discovery", source, reader });
  }

  index(index: string): void {
    this.#send("index", index, { index }, { kind: "index", index });
  }

  /** Without a store: revocations are advanced, and then every store. */
  purge(store?: string): void {
    const what = store === undefined ? {} : { store };
    this.#send("purge", store ?? ADVANCE, what, { kind: "purge", ...what });
  }

  #send(kind: QueueKind, deduplicationId: string, payload: object, otherwise: Parameters<WakeFallback>[0]): void {
    void this.queues.wake(kind, deduplicationId, { v: 1, ...payload }).then((taken) => {
      if (!taken) this.fallback(otherwise);
    });
  }
}
