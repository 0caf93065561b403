import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { FencelineError } from "../errors.js";

/** A channel that is listened to, until it is closed. Closing never rejects. */
interface ListenedChannel {
  close(): Promise<void>;
}

interface Subscription {
  channel: string;
  onPayload: (payload: string) => void;
  onReconnect: (() => void) | undefined;
}

const RECONNECT_FIRST_MS = 20;
const RECONNECT_MOST_MS = 2_000;

/**
 * The one connection of a database that listens.
 *
 * 1. It exists from the first subscription to the end of the last one.
 * 2. While there is a subscription and no connection, connecting is tried for ever, with backoff.
 * 3. Every channel is listened to again before `onReconnect` is called: what came in between is lost, what comes after
 *    is not.
 */
export class Listener {
  readonly #connectionOptions: pg.ClientConfig;
  readonly #address: string;
  readonly #connectTimeoutMs: number;
  readonly #subscriptions = new Set<Subscription>();
  #connection: Promise<pg.Client> | undefined;
  #client: pg.Client | undefined;
  /** Ends the connecting of {@link #connection}; a fresh one for each. */
  #connecting = new AbortController();
  #closed = false;

  constructor(connectionOptions: pg.ClientConfig, address: string, connectTimeoutMs: number) {
    this.#connectionOptions = connectionOptions;
    this.#address = address;
    this.#connectTimeoutMs = connectTimeoutMs;
  }

  /** @throws {FencelineError} `database_unreachable` when the channel is not listened to within the deadline */
  async listen(
    channel: string,
    onPayload: (payload: string) => void,
    onReconnect?: () => void,
  ): Promise<ListenedChannel> {
    const subscription: Subscription = { channel, onPayload, onReconnect };
    this.#subscriptions.add(subscription);
    const listening: ListenedChannel = { close: () => this.#unsubscribe(subscription) };
    const deadline = AbortSignal.timeout(this.#connectTimeoutMs);
    try {
      for (;;) {
        try {
          const client = await rejectOn(deadline, this.#connect());
          await rejectOn(deadline, client.query(`listen ${pg.escapeIdentifier(channel)}`));
          return listening;
        } catch (error) {
          if (deadline.aborted || this.#closed) throw error;
          await delay(RECONNECT_FIRST_MS);
        }
      }
    } catch (cause) {
      await listening.close();
      throw new FencelineError(
        "database_unreachable",
        `Could not listen to ${JSON.stringify(channel)} on ${this.#address} within ${this.#connectTimeoutMs} ms.`,
        { cause },
      );
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#subscriptions.clear();
    await this.#disconnect();
  }

  async #unsubscribe(subscription: Subscription): Promise<void> {
    if (!this.#subscriptions.delete(subscription)) return;
    if (this.#subscriptions.size === 0) return this.#disconnect();
    if (this.#channels().includes(subscription.channel)) return;
    await this.#client?.query(`unlisten ${pg.escapeIdentifier(subscription.channel)}`).catch(() => {});
  }

  #channels(): string[] {
    return [...new Set([...this.#subscriptions].map(({ channel }) => channel))];
  }

  #connect(): Promise<pg.Client> {
    if (!this.#connection) {
      this.#connecting = new AbortController();
      this.#connection = this.#connectUntil(this.#connecting.signal);
      this.#connection.catch(() => {});
    }
    return this.#connection;
  }

  async #connectUntil(ended: AbortSignal): Promise<pg.Client> {
    for (let wait = RECONNECT_FIRST_MS; ; wait = Math.min(wait * 2, RECONNECT_MOST_MS)) {
      const client = new pg.Client({
        ...this.#connectionOptions,
        application_name: "fenceline listener",
        connectionTimeoutMillis: this.#connectTimeoutMs,
        keepAlive: true,
      });
      client.on("error", () => {});
      try {
        await client.connect();
        for (const channel of this.#channels()) await client.query(`listen ${pg.escapeIdentifier(channel)}`);
        ended.throwIfAborted();
        client.on("notification", ({ channel, payload }) => this.#deliver(channel, payload ?? ""));
        client.once("end", () => this.#reconnect(client));
        this.#client = client;
        return client;
      } catch {
        await client.end().catch(() => {});
      }
      await delay(wait, undefined, { signal: ended });
    }
  }

  #reconnect(lost: pg.Client): void {
    if (this.#client !== lost) return;
    this.#client = undefined;
    this.#connection = undefined;
    if (this.#subscriptions.size === 0) return;
    const before = [...this.#subscriptions];
    this.#connect().then(
      () => {
        for (const subscription of before) if (this.#subscriptions.has(subscription)) subscription.onReconnect?.();
      },
      () => {},
    );
  }

  async #disconnect(): Promise<void> {
    this.#connecting.abort();
    const client = this.#client;
    this.#client = undefined;
    this.#connection = undefined;
    await client?.end().catch(() => {});
  }

  #deliver(channel: string, payload: string): void {
    for (const subscription of this.#subscriptions) {
      if (subscription.channel === channel) subscription.onPayload(payload);
    }
  }
}

async function rejectOn<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  signal.throwIfAborted();
  let onAbort = () => {};
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
