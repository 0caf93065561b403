/**
 * One stream of notifications (a shard), kept open: it is opened, what was acknowledged is compared with what was asked, each
 * break is told to the ledger, and it is opened again.
 *
 * Invariants:
 * 1. A new stream gets its epoch after its acknowledgement; everything pushed through it is read again then (U4).
 * 2. A break reaches the ledger before anything else is tried, also the clean end of a stream (U4).
 * 3. What was not acknowledged is polled and never looks pushed (U3).
 * 4. A stream that follows a short one has to last as long as the pause before it until it counts. Pauses grow, so a server
 *    that ends each stream at once is soon left to the timer, instead of having everything read again for each.
 */
import { aborted, Backoff, pause, STABLE_AFTER_MS } from "../backoff.js";
import { openResourceStream, type ResourceStream } from "../mcp/resource-stream.js";
import type { Activation } from "./activation.js";
import { problemOf } from "./problem.js";
import type { SourceContext } from "./source-context.js";
import type { SubscriptionMode, WatchedSubscription } from "./watched-subscription.js";

/** The longest pause is about that of the timer, which serves meanwhile. */
const BACKOFF = { minMs: 200, maxMs: 60_000 };
/** What was not acknowledged is asked for again, no more at a time: each may be a request of its own. */
const MAX_ASKED_AGAIN = 500;

export interface SubscriptionStreamOptions {
  readonly context: SourceContext;
  readonly activation: Activation;
  readonly shard: number;
  /** Changes of the list are asked for on this one. */
  readonly listChanged: boolean;
  /** False: its changes come unannounced, so it is read on the timer although it is acknowledged (U3). */
  isTrusted(subscription: WatchedSubscription): boolean;
  /** Lets go of those that the ledger has closed without a word: what is closed is not asked for (U7). */
  dropClosed(subscriptions: readonly WatchedSubscription[]): Promise<void>;
  onUpdated(uri: string): void;
  onListChanged(): void;
  onOpen(): void;
}

/**
 * How one stream went. `lasted`: it ended after a good while. `short`: it ended soon. `failed`: it could not be opened, or
 * nothing was acknowledged. `useless`: nothing will ever be pushed on this connection.
 */
type StreamEnd = "lasted" | "short" | "failed" | "useless";

export class SubscriptionStream {
  readonly shard: number;
  readonly #subscriptions = new Map<string, WatchedSubscription>();
  readonly #backoff = new Backoff(BACKOFF);
  readonly #stop = new AbortController();
  readonly #signal: AbortSignal;
  #stream: ResourceStream | undefined;
  #isOpening = false;
  /** The open stream has its epoch: what is acknowledged on it is pushed. */
  #carries = false;
  /** Set from the beginning, until there is nothing to ask for; it is opened again whenever it ends. */
  #keeping: Promise<void> | undefined;
  #askedAgainAt = performance.now();

  constructor(private readonly options: SubscriptionStreamOptions) {
    this.shard = options.shard;
    this.#signal = AbortSignal.any([options.context.signal, this.#stop.signal]);
  }

  /** What it asks for is out of hand until the stream stands. */
  get isOpening(): boolean {
    return this.#isOpening;
  }

