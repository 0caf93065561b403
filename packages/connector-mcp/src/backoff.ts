import { setTimeout as sleep } from "node:timers/promises";

/** What stood this long before it ended was good, and the next try begins anew. What ends sooner is tried after ever longer pauses. */
export const STABLE_AFTER_MS = 30_000;

/** Growing pauses between tries, each shortened or lengthened by up to a fifth so that many workers do not try in step. */
export class Backoff {
  #failures = 0;

  constructor(private readonly bounds: { readonly minMs: number; readonly maxMs: number }) {}

  /** The next pause, in milliseconds; each is twice the one before. */
  next(): number {
    const pause = Math.min(this.bounds.maxMs, this.bounds.minMs * 2 ** Math.min(this.#failures, 30));
    this.#failures += 1;
    return withJitter(pause);
  }

  reset(): void {
    this.#failures = 0;
  }
}

/** The duration, ± 20 %. */
export function withJitter(durationMs: number): number {
  return durationMs * (0.8 + 0.4 * Math.random());
}

/** Waits, or returns early when the signal is aborted. */
export async function pause(durationMs: number, signal: AbortSignal): Promise<void> {
  await sleep(durationMs, undefined, { signal }).catch(() => undefined);
}

/** Resolves when the signal is aborted. */
export function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}
