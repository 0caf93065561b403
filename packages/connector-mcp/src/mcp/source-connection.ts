import type { FencelineError } from "@fenceline/ledger";
import {
  Client,
  type JSONRPCMessage,
  type PriorDiscovery,
  SdkHttpError,
  type StreamableHTTPClientTransport,
  SUBSCRIPTION_ID_META_KEY,
  type SubscriptionFilter,
  type Transport,
  type TransportSendOptions,
} from "@modelcontextprotocol/client";
import { type ConnectorErrorCode, connectorError } from "../errors.js";
import { HttpWatch } from "./http-watch.js";
import type { IgnoredReason } from "./resource-stream.js";
import type { ServerProcess } from "./server-process.js";
import {
  type AfterConnectCall,
  describeEndpoint,
  httpTransport,
  redactor,
  type SourceEndpoint,
  stdioTransport,
} from "./source-endpoint.js";
import { classifyFailure, type FailureKind, failureCode } from "./wire-failure.js";

export type { AfterConnectCall, HttpEndpoint, SourceEndpoint, StdioEndpoint } from "./source-endpoint.js";

/** Modern: protocol 2026-07-28 and later. Legacy: everything that begins with `initialize`. */
export type ProtocolEra = "modern" | "legacy";

/** What the server offers about resources (U1). Recorded in a capability receipt by the caller. */
export interface SourceCapabilities {
  /** It has resources at all. Without it the source is unknown, never empty (S9). */
  resources: boolean;
  subscribe: boolean;
  listChanged: boolean;
}

/**
 * Why a connection ended.
 *
 * `local`: {@link SourceConnection.close} was called. `remote`: the process or its pipe ended. `session_lost`: an answer said
 * that the server does not know the session any more.
 */
export interface ConnectionEnd {
  reason: "local" | "remote" | "session_lost";
  cause?: unknown;
}

/** Options of {@link connectSource}. */
export interface ConnectOptions {
  /** Ends the attempt to connect; has no effect on the connection afterwards. */
  signal?: AbortSignal;
  clientInfo?: { name: string; version: string };
  /** Largest single message, in bytes, that is accepted. Over stdio a larger one ends the connection. Default 64 MiB. */
  maxMessageBytes?: number;
  /** What a stdio server writes to standard error. Without it that output is dropped. */
  onStderr?: (chunk: string) => void;
  /** Problems that belong to no request, for a log. The text is free of the endpoint's secrets. */
  onProblem?: (message: string) => void;
}

/** JSON-RPC id of the request that opened a subscription; a server stamps it on what belongs to it (modern era). */
export type SubscriptionId = string | number;

/** A receiver of notifications. Each method tells why it did not take one, or nothing when it did. @internal */
export interface SourceListener {
  updated(uri: string, subscriptionId: SubscriptionId | undefined): IgnoredReason | undefined;
  listUpdated(subscriptionId: SubscriptionId | undefined): IgnoredReason | undefined;
  /** Nobody took it; told to one listener only, so that it is counted once. */
  ignored(reason: IgnoredReason, uri: string | undefined): void;
}

/**
 * One connection to one source, made by {@link connectSource}.
 *
 * Invariants:
 * 1. One `Client` per connection. A second connect on a live transport would let the old one kill the new.
 * 2. `closed` resolves exactly once and never rejects; an end that {@link close} asked for is `local`.
 * 3. After `close()` the server's process is gone, also when the handshake failed.
 */
export interface SourceConnection {
  readonly era: ProtocolEra;
  readonly protocolVersion: string;
  /** As the server names itself; a modern server may stay anonymous. */
  readonly server: { name: string; version: string } | undefined;
  readonly capabilities: SourceCapabilities;
  readonly closed: Promise<ConnectionEnd>;
  /** Ends the session and the server's process. Idempotent; resolves when the process is gone. */
  close(): Promise<void>;
  /** For the files of this folder only. @internal */
  readonly wire: SourceWire;
}

