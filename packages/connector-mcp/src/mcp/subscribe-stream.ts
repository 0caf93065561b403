import { connectorError } from "../errors.js";
import { NotificationStream } from "./notification-stream.js";
import type { IgnoredReason, ResourceStreamOptions, UnsubscribeResult } from "./resource-stream.js";
import type { SourceConnection } from "./source-connection.js";
import type { FailureKind } from "./wire-failure.js";

/** Requests under way at once. Servers of this era are often one process behind one pipe. */
const CONCURRENCY = 8;
/** In a row; the thousands that may follow would each wait as long. */
const MAX_UNANSWERED = CONCURRENCY;
/** How long the GET stream may take to open. */
const OPEN_WITHIN_MS = 5_000;
/** Before Node's fetch gives up on a silent response, after 300 s. */
const QUIET_AFTER_MS = 280_000;
/** These say that nothing will work any more; every other failure is about one URI. */
const FATAL: ReadonlySet<FailureKind> = new Set(["session_lost", "unreachable", "unauthorized", "aborted"]);

/** What was asked to be pushed on a connection: the server keeps it as long as its session, beyond the stream that asked. */
const askedOn = new WeakMap<SourceConnection, Set<string>>();

/**
 * The stream of the legacy era: one subscription per URI, all notifications on the connection's one channel.
 *
 * Invariants:
 * 1. Over HTTP nothing counts as acknowledged unless a session id was given and the GET stream is open: without them servers
 *    answer a subscribe with success and never send anything.
 * 2. Each end of the GET stream breaks the stream, also where the client reconnects by itself: the server does not repeat
 *    what it sent meanwhile (U4). One that is not open is asked for.
 */
export class SubscribeStream extends NotificationStream {
  readonly #acknowledged = new Set<string>();
  readonly #asked = askedOf(this.connection);
  #hasChannel = false;
  #unhook: (() => void) | undefined;
  #opening: AbortSignal | undefined;

  static async open(connection: SourceConnection, options: ResourceStreamOptions): Promise<SubscribeStream> {
    const stream = new SubscribeStream(connection, options);
    try {
      stream.#opening = options.signal;
      stream.#hasChannel = await stream.#findChannel();
      await stream.inTurn(() => stream.watch([...stream.watched]));
      stream.#opening = undefined;
      stream.wire.http?.standalone.breakWhenQuiet(options.quietAfterMs ?? QUIET_AFTER_MS);
      return stream;
    } catch (error) {
      await stream.close();
      throw error;
    }
  }

  get acknowledged(): readonly string[] {
    return [...this.#acknowledged].filter((uri) => this.acknowledges(uri));
  }

  acknowledges(uri: string): boolean {
    return !this.ended && this.#acknowledged.has(uri) && this.watched.has(uri);
  }

  get listChanged(): boolean {
    return this.#hasChannel && this.options.listChanged && this.connection.capabilities.listChanged;
  }

  get mayPush(): boolean {
    return this.#hasChannel;
  }

  protected carries(): IgnoredReason | undefined {
    // This era names no subscription; the connection is the fence.
    return undefined;
  }

  protected async watch(uris: readonly string[]): Promise<void> {
    if (!this.#hasChannel || !this.connection.capabilities.subscribe) return;
    const signal = this.#opening;
    let unanswered = 0;
    await inParallel(uris, async (uri) => {
      await this.wire.http?.patience.wait(signal);
      this.#asked.add(uri);
      try {
        await this.wire.client.subscribeResource(
          { uri },
          { timeout: this.wire.requestTimeoutMs, ...(signal && { signal }) },
        );
        this.#acknowledged.add(uri);
        unanswered = 0;
      } catch (error) {
        const failure = this.wire.failure(error, signal);
        if (failure !== "timed_out") this.#asked.delete(uri);
        else unanswered += 1;
        if (FATAL.has(failure) || unanswered === MAX_UNANSWERED) throw this.wire.error("subscribing", error, signal);
      }
    });
    if (this.ended) throw connectorError("source_lost", "the stream ended while it was being changed");
  }

  protected async unwatch(uris: readonly string[]): Promise<UnsubscribeResult> {
    const unknown: string[] = [];
    for (const uri of uris) this.#acknowledged.delete(uri);
    const asked = uris.filter((uri) => this.#asked.has(uri));
    await inParallel(asked, async (uri) => {
      try {
        await this.wire.client.unsubscribeResource({ uri }, { timeout: this.wire.requestTimeoutMs });
        this.#asked.delete(uri);
      } catch (error) {
        this.wire.failure(error);
        unknown.push(uri);
      }
    });
    return { outcome: unknown.length === 0 ? "acknowledged" : "unknown", unknown };
  }

  protected release(): void {
    // What is subscribed stays known: it can still be unsubscribed while the session lives (U9).
    this.#unhook?.();
  }

  async #findChannel(): Promise<boolean> {
    const { http, sessionId } = this.wire;
    const { subscribe, listChanged } = this.connection.capabilities;
    if (!subscribe && !(listChanged && this.options.listChanged)) return false;
    if (!http) return true;
    if (sessionId === undefined) return false;
    const { standalone } = http;
    this.#unhook = standalone.onBreak((cause) =>
      this.break({ reason: "remote", message: "the server's notification stream ended", cause }),
    );
    return (await standalone.open(Math.min(this.wire.requestTimeoutMs, OPEN_WITHIN_MS))) === "open";
  }
}

function askedOf(connection: SourceConnection): Set<string> {
  const asked = askedOn.get(connection) ?? new Set();
  askedOn.set(connection, asked);
  return asked;
}

/** Runs `work` for every item, a few at a time; the first error ends it once those under way have ended. */
async function inParallel<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const queue = items.values();
  let hasFailed = false;
  const runner = async (): Promise<void> => {
    try {
      for (let next = queue.next(); !next.done && !hasFailed; next = queue.next()) await work(next.value);
    } catch (error) {
      hasFailed = true;
      throw error;
    }
  };
  const runs = await Promise.allSettled(Array.from({ length: Math.min(CONCURRENCY, items.length) }, runner));
  const failed = runs.find((run) => run.status === "rejected");
  if (failed) throw failed.reason;
}
