/**
 * The subscriptions of one connection: which there are, on which stream each is asked for, and what comes over them.
 *
 * Invariants:
 * 1. In the modern era subscriptions are spread over streams (shards) of bounded size: a request stays below what servers
 *    take, and a change or a break of one concerns its own URIs alone (U4). In the older one the connection has one channel.
 * 2. What the ledger closed is unsubscribed at the server, and the ledger is told how that was answered (U7, U9); it is asked
 *    for no more.
 */
import type { SubscriptionRef } from "@fenceline/ledger";
import { Turns } from "../turns.js";
import { Activation } from "./activation.js";
import { AnnouncementCheck } from "./announcement-check.js";
import { NotificationRecorder } from "./notification-recorder.js";
import { pagesToOpen } from "./pages-to-open.js";
import { problemOf } from "./problem.js";
import { Shards } from "./shards.js";
import { SingleFlight } from "./single-flight.js";
import type { SourceContext } from "./source-context.js";
import type { SubscriptionStream } from "./subscription-stream.js";
import type { WatchedSubscription } from "./watched-subscription.js";

const PAGE = 1_000;

export interface SubscriptionEvents {
  /** Reads will be due after this time. */
  onReadsDue(inMs: number): void;
  onListChanged(): void;
}

export class Subscriptions {
  readonly #kept = new Map<string, WatchedSubscription>();
  readonly #activation: Activation;
  readonly #recorder: NotificationRecorder;
  readonly #announcements: AnnouncementCheck;
  readonly #shards: Shards;
  readonly #settler = new SingleFlight(() => this.#settle());
  readonly #taking = new Turns();

