/**
 * Finds out that nobody is there any more where no request says so: a process that hangs, a session that the server forgot
 * (U4). What is connected and deaf would otherwise look subscribed for ever.
 */

/** A channel on which nothing came for this long is asked for a sign of life. */
const QUIET_MS = 60_000;

export interface ChannelProbeOptions {
  /** Resolves when the server answered, with whatever. Rejects with what came instead. */
  ask(): Promise<unknown>;
  /** What came instead says that the connection is of no further use; `inDoubt`: a request had failed in such a way before. */
  isFatal(error: unknown, inDoubt: boolean): boolean;
  onLost(error: unknown): void;
  /** Milliseconds without a message until it is asked; without it only doubts are followed. Default 60 000. */
  quietMs?: number | undefined;
}

export class ChannelProbe {
  #heardAt = performance.now();
  #timer: NodeJS.Timeout | undefined;
  #asking = false;
  #stopped = false;

  constructor(private readonly options: ChannelProbeOptions) {}

  /** A message came. */
  heard(): void {
    this.#heardAt = performance.now();
  }

  /** Asks whenever it has been quiet for too long, until {@link stop}. */
  watch(): void {
    const { quietMs = QUIET_MS } = this.options;
    const leftMs = this.#heardAt + quietMs - performance.now();
    if (leftMs <= 0) void this.#ask(false).then(() => this.#again(quietMs));
    else this.#again(leftMs);
  }

  /** A request failed as it would if the server did not know this connection any more. Asks at once, unless it is asking. */
  doubt(): void {
    void this.#ask(true);
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  #again(inMs: number): void {
    if (this.#stopped) return;
    this.#timer = setTimeout(() => this.watch(), inMs);
    this.#timer.unref();
  }

  async #ask(inDoubt: boolean): Promise<void> {
    if (this.#asking || this.#stopped) return;
    this.#asking = true;
    try {
      await this.options.ask();
      this.heard();
    } catch (error) {
      if (!this.#stopped && this.options.isFatal(error, inDoubt)) this.options.onLost(error);
    } finally {
      this.#asking = false;
    }
  }
}