/** What the other files of this folder need of a connection. @internal */
export interface SourceWire {
  readonly client: Client;
  readonly requestTimeoutMs: number;
  /** Present over HTTP only. */
  readonly http: HttpWatch | undefined;
  readonly sessionId: string | undefined;
  /** How the connection ended, if it did. */
  readonly ended: ConnectionEnd | undefined;
  /** Installs a receiver of notifications; returns how to remove it. */
  listen(listener: SourceListener): () => void;
  /** The subscription id under which this filter object was sent. */
  subscriptionIdOf(filter: SubscriptionFilter): SubscriptionId | undefined;
  /** Tells what an error means, and ends the connection when it means that the session is lost. */
  failure(error: unknown, signal?: AbortSignal): FailureKind;
  /** The message of an error, free of the endpoint's secrets. */
  explain(error: unknown): string;
  /** The error to throw for a failed request; `what` names the request. */
  error(what: string, error: unknown, signal?: AbortSignal): FencelineError<ConnectorErrorCode>;
}

const CLIENT_INFO = { name: "fenceline", version: "0.1.0" };
const DEFAULT_REQUEST_TIMEOUT_MS = 60_000;
const DEFAULT_MAX_MESSAGE_BYTES = 64 * 1024 * 1024;

const STDIO_PROBE_TIMEOUT_MS = 20_000;
const FAREWELL_TIMEOUT_MS = 2_000;

/**
 * Connects to a source in whichever era its server speaks, and calls the endpoint's `afterConnect` tools.
 *
 * @throws {FencelineError} `source_endpoint_invalid`, `source_unreachable`, `source_unauthorized`, `source_forbidden`,
 * `source_failed`, `request_timeout`, `request_aborted`, `response_invalid`, `after_connect_failed`
 */
export async function connectSource(endpoint: SourceEndpoint, options: ConnectOptions = {}): Promise<SourceConnection> {
  const link = await openLink(endpoint, options);
  try {
    await link.callAfterConnect(endpoint.afterConnect ?? [], options.signal);
  } catch (error) {
    await link.close();
    throw error;
  }
  return link;
}

async function openLink(endpoint: SourceEndpoint, options: ConnectOptions): Promise<SourceLink> {
  const link = new SourceLink(endpoint, options);
  try {
    await link.shakeHands(options.signal);
    return link;
  } catch (error) {
    await link.close();
    if (!link.processDied) throw error;
  }
  // Some servers of the legacy era end on any request that comes before `initialize`, so also on the question for the era.
  const legacy = new SourceLink(endpoint, options);
  try {
    await legacy.shakeHands(options.signal, { kind: "legacy" });
    return legacy;
  } catch (error) {
    await legacy.close();
    throw error;
  }
}

class SourceLink implements SourceConnection, SourceWire {
  readonly client: Client;
  readonly http: HttpWatch | undefined;
  readonly requestTimeoutMs: number;
  readonly closed: Promise<ConnectionEnd>;

  readonly #transport: ServerProcess | StreamableHTTPClientTransport;
  readonly #name: string;
  readonly #redact: (text: string) => string;
  readonly #listeners = new Set<SourceListener>();
  readonly #subscriptionIds = new WeakMap<object, SubscriptionId>();
  readonly #resolveClosed: (end: ConnectionEnd) => void;
  #ended: ConnectionEnd | undefined;
  #processDied = false;
  #closing: Promise<void> | undefined;

