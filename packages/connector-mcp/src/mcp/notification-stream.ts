import { connectorError } from "../errors.js";
import { Turns } from "../turns.js";
import type {
  IgnoredReason,
  ResourceStream,
  ResourceStreamOptions,
  StreamBreak,
  UnsubscribeResult,
} from "./resource-stream.js";
import type { SourceConnection, SourceListener, SourceWire, SubscriptionId } from "./source-connection.js";
import { WatchedUris } from "./watched-uris.js";

/**
 * What the streams of both eras have in common.
 *
 * Invariants:
 * 1. `onClosed` is called at most once, never after `close()`, and never because this side closed the connection.
 * 2. After the end nothing is delivered.
 * 3. A notification is delivered only for a URI that is watched now, or above one that was named (U11).
 * 4. Changes of the set run one after the other.
 */
export abstract class NotificationStream implements ResourceStream, SourceListener {
  protected readonly wire: SourceWire;
  protected readonly watched = new WatchedUris();
  #ended = false;
  readonly #turns = new Turns();
  readonly #leave: () => void;

  protected constructor(
    protected readonly connection: SourceConnection,
    protected readonly options: ResourceStreamOptions,
  ) {
    this.wire = connection.wire;
    this.watched.add(options.uris);
    // Before anything is asked for: the first notification may overtake the acknowledgement.
    this.#leave = this.wire.listen(this);
    void connection.closed.then((end) =>
      this.break({ reason: "connection", message: `the connection ended (${end.reason})`, cause: end.cause }),
    );
  }

  abstract get acknowledged(): readonly string[];
  abstract acknowledges(uri: string): boolean;
  abstract get listChanged(): boolean;
  abstract get mayPush(): boolean;
  protected abstract carries(subscriptionId: SubscriptionId | undefined): IgnoredReason | undefined;
  protected abstract watch(uris: readonly string[]): Promise<void>;
  protected abstract unwatch(uris: readonly string[]): Promise<UnsubscribeResult>;
  /** Lets go of what the stream holds; called once. */
  protected abstract release(): void;

  get ended(): boolean {
    return this.#ended;
  }

  add(uris: readonly string[]): Promise<string[]> {
    return this.inTurn(async () => {
      if (this.#ended) throw connectorError("source_lost", "the stream has ended; open a new one");
      const asked = uris.filter((uri) => !this.acknowledges(uri));
      const added = asked.filter((uri) => !this.watched.has(uri));
      this.watched.add(added);
      try {
        if (asked.length > 0) await this.watch(asked);
      } catch (error) {
        this.watched.delete(added);
        throw error;
      }
      return uris.filter((uri) => this.acknowledges(uri));
    });
  }

  unsubscribe(uris: readonly string[]): Promise<UnsubscribeResult> {
    this.watched.delete(uris);
    return this.inTurn(() => this.unwatch(uris));
  }

  async close(): Promise<void> {
    if (this.#ended) return;
    this.#end();
    this.release();
  }

  updated(uri: string, subscriptionId: SubscriptionId | undefined): IgnoredReason | undefined {
    const refusal = this.carries(subscriptionId);
    if (refusal !== undefined) return refusal;
    const concerned = this.watched.concernedBy(uri);
    if (concerned.length === 0) return "uri_not_subscribed";
    for (const watchedUri of concerned) this.options.onUpdated(watchedUri);
    return undefined;
  }

  listUpdated(subscriptionId: SubscriptionId | undefined): IgnoredReason | undefined {
    const refusal = this.carries(subscriptionId);
    if (refusal !== undefined) return refusal;
    if (!this.options.listChanged) return "list_not_watched";
    this.options.onListChanged();
    return undefined;
  }

  ignored(reason: IgnoredReason, uri: string | undefined): void {
    this.options.onIgnored?.(reason, uri);
  }

  /** Ends the stream because the other side did. */
  protected break(end: StreamBreak): void {
    if (this.#ended) return;
    this.#end();
    this.release();
    const connectionEnd = this.wire.ended;
    if (connectionEnd?.reason === "local") return;
    const seen = connectionEnd ? { ...end, reason: "connection" as const } : end;
    this.options.onClosed(seen);
  }

  protected inTurn<T>(change: () => Promise<T>): Promise<T> {
    return this.#turns.run(change);
  }

  #end(): void {
    this.#ended = true;
    this.#leave();
  }
}
