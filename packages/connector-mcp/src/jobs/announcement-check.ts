import { WakeTimer } from "./wake-timer.js";

/**
 * Finds out where a server does not announce what it said it would. Some accept every subscription and never send anything, and
 * all lose a notification now and then; a periodic read that brings new content shows it (U6). What is announced later than the
 * timer would have found it is as good as not announced.
 *
 * A resource that changed unannounced is left to the timer until something is announced for it; all of them, if nothing was ever
 * announced on this connection (U3).
 */
export class AnnouncementCheck {
  /** Changed, and not announced so far: until when that may come, in order. */
  readonly #waiting = new Map<string, number>();
  readonly #unannounced = new Set<string>();
  #isMute = false;
  #heard = false;
  readonly #timer = new WakeTimer(() => this.#judge());

  /**
   * @param patienceMs how much later than a read that found it a change may be announced
   * @param onJudged {@link trusts} answers otherwise than before for these, or for all
   */
  constructor(
    private readonly patienceMs: number,
    private readonly onJudged: (uris: readonly string[] | "all") => void,
  ) {}

  /** Changes of this resource are announced, as far as is known. */
  trusts(uri: string): boolean {
    return !this.#isMute && !this.#unannounced.has(uri);
  }

  /** A periodic read brought new content of a resource whose changes are announced. */
  changed(uri: string): void {
    if (this.#waiting.has(uri)) return;
    this.#waiting.set(uri, performance.now() + this.patienceMs);
    this.#timer.within(this.patienceMs);
  }

  announced(uri: string): void {
    this.#waiting.delete(uri);
    this.#heard = true;
    const wasDoubted = this.#unannounced.delete(uri);
    if (this.#isMute) {
      this.#isMute = false;
      this.onJudged("all");
    } else if (wasDoubted) this.onJudged([uri]);
  }

  stop(): void {
    this.#timer.clear();
  }

  #judge(): void {
    const judged: string[] = [];
    for (const [uri, until] of this.#waiting) {
      const leftMs = until - performance.now();
      if (leftMs > 0) {
        this.#timer.within(leftMs);
        break;
      }
      this.#waiting.delete(uri);
      this.#unannounced.add(uri);
      judged.push(uri);
    }
    if (judged.length === 0) return;
    this.#isMute = !this.#heard;
    this.onJudged(this.#isMute ? "all" : judged);
  }
}