  constructor(endpoint: SourceEndpoint, options: ConnectOptions) {
    this.#name = describeEndpoint(endpoint);
    this.#redact = redactor(endpoint);
    this.requestTimeoutMs = endpoint.requestTimeoutMs ?? DEFAULT_REQUEST_TIMEOUT_MS;
    let resolveClosed!: (end: ConnectionEnd) => void;
    this.closed = new Promise((resolve) => {
      resolveClosed = resolve;
    });
    this.#resolveClosed = resolveClosed;

    const maxMessageBytes = options.maxMessageBytes ?? DEFAULT_MAX_MESSAGE_BYTES;
    if ("url" in endpoint) {
      this.http = new HttpWatch({ maxMessageBytes, isModern: () => this.client.getProtocolEra() === "modern" });
      this.#transport = httpTransport(endpoint, this.http.fetch);
    } else {
      this.http = undefined;
      this.#transport = stdioTransport(endpoint, { maxMessageBytes, onStderr: options.onStderr });
    }
    this.#watchTransport();
    this.client = this.#makeClient(options);
  }

  get wire(): SourceWire {
    return this;
  }

  get era(): ProtocolEra {
    return this.client.getProtocolEra() ?? "legacy";
  }

  get protocolVersion(): string {
    return this.client.getNegotiatedProtocolVersion() ?? "";
  }

  get server(): { name: string; version: string } | undefined {
    const info = this.client.getServerVersion();
    return info && { name: info.name, version: info.version };
  }

  get capabilities(): SourceCapabilities {
    const resources = this.client.getServerCapabilities()?.resources;
    return {
      resources: resources !== undefined,
      subscribe: resources?.subscribe === true,
      listChanged: resources?.listChanged === true,
    };
  }

  get ended(): ConnectionEnd | undefined {
    return this.#ended;
  }

  /** The server's process ended and nobody here had asked for it. */
  get processDied(): boolean {
    return this.#processDied;
  }

  get sessionId(): string | undefined {
    return "sessionId" in this.#transport ? this.#transport.sessionId : undefined;
  }

