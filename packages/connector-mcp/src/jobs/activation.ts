/**
 * Tells the ledger which subscriptions are pushed and which are read on the timer (U2, U3), and counts them.
 *
 * Invariants:
 * 1. One statement after the other, breaks of streams among them: what is known here of a subscription is what the ledger was
 *    told last, and nothing is pushed through a stream after its break (U4).
 * 2. What is on the timer is not put there again: each activation leaves a receipt.
 */
import { Turns } from "../turns.js";
import type { SourceContext } from "./source-context.js";
import type { SubscriptionMode, WatchedSubscription, WatchedSubscriptions } from "./watched-subscription.js";

/** Activating takes the scope fence; more at once would make a revocation wait. */
const MAX_ACTIVATED = 500;

export class Activation {
  readonly #turns = new Turns();
  #pushed = 0;

  /** @param onActivated called after each batch */
  constructor(
    private readonly context: SourceContext,
    private readonly kept: WatchedSubscriptions,
    private readonly onActivated: () => void,
  ) {}

  get pushed(): number {
    return this.#pushed;
  }

  /** @param modeOf asked for each just before its batch is told; undefined: it stays as it is */
  run(
    shard: number,
    subscriptions: Iterable<WatchedSubscription>,
    modeOf: (subscription: WatchedSubscription) => SubscriptionMode | undefined,
  ): Promise<void> {
    return this.inTurn(() => this.#run(shard, [...subscriptions], modeOf));
  }

  inTurn(work: () => Promise<void>): Promise<void> {
    return this.#turns.run(work);
  }

  /** Nobody pushes these: they are read on the timer (U3). */
  poll(subscriptions: Iterable<WatchedSubscription>): Promise<void> {
    return this.run(0, subscriptions, () => "polled");
  }

  /** Those that are not active yet are read on the timer. */
  pollNew(subscriptions: Iterable<WatchedSubscription>): Promise<void> {
    return this.run(0, subscriptions, ({ mode }) => (mode === undefined ? "polled" : undefined));
  }

  /** It is no longer kept. */
  forget(subscription: WatchedSubscription): void {
    this.#note(subscription, undefined);
  }

  async #run(
    shard: number,
    subscriptions: readonly WatchedSubscription[],
    modeOf: (subscription: WatchedSubscription) => SubscriptionMode | undefined,
  ): Promise<void> {
    const { ledger, lease } = this.context;
    for (let at = 0; at < subscriptions.length; at += MAX_ACTIVATED) {
      const batch = subscriptions.slice(at, at + MAX_ACTIVATED).map((subscription) => {
        const mode = modeOf(subscription);
        return { subscription, mode: mode === "polled" && subscription.mode === "polled" ? undefined : mode };
      });
      const idsOf = (wanted: SubscriptionMode) =>
        batch.filter(({ mode }) => mode === wanted).map(({ subscription }) => subscription.subscriptionId);
      const [pushed, polled] = [idsOf("pushed"), idsOf("polled")];
      if (pushed.length + polled.length === 0) continue;
      await ledger.activateSubscriptions(lease.session, { shard, pushed, polled });
      for (const { subscription, mode } of batch) {
        const isKept = this.kept.get(subscription.uri) === subscription;
        if (isKept && mode !== undefined) this.#note(subscription, mode);
      }
      this.onActivated();
    }
  }

  #note(subscription: WatchedSubscription, mode: WatchedSubscription["mode"]): void {
    if (subscription.mode === "pushed") this.#pushed -= 1;
    if (mode === "pushed") this.#pushed += 1;
    subscription.mode = mode;
  }
}
