import { ListenStream } from "./listen-stream.js";
import type { SourceConnection } from "./source-connection.js";
import { SubscribeStream } from "./subscribe-stream.js";

/** Why a notification changed nothing (U11), or why an acknowledgement was not taken as it came. */
export type IgnoredReason =
  | "other_subscription"
  | "subscription_unnamed"
  | "uri_not_subscribed"
  | "list_not_watched"
  | "acknowledged_unasked";

/** Why a stream ended although nobody here closed it. Each is a new stream epoch for the caller (U4). */
export interface StreamBreak {
  /** `remote`: it broke. `graceful`: the server ended it. `connection`: the whole connection ended. */
  reason: "remote" | "graceful" | "connection";
  message: string;
  cause?: unknown;
}

export interface ResourceStreamOptions {
  /** URIs to watch, in the server's own spelling. */
  uris: readonly string[];
  /** Also ask for changes of the list. */
  listChanged: boolean;
  /** A watched URI must be read again. Called with the URI as it was asked for, also when a sub-resource was named (U11). */
  onUpdated(uri: string): void;
  onListChanged(): void;
  /** Called at most once; after it the stream delivers nothing. */
  onClosed(end: StreamBreak): void;
  onIgnored?(reason: IgnoredReason, uri: string | undefined): void;
  /** Older era over HTTP: how long nothing at all may come on the stream until it counts as broken. Default 280 000 ms. */
  quietAfterMs?: number;
  /** Modern era over HTTP: how long one listen request stays in use before it is renewed without a gap. Default 240 000 ms. */
  renewAfterMs?: number;
  /** Ends the opening; has no effect on the open stream. */
  signal?: AbortSignal;
}

/** What came of an unsubscription (U9). `unknown` names the URIs whose end nobody confirmed. */
export interface UnsubscribeResult {
  outcome: "acknowledged" | "unknown";
  unknown: string[];
}

/** An open stream of notifications. */
export interface ResourceStream {
  /** The URIs asked for *and* acknowledged. Every other one must be polled (U3). Changes with `add` and `unsubscribe`. */
  readonly acknowledged: readonly string[];
  /** Whether it is one of {@link acknowledged}. */
  acknowledges(uri: string): boolean;
  /** Changes of the list will be notified. */
  readonly listChanged: boolean;
  /** Another try may bring more acknowledgements. False: nothing will ever be pushed on this connection. */
  readonly mayPush: boolean;
  /**
   * Watches more URIs without a gap for the rest (U4), and asks again for those that were not acknowledged. Resolves to those
   * of them that are now.
   */
  add(uris: readonly string[]): Promise<string[]>;
  /** Stops watching. Nothing is delivered for these URIs from the call on, whatever the outcome (U9). */
  unsubscribe(uris: readonly string[]): Promise<UnsubscribeResult>;
  /** Ends the stream without `onClosed`. Idempotent. */
  close(): Promise<void>;
}

/**
 * Opens a stream for the resources and, if asked, the list, in the connection's era; resolves after the acknowledgement.
 * A server that offers no subscriptions yields a stream with nothing acknowledged, which is no error (U3).
 *
 * @throws {FencelineError} `source_lost`, `source_unreachable`, `source_unauthorized`, `source_forbidden`, `source_failed`,
 * `request_timeout`, `request_aborted`
 */
export function openResourceStream(
  connection: SourceConnection,
  options: ResourceStreamOptions,
): Promise<ResourceStream> {
  return connection.era === "modern"
    ? ListenStream.open(connection, options)
    : SubscribeStream.open(connection, options);
}