  async shakeHands(signal: AbortSignal | undefined, prior?: PriorDiscovery): Promise<void> {
    const giveUp = (): void => void this.#transport.close();
    signal?.addEventListener("abort", giveUp, { once: true });
    try {
      signal?.throwIfAborted();
      await this.client.connect(this.#transport, {
        timeout: this.requestTimeoutMs,
        ...(signal && { signal }),
        ...(prior && { prior }),
      });
    } catch (error) {
      throw this.#connectError(error, signal);
    } finally {
      signal?.removeEventListener("abort", giveUp);
    }
  }

  async callAfterConnect(calls: readonly AfterConnectCall[], signal: AbortSignal | undefined): Promise<void> {
    for (const call of calls) {
      const problem = await this.#callTool(call, signal);
      if (problem === undefined) continue;
      throw connectorError(
        "after_connect_failed",
        `afterConnect tool ${call.tool} of ${this.#name}: ${problem.message}`,
        {
          cause: problem.cause,
        },
      );
    }
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  listen(listener: SourceListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  subscriptionIdOf(filter: SubscriptionFilter): SubscriptionId | undefined {
    return this.#subscriptionIds.get(filter);
  }

  failure(error: unknown, signal?: AbortSignal): FailureKind {
    const kind = classifyFailure(error, { signal, sessionBound: this.sessionId !== undefined });
    if (kind === "session_lost") this.#end({ reason: "session_lost", cause: error });
    return kind;
  }

  error(what: string, error: unknown, signal?: AbortSignal): FencelineError<ConnectorErrorCode> {
    const kind = this.failure(error, signal);
    return connectorError(failureCode(kind), `${what} at ${this.#name}: ${this.explain(error)}`, { cause: error });
  }

  explain(error: unknown): string {
    const status = error instanceof SdkHttpError ? ` (HTTP ${error.status})` : "";
    return this.#redact(error instanceof Error ? error.message : String(error)).trimEnd() + status;
  }

  #makeClient(options: ConnectOptions): Client {
    const probe = this.http ? {} : { timeoutMs: Math.min(this.requestTimeoutMs, STDIO_PROBE_TIMEOUT_MS) };
    const client = new Client(options.clientInfo ?? CLIENT_INFO, {
      versionNegotiation: { mode: "auto", probe },
      // Without it a missing capability is answered with an empty list and a line on standard output.
      enforceStrictCapabilities: true,
      // Nobody sits here to be asked.
      inputRequired: { autoFulfill: false },
    });
    client.onerror = (error) => options.onProblem?.(`${this.#name}: ${this.explain(error)}`);
    client.setNotificationHandler("notifications/resources/updated", ({ params }) => {
      const id = subscriptionIdIn(params._meta);
      this.#deliver(params.uri, (listener) => listener.updated(params.uri, id));
    });
    client.setNotificationHandler("notifications/resources/list_changed", ({ params }) => {
      const id = subscriptionIdIn(params?._meta);
      this.#deliver(undefined, (listener) => listener.listUpdated(id));
    });
    return client;
  }

  #deliver(uri: string | undefined, offer: (listener: SourceListener) => IgnoredReason | undefined): void {
    const listeners = [...this.#listeners];
    const refusals = listeners.map(offer);
    const [refusal] = refusals;
    if (refusal !== undefined && !refusals.includes(undefined)) listeners[0]?.ignored(refusal, uri);
  }

  #end(end: ConnectionEnd): void {
    if (this.#ended) return;
    this.#ended = end;
    this.#resolveClosed(end);
  }

  #watchTransport(): void {
    const send: Transport["send"] = this.#transport.send.bind(this.#transport);
    // The handle that `listen` returns does not tell its subscription id; the request that opens it does.
    this.#transport.send = (message: JSONRPCMessage, sendOptions?: TransportSendOptions) => {
      if ("method" in message && "id" in message && message.method === "subscriptions/listen") {
        const filter = message.params?.["notifications"];
        if (typeof filter === "object" && filter !== null) this.#subscriptionIds.set(filter, message.id);
      }
      return send(message, sendOptions);
    };
    this.#transport.onclose = () => {
      this.#processDied = "isClosing" in this.#transport && !this.#transport.isClosing;
      this.#end({ reason: "remote" });
    };
  }

  async #close(): Promise<void> {
    this.#end({ reason: "local" });
    this.#listeners.clear();
    if ("terminateSession" in this.#transport && this.sessionId !== undefined) {
      await within(FAREWELL_TIMEOUT_MS, this.#transport.terminateSession());
    }
    await this.client.close();
    // After a failed handshake the client has let go of the transport, which may still be busy ending its process.
    await this.#transport.close();
  }

  async #callTool(
    call: AfterConnectCall,
    signal: AbortSignal | undefined,
  ): Promise<{ message: string; cause?: unknown } | undefined> {
    try {
      const result = await this.client.callTool(
        { name: call.tool, ...(call.arguments && { arguments: call.arguments }) },
        { timeout: this.requestTimeoutMs, ...(signal && { signal }) },
      );
      if (result.isError !== true) return undefined;
      const text = result.content.flatMap((block) => (block.type === "text" ? [block.text] : [])).join(" ");
      return { message: this.#redact(text) || "the tool reported an error" };
    } catch (error) {
      return { message: this.explain(error), cause: error };
    }
  }

  #connectError(error: unknown, signal: AbortSignal | undefined): FencelineError<ConnectorErrorCode> {
    const kind = this.failure(error, signal);
    // An end during the handshake is no lost session: there was none yet.
    const code = kind === "session_lost" ? "source_unreachable" : failureCode(kind);
    return connectorError(code, `cannot connect to ${this.#name}: ${this.explain(error)}`, { cause: error });
  }
}

function subscriptionIdIn(meta: Readonly<Record<string, unknown>> | undefined): SubscriptionId | undefined {
  const id = meta?.[SUBSCRIPTION_ID_META_KEY];
  return typeof id === "string" || typeof id === "number" ? id : undefined;
}

/** Waits for a courtesy that may fail or hang. */
async function within(timeoutMs: number, courtesy: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, timeoutMs);
  });
  await Promise.race([courtesy.catch(() => {}), deadline]);
  clearTimeout(timer);
}
