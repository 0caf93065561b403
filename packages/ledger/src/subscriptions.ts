import type { Session } from "./sessions.js";

export interface SubscriptionRef {
  readonly subscriptionId: number;
  /** The server's own spelling. */
  readonly uri: string;
  readonly generation: number;
}

export type NotificationOutcome =
  /** The resource is due; what was accepted before is `changed` from now on. */
  | "invalidated"
  /** Neither subscribed nor below a subscribed URI (U11). */
  | "not_subscribed"
  /** From a session that no longer holds the scope (U11). */
  | "session_lost";

export interface SubscriptionLedger {
  /** Subscriptions not yet pushed or polled under this session, in order of id, after `afterId`. */
  subscriptionsToOpen(
    session: Session,
    page: { readonly limit: number; readonly afterId?: number },
  ): Promise<SubscriptionRef[]>;
  /** A new stream of a shard: its epoch rises, so everything pushed through it is unverified until read again (U4). */
  openStream(session: Session, shard: number): Promise<{ readonly epoch: number } | "session_lost">;
  /** The stream broke: an event of its own; its shard is unverified and due (U4). Exclusive under the scope fence. */
  breakStream(session: Session, shard: number): Promise<void>;
  /** The acknowledgement compared with what was asked: `pushed` were acknowledged, `polled` were not (U2, U3). */
  activateSubscriptions(
    session: Session,
    answer: { readonly shard: number; readonly pushed: readonly number[]; readonly polled: readonly number[] },
  ): Promise<void>;
  /**
   * Counts one notification for each URI (or for the subscribed one it lies below) and makes it due after the
   * coalescing window (U5). A URI given several times counts once per call.
   */
  recordNotifications(
    session: Session,
    uris: readonly string[],
    options?: { readonly windowMs?: number },
  ): Promise<{ readonly uri: string; readonly outcome: NotificationOutcome }[]>;
  /** Freezes the close ordinal; no read is issued after it (U7). Returns those that were of the ACTIVE family. */
  beginUnsubscribe(session: Session, uris: readonly string[]): Promise<SubscriptionRef[]>;
  settleUnsubscribe(
    session: Session,
    subscriptionIds: readonly number[],
    answer: "acknowledged" | "unknown",
  ): Promise<void>;
}
