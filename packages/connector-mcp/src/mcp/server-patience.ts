/** How long a server asked to be left alone (`Retry-After`, RFC 9110 section 10.2.3), whatever it is about. */
import { setTimeout as sleep } from "node:timers/promises";

/** A server that asks for more is asked again after this. */
const LONGEST_MS = 5 * 60_000;
/** After a 429 that names no time; doubled with each in a row. */
const FIRST_MS = 1_000;
const TOO_MANY_REQUESTS = 429;
const UNAVAILABLE = 503;

export class ServerPatience {
  /** By where the server is: what it asked for stands for the next connection too. */
  static readonly #known = new WeakMap<object, ServerPatience>();

  #until = 0;
  #refusals = 0;

  /** The one that all connections to an endpoint share. */
  static of(endpoint: object): ServerPatience {
    const patience = ServerPatience.#known.get(endpoint) ?? new ServerPatience();
    ServerPatience.#known.set(endpoint, patience);
    return patience;
  }

  /** @param now milliseconds of a monotonic clock; `wallClock` of the calendar, which a server may name a date of */
  constructor(
    private readonly now: () => number = () => performance.now(),
    private readonly wallClock: () => number = Date.now,
  ) {}

  /** Every answer of the server. */
  note(answer: Pick<Response, "status" | "headers">): void {
    if (answer.status !== TOO_MANY_REQUESTS && answer.status !== UNAVAILABLE) {
      if (this.remainingMs === 0) this.#refusals = 0;
      return;
    }
    const asked = this.#waitIn(answer.headers.get("retry-after"));
    if (asked === undefined && answer.status === UNAVAILABLE) return;
    // Requests that were under way together are refused together, which is one refusal.
    if (this.remainingMs === 0) this.#refusals += 1;
    const wait = asked ?? FIRST_MS * 2 ** Math.min(this.#refusals - 1, 16);
    this.#until = Math.max(this.#until, this.now() + Math.min(wait, LONGEST_MS));
  }

  get remainingMs(): number {
    return Math.max(0, this.#until - this.now());
  }

  /** Resolves when the server may be asked again, or the signal is aborted. */
  async wait(signal: AbortSignal | undefined): Promise<void> {
    while (this.remainingMs > 0 && !signal?.aborted) {
      await sleep(this.remainingMs, undefined, signal && { signal }).catch(() => undefined);
    }
  }

  #waitIn(header: string | null): number | undefined {
    if (header === null) return undefined;
    if (/^\s*\d+\s*$/.test(header)) return Number(header) * 1_000;
    const date = Date.parse(header);
    return Number.isNaN(date) ? undefined : Math.max(0, date - this.wallClock());
  }
}
