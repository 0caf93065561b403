import { FencelineError, resourceKey } from "@fenceline/ledger";
import type { McpSubscription, SubscriptionFilter } from "@modelcontextprotocol/client";
import { connectorError } from "../errors.js";
import { NotificationStream } from "./notification-stream.js";
import type { IgnoredReason, ResourceStreamOptions, UnsubscribeResult } from "./resource-stream.js";
import type { SourceConnection, SubscriptionId } from "./source-connection.js";

/**
 * Node's fetch gives up on a response that is silent for 300 s, and not every server sends keep-alives. Renewing earlier
 * spares all watched resources a re-read every five minutes.
 */
const RENEW_AFTER_MS = 240_000;
const RETRY_RENEWAL_MS = 20_000;
/** Renewals in a row that nobody answered. */
const MAX_UNANSWERED = 2;
const UNANSWERED: ReadonlySet<string> = new Set(["source_unreachable", "request_timeout"]);

/** One `subscriptions/listen` request that was acknowledged. */
interface OpenListen {
  handle: McpSubscription;
  id: SubscriptionId;
  acknowledged: ReadonlySet<string>;
  listChanged: boolean;
  /** How it ended, if it did: also before it was in use. */
  end: McpSubscriptionEnd | undefined;
}

type McpSubscriptionEnd = Awaited<McpSubscription["closed"]>;

/**
 * The stream of the modern era.
 *
 * Invariants:
 * 1. Every change of the set opens a new listen, awaits its acknowledgement, then closes the old one (U4). Both
 *    subscription ids are valid meanwhile, and at no other time is more than one.
 * 2. The end of the listen in use, whenever it comes, breaks the stream: what was sent between it and a successor is lost.
 */
export class ListenStream extends NotificationStream {
  readonly #ids = new Set<SubscriptionId>();
  #current: OpenListen | undefined;
  #renewal: NodeJS.Timeout | undefined;
  #unanswered = 0;