  /** Resolves when these are pushed or on the timer; for those of the first call, when the first try to open is over. */
  async add(subscriptions: readonly WatchedSubscription[]): Promise<void> {
    for (const subscription of subscriptions) this.#subscriptions.set(subscription.uri, subscription);
    if (this.#isIdle || (this.#keeping && subscriptions.length === 0)) return;
    if (!this.#keeping) return this.#begin();
    // While it opens, they are polled; when it stands, it asks for them too.
    if (!this.#stream) return this.options.activation.pollNew(subscriptions);
    return this.#ask(this.#stream, subscriptions);
  }

  /** Asks again for what was not acknowledged, no more often than the timer reads it. */
  async askAgain(): Promise<void> {
    const stream = this.#stream;
    const { pollMs } = this.options.context.settings;
    if (!stream || performance.now() - this.#askedAgainAt < pollMs) return;
    this.#askedAgainAt = performance.now();
    const refused: WatchedSubscription[] = [];
    for (const subscription of this.#subscriptions.values()) {
      if (subscription.mode === "polled" && this.options.isTrusted(subscription)) refused.push(subscription);
      if (refused.length === MAX_ASKED_AGAIN) break;
    }
    if (refused.length > 0) await this.#ask(stream, refused);
  }

  /** Brings these into the mode that `isTrusted` tells now. */
  async reconsider(subscriptions: readonly WatchedSubscription[]): Promise<void> {
    const stream = this.#stream;
    if (!stream) return;
    const modeOf = this.#modeOn(stream);
    await this.options.activation.run(this.shard, subscriptions, (subscription) => {
      const mode = modeOf(subscription);
      return mode === subscription.mode ? undefined : mode;
    });
  }

  /** Stops asking for these; resolves to those of which nobody knows whether the server took it (U9). */
  async unsubscribe(uris: readonly string[]): Promise<readonly string[]> {
    for (const uri of uris) this.#subscriptions.delete(uri);
    // Without a stream the server pushes nothing, and there is nothing to ask.
    const answer = await this.#stream?.unsubscribe(uris);
    return answer?.unknown ?? [];
  }

  /** Ends the stream; what was pushed through it is unverified from then on. */
  async close(): Promise<void> {
    this.#stop.abort();
    await this.#keeping;
  }

  async #dropClosed(): Promise<void> {
    const { context, dropClosed } = this.options;
    await dropClosed([...this.#subscriptions.values()]).catch((error: unknown) => {
      context.logger.warn(problemOf(error), "what the ledger has closed is not known yet");
    });
  }

  /** There is nothing to ask for. */
  get #isIdle(): boolean {
    return this.#subscriptions.size === 0 && !this.options.listChanged;
  }

  #begin(): Promise<void> {
    return new Promise((resolve) => {
      this.#keeping = this.#keepOpen(resolve).finally(resolve);
    });
  }

  /** Opens, waits for the end, reports it, and opens again, until the connection or this stream is closed. */
  async #keepOpen(onFirstTry: () => void): Promise<void> {
    let graceMs = 0;
    for (let inARow = 1; !this.#signal.aborted; inARow += 1) {
      await this.#dropClosed();
      if (this.#isIdle) {
        this.#keeping = undefined;
        return;
      }
      const end = await this.#runOnce(graceMs, onFirstTry);
      if (end === "lasted") {
        inARow = 0;
        this.#backoff.reset();
      }
      // One break is soon mended; until then what was pushed is unverified (U4).
      else if (end === "failed" || end === "useless" || inARow > 1) await this.#pollAll();
      onFirstTry();
      if (end === "useless" || this.#signal.aborted) return;
      const pauseMs = Math.max(
        this.#backoff.next(),
        this.options.context.connection.wire.http?.patience.remainingMs ?? 0,
      );
      graceMs = end === "short" ? pauseMs : 0;
      await pause(pauseMs, this.#signal);
    }
  }

  /** One stream from its opening to its end. */
  async #runOnce(graceMs: number, onOpen: () => void): Promise<StreamEnd> {
    const { context, activation } = this.options;
    const closing = new AbortController();
    const ended = AbortSignal.any([closing.signal, this.#signal]);
    let stream: ResourceStream | undefined;
    let openedAt: number | undefined;
    try {
      stream = await this.#open(closing);
      openedAt = performance.now();
      if (stream.acknowledged.length === 0 && !stream.listChanged) return stream.mayPush ? "failed" : "useless";
      if (graceMs > 0) await pause(graceMs, ended);
      if (ended.aborted) return "short";
      await context.ledger.openStream(context.lease.session, this.shard);
      this.#carries = true;
      await activation.run(this.shard, [...this.#subscriptions.values()], this.#modeOn(stream));
      context.logger.info({ shard: this.shard, pushed: stream.acknowledged.length }, "stream open");
      onOpen();
      this.options.onOpen();
      // One that was polled until now may have been closed while it was asked for.
      await this.#dropClosed();
      await aborted(ended);
    } catch (error) {
      if (!ended.aborted) context.logger.warn(problemOf(error), "the stream could not be opened");
      if (openedAt === undefined) return "failed";
    } finally {
      const carried = this.#carries;
      this.#isOpening = false;
      this.#carries = false;
      this.#stream = undefined;
      if (carried) await this.#broken();
      await stream?.close();
    }
    return performance.now() - openedAt > STABLE_AFTER_MS ? "lasted" : "short";
  }

  /** Opens the stream, and brings what came or went since it was asked for to it. */
  async #open(closing: AbortController): Promise<ResourceStream> {
    this.#isOpening = true;
    const asked = new Set(this.#subscriptions.values());
    const stream = await this.#connect([...asked], closing);
    this.#stream = stream;
    this.#isOpening = false;
    const gone = [...asked].filter(({ uri }) => !this.#subscriptions.has(uri));
    if (gone.length > 0) await stream.unsubscribe(gone.map(({ uri }) => uri));
    const missed = [...this.#subscriptions.values()].filter((subscription) => !asked.has(subscription));
    if (missed.length > 0) await this.#ask(stream, missed);
    return stream;
  }

  #connect(asked: readonly WatchedSubscription[], closing: AbortController): Promise<ResourceStream> {
    const { connection, logger, counts } = this.options.context;
    return openResourceStream(connection, {
      uris: asked.map(({ uri }) => uri),
      listChanged: this.options.listChanged,
      onUpdated: (uri) => this.options.onUpdated(uri),
      onListChanged: () => this.options.onListChanged(),
      onClosed: (end) => {
        if (!this.#signal.aborted)
          logger.warn({ shard: this.shard, reason: end.reason }, `stream closed: ${end.message}`);
        closing.abort();
      },
      onIgnored: (reason, uri) => {
        logger.debug({ reason, uri }, "notification ignored");
        if (reason !== "acknowledged_unasked") counts.notificationsIgnored += 1;
      },
      signal: this.#signal,
    });
  }

  /** Asks on the open stream for more. */
  async #ask(stream: ResourceStream, subscriptions: readonly WatchedSubscription[]): Promise<void> {
    const { activation, context } = this.options;
    await stream.add(subscriptions.map(({ uri }) => uri)).catch((error: unknown) => {
      context.logger.warn(problemOf(error), "what was asked for on the open stream is polled");
    });
    const kept = subscriptions.filter((subscription) => this.#subscriptions.get(subscription.uri) === subscription);
    await activation.run(this.shard, kept, this.#modeOn(stream));
  }

  #modeOn(stream: ResourceStream): (subscription: WatchedSubscription) => SubscriptionMode | undefined {
    return (subscription) => {
      // It has ended since, and the next one asks for all of them.
      if (this.#stream !== stream) return subscription.mode === undefined ? "polled" : undefined;
      const isPushed = this.#carries && stream.acknowledges(subscription.uri) && this.options.isTrusted(subscription);
      return isPushed ? "pushed" : "polled";
    };
  }

  /** Until it is told, what was pushed looks as if somebody would hear of a change; only the end of the session tells it too. */
  async #broken(): Promise<void> {
    const { ledger, lease, logger } = this.options.context;
    const retry = new Backoff({ minMs: 50, maxMs: 2_000 });
    while (lease.held) {
      try {
        return await this.options.activation.inTurn(() => ledger.breakStream(lease.session, this.shard));
      } catch (error) {
        logger.error(problemOf(error), "the break of the stream could not be recorded yet");
      }
      if (this.#signal.aborted) return;
      await pause(retry.next(), this.#signal);
    }
  }

  /** Nobody pushes these for now, so they are read on the timer (U3). */
  async #pollAll(): Promise<void> {
    const { lease, logger } = this.options.context;
    if (this.#signal.aborted || !lease.held) return;
    await this.options.activation.poll(this.#subscriptions.values()).catch((error: unknown) => {
      logger.warn(problemOf(error), "subscriptions could not be put on the timer");
    });
  }
}
