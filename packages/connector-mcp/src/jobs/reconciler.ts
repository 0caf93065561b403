import type { Ledger, LedgerStatus } from "@fenceline/ledger";
import type { Logger } from "pino";
import { pause, withJitter } from "../backoff.js";
import { problemOf } from "./problem.js";

export interface ReconcilerOptions {
  readonly ledger: Ledger;
  /** Milliseconds between two looks, ± 20 %. */
  readonly intervalMs: number;
  readonly logger: Logger;
  /** Given what the ledger says, wakes whoever has something to do. */
  readonly wake: (status: LedgerStatus, revocationsToAdvance: readonly number[]) => void;
}

/** On a large ledger a look takes longer; this share of the time is the most that is spent looking. */
const MAX_SHARE = 0.05;

/**
 * Finds due work that nobody was woken for: a lost job, a flushed Redis, a notification that came while nobody listened,
 * a holder that died. Wakes for work that is under way already do no harm.
 */
export class Reconciler {
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  constructor(private readonly options: ReconcilerOptions) {
    this.#running = this.#run();
  }

  /** Never rejects. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { intervalMs } = this.options;
    let nextMs = withJitter(intervalMs);
    while (!this.#stop.signal.aborted) {
      await pause(nextMs, this.#stop.signal);
      if (this.#stop.signal.aborted) return;
      const startedAt = performance.now();
      await this.#look();
      nextMs = withJitter(Math.max(intervalMs, (performance.now() - startedAt) / MAX_SHARE));
    }
  }

  async #look(): Promise<void> {
    const { ledger, logger, wake } = this.options;
    try {
      wake(await ledger.status(), await ledger.revocationsToAdvance());
    } catch (error) {
      if (!this.#stop.signal.aborted) logger.warn(problemOf(error), "the ledger could not be looked at");
    }
  }
}
