import { pause } from "../backoff.js";

/** A token bucket that holds at most one second's worth. */
export class RateLimit {
  #tokens: number;
  #countedAt = performance.now();

  /** @param perSecond `undefined`: no limit */
  constructor(private readonly perSecond: number | undefined) {
    this.#tokens = Math.max(1, perSecond ?? 1);
  }

  /** Waits until at least one may be sent, and takes up to `wanted` of them. */
  async take(wanted: number, signal: AbortSignal): Promise<number> {
    if (this.perSecond === undefined) return wanted;
    const capacity = Math.max(1, this.perSecond);
    for (;;) {
      const now = performance.now();
      this.#tokens = Math.min(capacity, this.#tokens + ((now - this.#countedAt) / 1_000) * this.perSecond);
      this.#countedAt = now;
      if (this.#tokens >= 1 || signal.aborted) break;
      await pause(((1 - this.#tokens) / this.perSecond) * 1_000, signal);
    }
    const taken = Math.max(1, Math.min(wanted, Math.floor(this.#tokens)));
    this.#tokens -= taken;
    return taken;
  }

  /** What was taken and not used. */
  giveBack(unused: number): void {
    this.#tokens += unused;
  }
}
