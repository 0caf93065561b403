/** One pending call at the earliest of the times asked for. */
export class WakeTimer {
  #timer: NodeJS.Timeout | undefined;
  #at = Number.POSITIVE_INFINITY;
  #cleared = false;

  constructor(private readonly call: () => void) {}

  /** The call comes no later than in this many milliseconds; 0: in this turn of the event loop. */
  within(milliseconds: number): void {
    const at = performance.now() + milliseconds;
    if (this.#cleared || at >= this.#at) return;
    clearTimeout(this.#timer);
    this.#at = at;
    this.#timer = setTimeout(() => {
      this.#at = Number.POSITIVE_INFINITY;
      this.call();
    }, milliseconds);
  }

  /** As {@link within}, in place of what was asked for before. */
  reset(milliseconds: number): void {
    clearTimeout(this.#timer);
    this.#at = Number.POSITIVE_INFINITY;
    this.within(milliseconds);
  }

  /** No call comes any more. */
  clear(): void {
    this.#cleared = true;
    clearTimeout(this.#timer);
  }
}
