/**
 * Keeps the subscriptions of one connection pushed: opens the stream, compares what was acknowledged with what was asked,
 * tells the ledger of every notification and every break, and opens it again.
 *
 * Invariants:
 * 1. A new stream gets its epoch after its acknowledgement; everything pushed through it is read again then (U4).
 * 2. A break reaches the ledger before anything else is tried, also the clean end of a stream (U4).
 * 3. What was not acknowledged is polled and never looks pushed (U3).
 * 4. A notification is recorded at once, so that the guard knows; only the read waits for the coalescing window (U5).
 * 5. What the ledger closed is unsubscribed at the server, and the ledger is told how that was answered (U7, U9).
 */
import type { SubscriptionRef } from "@fenceline/ledger";
import { aborted, Backoff, pause } from "../backoff.js";
import { openResourceStream, type ResourceStream, type StreamBreak } from "../mcp/resource-stream.js";
import { problemOf } from "./problem.js";
import { SingleFlight } from "./single-flight.js";
import type { SourceContext } from "./source-context.js";

/** One stream carries a whole source for now. */
const SHARD = 0;
const PAGE = 1_000;
/** Activating takes the scope fence; more at once would make a revocation wait. */
const MAX_ACTIVATED = 500;
/** A stream that lived this long was a good one: the next try starts without a pause. */
const STABLE_AFTER_MS = 30_000;

export interface StreamEvents {
  /** Reads will be due after the coalescing window, or are due now. */
  onReadsDue(inMs: number): void;
  onListChanged(): void;
}

export class SubscriptionStream {
  readonly #backoff = new Backoff({ minMs: 200, maxMs: 30_000 });
  readonly #stop = new AbortController();
  readonly #signal: AbortSignal;
  readonly #notified = new Set<string>();
  #listChanged = false;
  readonly #recorder = new SingleFlight(() => this.#record());
  readonly #settler = new SingleFlight(() => this.#settle());
  #stream: ResourceStream | undefined;
  /** It is opened again whenever it ends. */
  #kept = false;
  #keeping: Promise<void> = Promise.resolve();

  /**
   * @param watched subscriptions by URI, kept across the connections of one session: the ledger names each only once in it
   */
  constructor(
    private readonly context: SourceContext,
    private readonly watched: Map<string, number>,
    private readonly events: StreamEvents,
  ) {
    this.#signal = AbortSignal.any([context.signal, this.#stop.signal]);
  }

  /** Resolves when the first try is over: the stream is open, or what it was for is polled and the reopening goes on. */
  async open(): Promise<void> {
    const known = await this.#takeNew();
    const { subscribe, listChanged } = this.context.connection.capabilities;
    if (listChanged || (subscribe && this.watched.size > 0)) await this.#begin();
    else await this.#activate(known, new Set());
  }

