import { Backoff } from "../backoff.js";

/** A discovery waits until no `list_changed` came for this long (S9) … */
const QUIET_MS = 250;
/** … where they do not stop, for this long since the first. */
const MAX_WAIT_MS = 2_000;
/** After the first discovery that came to nothing. */
const FIRST_PAUSE_MS = 1_000;

/**
 * When the list is walked for a `list_changed`: many in a row lead to one discovery. One that came to nothing (the list did not
 * hold still, could not be had, or was the same as before) makes the next one wait, each time twice as long: a server may
 * announce a change with every list it gives, or ten times a second, and would be walked without a pause otherwise.
 */
export class DiscoveryPace {
  readonly #backoff: Backoff;
  /** Of those that no discovery has followed yet. */
  #first: number | undefined;
  #last = 0;
  #begunAt = 0;
  /** What runs, or ran last, followed a `list_changed`, if only by a wake that came late. */
  #isPrompted = false;
  #notBefore = 0;

  /**
   * @param maxPauseMs the list is walked this often anyway
   * @param now milliseconds of a clock that never goes back
   */
  constructor(
    private readonly maxPauseMs: number,
    private readonly now: () => number = () => performance.now(),
  ) {
    this.#backoff = new Backoff({ minMs: Math.min(FIRST_PAUSE_MS, maxPauseMs), maxMs: maxPauseMs });
  }

  /** A `list_changed` came. */
  announced(): void {
    this.#last = this.now();
    this.#first ??= this.#last;
  }

  /** Milliseconds until the discovery that a `list_changed` asks for; `undefined`: none came that was not followed. */
  get untilNext(): number | undefined {
    if (this.#first === undefined) return undefined;
    const quietAt = Math.min(this.#last + QUIET_MS, this.#first + MAX_WAIT_MS);
    return Math.max(0, this.#notBefore - this.now(), quietAt - this.now());
  }

  /** Milliseconds in which no discovery is to begin. */
  get pauseMs(): number {
    return Math.max(0, this.#notBefore - this.now());
  }

  begun(): void {
    this.#begunAt = this.now();
    this.#isPrompted = this.#first !== undefined || this.#begunAt < this.#notBefore;
    this.#first = undefined;
  }

  /** @param came `news`: a catalogue with something in it, or gone from it, that was not known; `same`: the one before */
  ended(came: "news" | "same" | "to_nothing"): void {
    const isFruitful = came === "news" || (came === "same" && !this.#isPrompted);
    if (isFruitful) this.#backoff.reset();
    // Never more than half of the time is spent walking.
    const tookMs = this.now() - this.#begunAt;
    const pauseMs = Math.max(tookMs, isFruitful ? 0 : this.#backoff.next());
    this.#notBefore = this.now() + Math.min(pauseMs, this.maxPauseMs);
  }
}
