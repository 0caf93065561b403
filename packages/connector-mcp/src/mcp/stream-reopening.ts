/**
 * When a broken event stream is asked for again. The SDK would do so for ever, and at once wherever the server ends it cleanly
 * (36 times a second were seen); or twice, and then never again.
 */
import type { StreamableHTTPReconnectionOptions } from "@modelcontextprotocol/client";
import { Backoff } from "../backoff.js";

/** Streams that could not be opened in a row, after which the connection counts as lost. */
const MAX_FAILED = 4;
/** A stream that stood this long was a good one. */
const STABLE_AFTER_MS = 30_000;
/** What a server asks for with `retry`, at most. */
const LONGEST_ASKED_MS = 60_000;

export class StreamReopening {
  /** Nothing is left to the SDK: it knows no jitter, and begins anew after each stream that opened, however soon it ended. */
  static readonly sdkOptions: StreamableHTTPReconnectionOptions = {
    initialReconnectionDelay: 0,
    maxReconnectionDelay: 0,
    reconnectionDelayGrowFactor: 1,
    maxRetries: Number.POSITIVE_INFINITY,
  };

  readonly #backoff = new Backoff({ minMs: 500, maxMs: 30_000 });
  #openedAt = Number.NEGATIVE_INFINITY;

  /** @param onGivenUp the stream does not open any more: somebody has to connect again */
  constructor(private readonly onGivenUp: () => void) {}

  /**
   * The SDK's `reconnectionScheduler`.
   *
   * @param askedMs what the server asked for, or 0
   * @param failed tries since a stream was open
   */
  readonly schedule = (reopen: () => void, askedMs: number, failed: number): (() => void) | undefined => {
    if (failed >= MAX_FAILED) {
      this.onGivenUp();
      return undefined;
    }
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