  /** Brings what discovery added under subscription, or onto the timer. */
  async watchNew(): Promise<void> {
    const added = await this.#takeNew();
    if (added.length === 0) return;
    const stream = this.#stream;
    if (!stream) {
      const canBegin = this.context.connection.capabilities.subscribe && !this.#kept;
      // While it reopens, they are polled; the new stream asks for them too.
      await (canBegin ? this.#begin() : this.#activate(added, new Set()));
      return;
    }
    const acknowledged = await stream.add(this.#subscribable(added)).catch((error: unknown) => {
      this.context.logger.warn(problemOf(error), "subscribing to new resources failed; they are polled");
      return [];
    });
    // If it broke meanwhile, the next stream asks for all of them and activates them anew.
    if (this.#stream === stream) await this.#activate(added, new Set(acknowledged));
  }

  /** Unsubscribes at the server what was closed, by a revocation for instance; what it does not confirm is tried again. Never rejects. */
  settleClosed(): Promise<void> {
    return this.#settler.run();
  }

  /** Ends the stream; what was pushed through it is unverified from then on. */
  async close(): Promise<void> {
    this.#stop.abort();
    await this.#keeping;
    await this.#recorder.run();
    await this.#settler.settled();
  }

  #begin(): Promise<void> {
    return new Promise((resolve) => {
      this.#kept = true;
      this.#keeping = this.#keepOpen(resolve).finally(() => {
        this.#kept = false;
        resolve();
      });
    });
  }

  /** Opens, waits for the end, reports it, and opens again, until the connection or this stream is closed. */
  async #keepOpen(onFirstTry: () => void): Promise<void> {
    while (!this.#signal.aborted) {
      const openedAt = performance.now();
      const end = await this.#runOnce(onFirstTry);
      onFirstTry();
      if (end === "useless") return;
      if (performance.now() - openedAt > STABLE_AFTER_MS) this.#backoff.reset();
      if (!this.#signal.aborted) await pause(this.#backoff.next(), this.#signal);
    }
  }

  /** One stream from its opening to its end. `useless`: the server pushes nothing, so there is no point in another. */
  async #runOnce(onOpen: () => void): Promise<"ended" | "useless"> {
    const { ledger, lease, logger, counts } = this.context;
    const closing = new AbortController();
    const asked = [...this.watched].map(([uri, subscriptionId]) => ({ uri, subscriptionId }));
    let stream: ResourceStream | undefined;
    try {
      stream = await this.#connect(asked, (end) => {
        if (!this.#signal.aborted) logger.warn({ reason: end.reason }, `stream closed: ${end.message}`);
        closing.abort();
      });
      const acknowledged = new Set(stream.acknowledged);
      if (acknowledged.size === 0 && !stream.listChanged) {
        await this.#activate(asked, acknowledged);
        return "useless";
      }
      await ledger.openStream(lease.session, SHARD);
      this.#stream = stream;
      await this.#activate(asked, acknowledged);
      logger.info({ pushed: counts.pushed, polled: counts.polled }, "stream open");
      onOpen();
      await this.#activateMissed(stream, asked.length);
      void this.settleClosed();
      await aborted(AbortSignal.any([closing.signal, this.#signal]));
    } catch (error) {
      await this.#failed(asked, error);
    } finally {
      const wasOpen = this.#stream !== undefined;
      this.#stream = undefined;
      if (wasOpen) await this.#broken();
      await stream?.close();
    }
    return "ended";
  }

  #connect(asked: readonly { uri: string }[], onClosed: (end: StreamBreak) => void): Promise<ResourceStream> {
    const { connection, logger } = this.context;
    return openResourceStream(connection, {
      uris: this.#subscribable(asked),
      listChanged: connection.capabilities.listChanged,
      onUpdated: (uri) => this.#note(uri),
      onListChanged: () => this.#noteListChanged(),
      onClosed,
      onIgnored: (reason, uri) => logger.debug({ reason, uri }, "notification ignored"),
      signal: this.#signal,
    });
  }

  async #broken(): Promise<void> {
    const { ledger, lease, logger } = this.context;
    if (!lease.held) return;
    await ledger.breakStream(lease.session, SHARD).catch((error: unknown) => {
      logger.error(problemOf(error), "the break of the stream could not be recorded");
    });
  }

  /** Nobody pushes these for now, so they are read on the timer (U3). */
  async #failed(asked: readonly { uri: string; subscriptionId: number }[], error: unknown): Promise<void> {
    const { logger, lease } = this.context;
    if (this.#signal.aborted || !lease.held) return;
    logger.warn(problemOf(error), "the stream could not be opened");
    await this.#activate(asked, new Set()).catch((failure: unknown) => {
      logger.warn(problemOf(failure), "subscriptions could not be put on the timer");
    });
  }

  #subscribable(refs: readonly { uri: string }[]): string[] {
    return this.context.connection.capabilities.subscribe ? refs.map(({ uri }) => uri) : [];
  }

  /** Discovery may have added some between the asking and the acknowledgement. */
  async #activateMissed(stream: ResourceStream, askedCount: number): Promise<void> {
    const missed = [...this.watched].slice(askedCount).map(([uri, subscriptionId]) => ({ uri, subscriptionId }));
    if (missed.length === 0) return;
    await this.#activate(missed, new Set(await stream.add(this.#subscribable(missed))));
  }

  async #takeNew(): Promise<SubscriptionRef[]> {
    const { ledger, lease } = this.context;
    const added: SubscriptionRef[] = [];
    let afterId: number | undefined;
    for (;;) {
      const page = await ledger.subscriptionsToOpen(lease.session, {
        limit: PAGE,
        ...(afterId !== undefined && { afterId }),
      });
      added.push(...page);
      for (const { uri, subscriptionId } of page) this.watched.set(uri, subscriptionId);
      afterId = page.at(-1)?.subscriptionId;
      if (page.length < PAGE) return added;
    }
  }

  async #activate(
    refs: readonly { uri: string; subscriptionId: number }[],
    acknowledged: ReadonlySet<string>,
  ): Promise<void> {
    const { ledger, lease } = this.context;
    for (let at = 0; at < refs.length; at += MAX_ACTIVATED) {
      const batch = refs.slice(at, at + MAX_ACTIVATED);
      const idsOf = (isPushed: boolean) =>
        batch.filter(({ uri }) => acknowledged.has(uri) === isPushed).map(({ subscriptionId }) => subscriptionId);
      await ledger.activateSubscriptions(lease.session, { shard: SHARD, pushed: idsOf(true), polled: idsOf(false) });
    }
    this.#count();
    if (refs.length > 0) this.events.onReadsDue(0);
  }

  #note(uri: string): void {
    this.#notified.add(uri);
    void this.#recorder.run();
  }

  #noteListChanged(): void {
    this.#listChanged = true;
    void this.#recorder.run();
  }

  /** One statement at a time; what arrives meanwhile goes with the next. Never rejects. */
  async #record(): Promise<void> {
    const retry = new Backoff({ minMs: 50, maxMs: 2_000 });
    while ((this.#notified.size > 0 || this.#listChanged) && this.context.lease.held) {
      const uris = [...this.#notified];
      const listChanged = this.#listChanged;
      this.#notified.clear();
      this.#listChanged = false;
      try {
        await this.#tell(uris, listChanged);
      } catch (error) {
        for (const uri of uris) this.#notified.add(uri);
        this.#listChanged ||= listChanged;
        this.context.logger.warn(problemOf(error), "a notification could not be recorded yet");
        await pause(retry.next(), this.context.lease.lost);
      }
    }
  }

  async #tell(uris: readonly string[], listChanged: boolean): Promise<void> {
    const { ledger, lease, settings } = this.context;
    if (uris.length > 0) {
      const outcomes = await ledger.recordNotifications(lease.session, uris, { windowMs: settings.coalesceMs });
      this.events.onReadsDue(settings.coalesceMs);
      const closed = outcomes.filter(({ outcome }) => outcome === "not_subscribed").map(({ uri }) => uri);
      if (closed.length > 0) this.#giveUp(closed);
    }
    if (listChanged) {
      await ledger.recordListChanged(lease.session);
      this.events.onListChanged();
    }
  }

  async #settle(): Promise<void> {
    const { ledger, lease, logger } = this.context;
    try {
      for (let afterId = 0; this.#maySettle(); ) {
        const page = await ledger.subscriptionsToSettle(lease.session, { limit: PAGE, afterId });
        if (page.length > 0) await this.#unsubscribe(page);
        afterId = page.at(-1)?.subscriptionId ?? afterId;
        if (page.length < PAGE) return;
      }
    } catch (error) {
      logger.warn(problemOf(error), "what was closed could not be unsubscribed yet");
    }
  }

  /** A stream that is being opened asks for what was watched before: it is narrowed when it stands. */
  #maySettle(): boolean {
    return this.context.lease.held && !this.#signal.aborted && (!this.#kept || this.#stream !== undefined);
  }

  /** Without a stream the server pushes nothing, and there is nothing to ask. */
  async #unsubscribe(refs: readonly SubscriptionRef[]): Promise<void> {
    const { ledger, lease, logger } = this.context;
    for (const { uri } of refs) this.watched.delete(uri);
    const answer = await this.#stream?.unsubscribe(refs.map(({ uri }) => uri));
    const unknown = new Set(answer?.unknown);
    const idsOf = (isUnknown: boolean) =>
      refs.filter(({ uri }) => unknown.has(uri) === isUnknown).map(({ subscriptionId }) => subscriptionId);
    await ledger.settleUnsubscribe(lease.session, idsOf(false), "acknowledged");
    await ledger.settleUnsubscribe(lease.session, idsOf(true), "unknown");
    logger.info({ unsubscribed: refs.length - unknown.size, unknown: unknown.size }, "what was closed is unsubscribed");
    this.#count();
  }

  /** The server still pushes what is closed in the ledger (U7). A lift brings it back by discovery. */
  #giveUp(uris: readonly string[]): void {
    for (const uri of uris) this.watched.delete(uri);
    const unsubscribed = this.settleClosed().then(() => this.#stream?.unsubscribe(uris));
    void unsubscribed
      .then(() => this.#count())
      .catch((error: unknown) => {
        this.context.logger.debug(problemOf(error), "unsubscribing failed; what still arrives changes nothing");
      });
  }

  #count(): void {
    const { counts } = this.context;
    counts.pushed = this.#stream?.acknowledged.length ?? 0;
    counts.polled = this.watched.size - counts.pushed;
  }
}