  constructor(
    private readonly context: SourceContext,
    events: SubscriptionEvents,
  ) {
    this.#activation = new Activation(context, this.#kept, () => {
      this.#count();
      this.#recorder.noteActivated();
      events.onReadsDue(0);
    });
    this.#recorder = new NotificationRecorder(context, this.#kept, {
      onRecorded: () => events.onReadsDue(context.settings.coalesceMs),
      onListChanged: () => events.onListChanged(),
      onClosed: (closed) => void this.#giveUp(closed),
    });
    this.#announcements = new AnnouncementCheck(context.settings.pollMs, (uris) => this.#judged(uris));
    this.#shards = new Shards(context, this.#activation, {
      isTrusted: ({ uri }) => this.#announcements.trusts(uri),
      dropClosed: (subscriptions) => this.#dropClosed(subscriptions),
      onUpdated: (uri) => this.#updated(uri),
      onListChanged: () => this.#recorder.noteListChanged(),
      onOpen: () => void this.settleClosed(),
    });
  }

  /** Resolves when the first try is over: the streams are open, or what they were for is polled and the reopening goes on. */
  async open(): Promise<void> {
    await this.#watch(await this.#takeNew());
  }

  /** Brings what discovery added under subscription, or onto the timer. */
  async watchNew(): Promise<void> {
    await this.#watch(await this.#takeNew());
    await this.#dropClosed([...this.#kept.values()].filter(({ mode }) => mode === "polled"));
    await Promise.all(this.#shards.streams.map((stream) => stream.askAgain()));
  }

  has(uri: string): boolean {
    return this.#kept.has(uri);
  }

  /** A periodic read brought new content, though nothing was announced (U6). */
  foundChanged(uri: string): void {
    const isPushed = this.#kept.get(uri)?.mode === "pushed";
    if (isPushed && !this.#recorder.isPending(uri)) this.#announcements.changed(uri);
  }

  /** Unsubscribes at the server what was closed, by a revocation for instance; what it does not confirm is tried again. Never rejects. */
  settleClosed(): Promise<void> {
    return this.#settler.run();
  }

  /** Ends the streams; what was pushed through them is unverified from then on. */
  async close(): Promise<void> {
    this.#announcements.stop();
    await Promise.all(this.#shards.streams.map((stream) => stream.close()));
    await this.#recorder.flushed();
    await this.#settler.settled();
  }

  async #watch(subscriptions: readonly WatchedSubscription[]): Promise<void> {
    const unasked = subscriptions.filter(({ shard }) => shard === undefined);
    await Promise.all([this.#activation.poll(unasked), this.#shards.add(subscriptions)]);
  }

  /** One after the other: the ledger names what is not active yet to each who asks. */
  #takeNew(): Promise<WatchedSubscription[]> {
    return this.#taking.run(() => this.#take());
  }

  async #take(): Promise<WatchedSubscription[]> {
    const added: WatchedSubscription[] = [];
    for await (const page of pagesToOpen(this.context)) for (const ref of page) added.push(this.#keep(ref));
    return added;
  }

  #keep({ uri, subscriptionId }: SubscriptionRef): WatchedSubscription {
    const known = this.#kept.get(uri);
    if (known) this.#activation.forget(known);
    const shard = known ? known.shard : this.#shards.place(uri);
    const subscription = { uri, subscriptionId, shard, mode: undefined };
    this.#kept.set(uri, subscription);
    return subscription;
  }

  #forget(subscription: WatchedSubscription): void {
    this.#activation.forget(subscription);
    this.#kept.delete(subscription.uri);
    this.#shards.takeOut(subscription);
  }

  #updated(uri: string): void {
    this.#announcements.announced(uri);
    this.#recorder.note(uri);
  }

  /** What comes unannounced is read on the timer; what is announced again is pushed again (U3). */
  #judged(uris: readonly string[] | "all"): void {
    const { logger } = this.context;
    logger.info(
      { resources: uris === "all" ? uris : uris.length },
      "how far the server announces changes was judged anew",
    );
    const concerned = (uris === "all" ? [...this.#kept.keys()] : uris).flatMap((uri) => this.#kept.get(uri) ?? []);
    for (const [stream, own] of this.#shards.of(concerned)) {
      stream.reconsider(own).catch((error: unknown) => {
        logger.warn(problemOf(error), "subscriptions could not be put on the timer, or taken off it");
      });
    }
  }

  async #settle(): Promise<void> {
    const { ledger, lease, logger } = this.context;
    try {
      for (let afterId = 0; lease.held && !this.context.signal.aborted; ) {
        const page = await ledger.subscriptionsToSettle(lease.session, { limit: PAGE, afterId });
        if (page.length > 0) await this.#unsubscribe(page);
        afterId = page.at(-1)?.subscriptionId ?? afterId;
        if (page.length < PAGE) return;
      }
    } catch (error) {
      logger.warn(problemOf(error), "what was closed could not be unsubscribed yet");
    }
  }

  async #unsubscribe(refs: readonly SubscriptionRef[]): Promise<void> {
    const { ledger, lease, logger } = this.context;
    const asked = new Map<SubscriptionStream, string[]>(this.#shards.streams.map((stream) => [stream, []]));
    const settled = refs.filter(({ uri }) => {
      const kept = this.#kept.get(uri);
      // What an earlier try left unknown is no longer kept.
      const streams = kept ? this.#shards.of([kept]).keys() : asked.keys();
      const carrying = [...streams];
      // A stream that is being opened asks for what was kept before: it is narrowed when it stands.
      if (carrying.some(({ isOpening }) => isOpening)) return false;
      for (const stream of carrying) asked.get(stream)?.push(uri);
      if (kept) this.#forget(kept);
      return true;
    });
    const answers = await Promise.all([...asked].map(([stream, uris]) => stream.unsubscribe(uris)));
    const unknown = new Set(answers.flat());
    const idsOf = (isUnknown: boolean) =>
      settled.filter(({ uri }) => unknown.has(uri) === isUnknown).map(({ subscriptionId }) => subscriptionId);
    await ledger.settleUnsubscribe(lease.session, idsOf(false), "acknowledged");
    await ledger.settleUnsubscribe(lease.session, idsOf(true), "unknown");
    logger.info(
      { unsubscribed: settled.length - unknown.size, unknown: unknown.size },
      "what was closed is unsubscribed",
    );
    this.#count();
  }

  /** A revocation closes a polled subscription at once, and leaves nothing to settle. */
  async #dropClosed(subscriptions: readonly WatchedSubscription[]): Promise<void> {
    const { ledger, lease } = this.context;
    if (subscriptions.length === 0 || !lease.held) return;
    const ids = subscriptions.map(({ subscriptionId }) => subscriptionId);
    const open = new Set(await ledger.subscriptionsStillOpen(lease.session, ids));
    const closed = subscriptions.filter(({ subscriptionId }) => !open.has(subscriptionId));
    if (closed.length > 0) await this.#giveUp(closed);
  }

  /** What is closed in the ledger need not be pushed by the server (U7). A lift brings it back by discovery. */
  async #giveUp(closed: readonly WatchedSubscription[]): Promise<void> {
    await this.settleClosed();
    const left = closed.filter((subscription) => this.#kept.get(subscription.uri) === subscription);
    for (const subscription of left) this.#forget(subscription);
    const own = [...this.#shards.of(left)];
    await Promise.all(own.map(([stream, subscriptions]) => stream.unsubscribe(subscriptions.map(({ uri }) => uri))));
    this.#count();
  }

  #count(): void {
    const { counts } = this.context;
    counts.pushed = this.#activation.pushed;
    counts.polled = this.#kept.size - counts.pushed;
  }
}