  static async open(connection: SourceConnection, options: ResourceStreamOptions): Promise<ListenStream> {
    const stream = new ListenStream(connection, options);
    try {
      await stream.inTurn(() => stream.#replace(options.signal));
      return stream;
    } catch (error) {
      await stream.close();
      throw error;
    }
  }

  get acknowledged(): readonly string[] {
    return [...(this.#current?.acknowledged ?? [])].filter((uri) => this.watched.has(uri));
  }

  acknowledges(uri: string): boolean {
    return this.#current?.acknowledged.has(uri) === true && this.watched.has(uri);
  }

  get listChanged(): boolean {
    return this.#current?.listChanged ?? false;
  }

  get mayPush(): boolean {
    const { subscribe, listChanged } = this.connection.capabilities;
    return subscribe || (listChanged && this.options.listChanged);
  }

  protected carries(subscriptionId: SubscriptionId | undefined): IgnoredReason | undefined {
    if (subscriptionId === undefined) return "subscription_unnamed";
    return this.#ids.has(subscriptionId) ? undefined : "other_subscription";
  }

  protected watch(): Promise<void> {
    return this.#replace();
  }

  protected async unwatch(uris: readonly string[]): Promise<UnsubscribeResult> {
    const affected = uris.filter((uri) => this.#current?.acknowledged.has(uri));
    try {
      if (affected.length > 0) await this.#replace();
      return { outcome: "acknowledged", unknown: [] };
    } catch {
      // The old listen, which still names them, is in use.
      return this.ended ? { outcome: "acknowledged", unknown: [] } : { outcome: "unknown", unknown: affected };
    }
  }

  protected release(): void {
    clearTimeout(this.#renewal);
    const last = this.#current;
    this.#current = undefined;
    if (last) this.#retire(last);
  }

  async #replace(signal?: AbortSignal): Promise<void> {
    const filter = this.#filter();
    const next = filter && (await this.#open(filter, signal));
    if (this.ended) {
      if (next) this.#retire(next);
      throw connectorError("source_lost", "the stream ended while it was being changed");
    }
    const previous = this.#current;
    this.#current = next;
    if (previous) this.#retire(previous);
    this.#unanswered = 0;
    this.#scheduleRenewal(this.options.renewAfterMs ?? RENEW_AFTER_MS);
    this.#breakIfNarrowed(previous);
    if (next) this.#breakIfEnded(next);
  }

  /** Undefined when there is nothing that the server would honour. */
  #filter(): SubscriptionFilter | undefined {
    const { subscribe, listChanged } = this.connection.capabilities;
    const uris = subscribe ? [...this.watched] : [];
    const list = listChanged && this.options.listChanged;
    if (uris.length === 0 && !list) return undefined;
    return { ...(uris.length > 0 && { resourceSubscriptions: uris }), ...(list && { resourcesListChanged: true }) };
  }

  async #open(filter: SubscriptionFilter, signal: AbortSignal | undefined): Promise<OpenListen | undefined> {
    const handle = await this.#request(filter, signal);
    const id = this.wire.subscriptionIdOf(filter) as SubscriptionId;
    const { acknowledged, unasked } = compare(filter.resourceSubscriptions, handle.honoredFilter.resourceSubscriptions);
    const open: OpenListen = {
      handle,
      id,
      acknowledged,
      listChanged: filter.resourcesListChanged === true && handle.honoredFilter.resourcesListChanged === true,
      end: undefined,
    };
    for (const uri of unasked) this.ignored("acknowledged_unasked", uri);
    if (open.acknowledged.size === 0 && !open.listChanged) {
      // A server ends such a stream at once; that is no break, there was never anything to lose.
      this.#retire(open);
      return undefined;
    }
    void handle.closed.then((reason) => {
      this.#ids.delete(id);
      open.end = reason;
      this.#breakIfEnded(open);
    });
    return open;
  }

  async #request(filter: SubscriptionFilter, signal: AbortSignal | undefined): Promise<McpSubscription> {
    await this.wire.http?.patience.wait(signal);
    // The SDK binds a signal to the whole life of the subscription; the caller's is meant for its opening.
    const opening = new AbortController();
    const abort = (): void => opening.abort(signal?.reason);
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort, { once: true });
    try {
      const pending = this.wire.client.listen(filter, { timeout: this.wire.requestTimeoutMs, signal: opening.signal });
      const id = this.wire.subscriptionIdOf(filter);
      if (id !== undefined) this.#ids.add(id);
      return await pending;
    } catch (error) {
      const id = this.wire.subscriptionIdOf(filter);
      if (id !== undefined) this.#ids.delete(id);
      throw this.wire.error("opening a listen stream", error, signal);
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  /** Both ends of it take effect at once; telling the server is a courtesy that a silent server must not turn into a wait. */
  #retire(listen: OpenListen): void {
    this.#ids.delete(listen.id);
    void listen.handle.close();
  }

  /** What was pushed and no longer is must not go on looking subscribed (U3); the caller opens anew and compares. */
  #breakIfNarrowed(previous: OpenListen | undefined): void {
    if (!previous) return;
    const lost = [...previous.acknowledged].filter((uri) => this.watched.has(uri) && !this.acknowledges(uri));
    const lostList = previous.listChanged && !this.listChanged;
    if (lost.length === 0 && !lostList) return;
    const what = [lost.length > 0 && `${lost.length} URIs`, lostList && "the list"].filter((part) => part !== false);
    this.break({
      reason: "remote",
      message: `a later acknowledgement leaves out what was acknowledged before: ${what.join(" and ")}`,
    });
  }

  #breakIfEnded(listen: OpenListen): void {
    if (this.#current !== listen || listen.end === undefined) return;
    this.break({
      reason: listen.end === "graceful" ? "graceful" : "remote",
      message: `the listen stream ended (${listen.end})`,
    });
  }

  /** A server that does not answer may be gone, and the stream with it, of which nobody tells. One that refuses is there. */
  #renewLater(error: unknown): void {
    const isUnanswered = error instanceof FencelineError && UNANSWERED.has(error.code);
    this.#unanswered = isUnanswered ? this.#unanswered + 1 : 0;
    if (this.#unanswered === MAX_UNANSWERED) {
      this.break({ reason: "remote", message: "the listen stream could not be renewed", cause: error });
    } else this.#scheduleRenewal(Math.min(RETRY_RENEWAL_MS, this.options.renewAfterMs ?? RENEW_AFTER_MS));
  }

  #scheduleRenewal(afterMs: number): void {
    clearTimeout(this.#renewal);
    // Over stdio there is no response that could fall silent.
    if (!this.#current || !this.wire.http) return;
    this.#renewal = setTimeout(() => {
      this.inTurn(async () => {
        if (!this.ended) await this.#replace();
      }).catch((error: unknown) => {
        if (!this.ended) this.#renewLater(error);
      });
    }, afterMs);
    this.#renewal.unref();
  }
}

/**
 * Compares what was asked with what was acknowledged (U2). Another spelling of the same URI counts as acknowledged (F10);
 * keys are made for what differs only (4 µs each: 100 000 URIs would stop the process for most of a second at each renewal).
 */
function compare(
  asked: readonly string[] = [],
  honored: readonly string[] = [],
): { acknowledged: ReadonlySet<string>; unasked: string[] } {
  const rest = new Set(honored);
  const missing = new Set(asked.filter((uri) => !rest.delete(uri)));
  const restByKey = new Map(missing.size === 0 ? [] : [...rest].map((uri) => [resourceKey(uri), uri]));
  for (const uri of restByKey.size === 0 ? [] : missing) {
    const spelling = restByKey.get(resourceKey(uri));
    if (spelling === undefined) continue;
    missing.delete(uri);
    rest.delete(spelling);
  }
  return { acknowledged: new Set(asked.filter((uri) => !missing.has(uri))), unasked: [...rest] };
}
