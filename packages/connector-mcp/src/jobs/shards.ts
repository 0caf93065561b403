import type { Activation } from "./activation.js";
import type { SourceContext } from "./source-context.js";
import { SubscriptionStream, type SubscriptionStreamOptions } from "./subscription-stream.js";
import type { WatchedSubscription } from "./watched-subscription.js";

/** Many servers take no body above 100 kB, the default of Express; and what grows is asked for anew as a whole. */
const MAX_BYTES = 80_000;
const MAX_URIS = 2_000;

/** A stream, and how much it is asked for. */
interface Shard {
  readonly stream: SubscriptionStream;
  uris: number;
  bytes: number;
}

export type ShardEvents = Omit<SubscriptionStreamOptions, "context" | "activation" | "shard" | "listChanged">;

/** The streams of one connection, and which of them each subscription is asked for on. */
export class Shards {
  readonly #shards: Shard[] = [];
  /** No shard before this one has room. */
  #firstWithRoom = 0;

  constructor(
    private readonly context: SourceContext,
    private readonly activation: Activation,
    private readonly events: ShardEvents,
  ) {
    if (context.connection.capabilities.listChanged) this.#open();
  }

  get streams(): SubscriptionStream[] {
    return this.#shards.map(({ stream }) => stream);
  }

  /** Undefined: the server takes no subscriptions. */
  place(uri: string): number | undefined {
    if (!this.context.connection.capabilities.subscribe) return undefined;
    while (!this.#hasRoom(this.#firstWithRoom, uri)) this.#firstWithRoom += 1;
    const shard = this.#shards[this.#firstWithRoom] ?? this.#open();
    shard.uris += 1;
    shard.bytes += bytesOf(uri);
    return shard.stream.shard;
  }

  takeOut({ uri, shard: number }: WatchedSubscription): void {
    const shard = number === undefined ? undefined : this.#shards[number];
    if (!shard) return;
    shard.uris -= 1;
    shard.bytes -= bytesOf(uri);
    this.#firstWithRoom = Math.min(this.#firstWithRoom, shard.stream.shard);
  }

  /** Asks for these; also where there are none, a stream that was not opened yet is. */
  async add(subscriptions: readonly WatchedSubscription[]): Promise<void> {
    const own = this.of(subscriptions);
    await Promise.all(this.streams.map((stream) => stream.add(own.get(stream) ?? [])));
  }

  of(subscriptions: readonly WatchedSubscription[]): Map<SubscriptionStream, WatchedSubscription[]> {
    const own = new Map<SubscriptionStream, WatchedSubscription[]>();
    for (const subscription of subscriptions) {
      const stream = subscription.shard === undefined ? undefined : this.#shards[subscription.shard]?.stream;
      if (!stream) continue;
      const those = own.get(stream);
      if (those) those.push(subscription);
      else own.set(stream, [subscription]);
    }
    return own;
  }

  #hasRoom(number: number, uri: string): boolean {
    const shard = this.#shards[number];
    // The older era has one channel, and a request for each.
    if (!shard || this.context.connection.era === "legacy") return true;
    return shard.uris === 0 || (shard.uris < MAX_URIS && shard.bytes + bytesOf(uri) <= MAX_BYTES);
  }

  #open(): Shard {
    const { context, activation, events } = this;
    const number = this.#shards.length;
    const listChanged = number === 0 && context.connection.capabilities.listChanged;
    const stream = new SubscriptionStream({ ...events, context, activation, shard: number, listChanged });
    const shard = { stream, uris: 0, bytes: 0 };
    this.#shards.push(shard);
    return shard;
  }
}

/** As a member of a list in JSON. */
function bytesOf(uri: string): number {
  return Buffer.byteLength(JSON.stringify(uri)) + 1;
}
