/**
 * When the event stream of a request that broke is resumed. The SDK would do so for ever, and at once wherever the server ends
 * it cleanly (36 times a second were seen). The stream of notifications is asked for by whoever needs it.
 */
import type { StreamableHTTPReconnectionOptions } from "@modelcontextprotocol/client";
import { Backoff, STABLE_AFTER_MS } from "../backoff.js";

/** What a server asks for with `retry`, at most. */
const LONGEST_ASKED_MS = 60_000;

export class StreamReopening {
  /** No pause is left to the SDK: it knows no jitter, and begins anew after each stream that opened, however soon it ended. */
  static readonly sdkOptions: StreamableHTTPReconnectionOptions = {
    initialReconnectionDelay: 0,
    maxReconnectionDelay: 0,
    reconnectionDelayGrowFactor: 1,
    maxRetries: 4,
  };

  readonly #backoff = new Backoff({ minMs: 500, maxMs: 30_000 });
  #openedAt = Number.NEGATIVE_INFINITY;

  /**
   * The SDK's `reconnectionScheduler`.
   *
   * @param askedMs what the server asked for, or 0
   * @param failed tries since a stream was open
   */
  readonly schedule = (reopen: () => void, askedMs: number, failed: number): (() => void) => {
    const isFirst = failed === 0 && performance.now() - this.#openedAt >= STABLE_AFTER_MS;
    if (isFirst) this.#backoff.reset();
    const pauseMs = this.#backoff.next();
    const asked = Math.min(askedMs, LONGEST_ASKED_MS);
    const timer = setTimeout(
      () => {
        this.#openedAt = performance.now();
        reopen();
      },
      isFirst && asked > 0 ? asked : Math.max(asked, pauseMs),
    );
    return () => clearTimeout(timer);
  };
}
