/**
 * Runs one task, never twice at once. Asked for while it runs, it runs once more afterwards, because what was asked for
 * may have come too late for the current run to see.
 */
export class SingleFlight<Result> {
  #current: Promise<Result> | undefined;
  #next: Promise<Result> | undefined;

  constructor(private readonly task: () => Promise<Result>) {}

  get running(): boolean {
    return this.#current !== undefined;
  }

  /** Resolves with the first run that began after this call. */
  run(): Promise<Result> {
    if (this.#next) return this.#next;
    if (!this.#current) return this.#start();
    const begin = () => this.#start();
    this.#next = this.#current.then(begin, begin);
    return this.#next;
  }

  /** Resolves when no run is under way or asked for. Never rejects. */
  async settled(): Promise<void> {
    while (this.#current) await Promise.allSettled([this.#current, this.#next]);
  }

  #start(): Promise<Result> {
    this.#next = undefined;
    this.#current = this.task().finally(() => {
      this.#current = undefined;
    });
    return this.#current;
  }
}
