import { SingleFlight } from "./single-flight.js";
import { WakeTimer } from "./wake-timer.js";

/** How long the queue has to bring the job that was asked for. */
const QUEUE_PATIENCE_MS = 1_000;

/**
 * A task that is asked for through the queue, so that it shows there, and runs without it when no job comes. A queue may
 * take a wake and keep it to itself: it is paused, or the job before still belongs to a worker that was killed, which
 * BullMQ finds out only when that job's lock has run out and is looked at.
 */
export class WokenTask<Result> {
  readonly #flight: SingleFlight<Result>;
  readonly #ask: WakeTimer;
  readonly #patience: WakeTimer;
  /** Asked for, and no run has begun since. */
  #isAwaited = false;
  /** By the clock that stamps jobs. */
  #wokenAt = Number.POSITIVE_INFINITY;
  #begunAt = 0;
  #last: Promise<Result> | undefined;

  /**
   * @param wake leads to a call of {@link run} or {@link runForJob}, here or nowhere
   * @param task does not reject
   */
  constructor(wake: () => void, task: () => Promise<Result>) {
    this.#flight = new SingleFlight(() => {
      this.#isAwaited = false;
      this.#begunAt = Date.now();
      this.#last = task();
      return this.#last;
    });
    this.#ask = new WakeTimer(() => {
      this.#isAwaited = true;
      this.#wokenAt = Date.now();
      this.#patience.within(QUEUE_PATIENCE_MS);
      wake();
    });
    this.#patience = new WakeTimer(() => {
      if (this.#isAwaited) void this.run();
    });
  }

  get running(): boolean {
    return this.#flight.running;
  }

  /** Asks for a run no later than in this many milliseconds. */
  within(milliseconds: number): void {
    this.#ask.within(milliseconds);
  }

  /** Asks for a run in this many milliseconds, in place of one that was asked for before. */
  next(milliseconds: number): void {
    this.#ask.reset(milliseconds);
  }

  /** Resolves with the first run that began after this call. */
  run(): Promise<Result> {
    return this.#flight.run();
  }

  /**
   * A job came from the queue, which was added at this time. One that this task asked for, and whose run did not wait for it any
   * longer, has its result already.
   */
  runForJob(addedAt: number): Promise<Result> {
    const isOvertaken = this.#wokenAt <= addedAt && addedAt <= this.#begunAt;
    return isOvertaken && this.#last ? this.#last : this.run();
  }

  /** Nothing is asked for any more; resolves when no run is under way. Never rejects. */
  async stop(): Promise<void> {
    this.#ask.clear();
    this.#patience.clear();
    await this.#flight.settled();
  }
}
