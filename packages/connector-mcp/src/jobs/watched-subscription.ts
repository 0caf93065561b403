/** What was told to the ledger of a subscription in this session: the server pushes it, or it is read on the timer (U3). */
export type SubscriptionMode = "pushed" | "polled";

/** One subscription that the holder of a session keeps. One that the ledger names anew is a new object. */
export interface WatchedSubscription {
  /** The server's own spelling. */
  readonly uri: string;
  readonly subscriptionId: number;
  /** Number of the stream that asks for it; absent where the server takes no subscriptions. */
  readonly shard: number | undefined;
  /** Absent: the ledger was not told yet, and takes no notification for it. */
  mode: SubscriptionMode | undefined;
}

/** Those that are kept now, by URI. */
export type WatchedSubscriptions = ReadonlyMap<string, WatchedSubscription>;
