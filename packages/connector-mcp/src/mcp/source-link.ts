import type { FencelineError } from "@fenceline/ledger";
import {
  Client,
  type JSONRPCErrorResponse,
  type JSONRPCMessage,
  type PriorDiscovery,
  ProtocolError,
  SdkErrorCode,
  SdkHttpError,
  type StreamableHTTPClientTransport,
  SUBSCRIPTION_ID_META_KEY,
  type SubscriptionFilter,
  type Transport,
  type TransportSendOptions,
  UnauthorizedError,
} from "@modelcontextprotocol/client";
import { type ConnectorErrorCode, connectorError } from "../errors.js";
import { ChannelProbe } from "./channel-probe.js";
import { greetingOf, NO_GREETING } from "./greeting.js";
import { type Fetch, HttpWatch } from "./http-watch.js";
import { LenientAnswers } from "./lenient-answers.js";
import { presentableError } from "./presentable-error.js";
import type { IgnoredReason } from "./resource-stream.js";
import { ServerPatience } from "./server-patience.js";
import type { ServerProcess } from "./server-process.js";
import { SNAPSHOT_ID_EXTENSION } from "./snapshot-id.js";
import type {
  ConnectionEnd,
  ConnectOptions,
  ProtocolEra,
  SourceCapabilities,
  SourceConnection,
  SourceListener,
  SourceWire,
  SubscriptionId,
} from "./source-connection.js";
import {
  type AfterConnectCall,
  describeEndpoint,
  httpTransport,
  redactor,
  type SourceEndpoint,
  stdioTransport,
} from "./source-endpoint.js";
import {
  classifyFailure,
  describeError,
  type FailureKind,
  failureCode,
  isDoubtful,
  saysUnknownSession,
} from "./wire-failure.js";

const CLIENT_INFO = { name: "fenceline", version: "0.1.0" };
const DEFAULT_REQUEST_TIMEOUT_MS = 60_000;
const MIN_MESSAGE_BYTES = 64 * 1024 * 1024;
/** Bytes of a message per byte of the body in it, at most in practice: base64 takes 4/3, Cyrillic in `\uXXXX` three times. */
const MESSAGE_BYTES_PER_BODY_BYTE = 3;

const STDIO_PROBE_TIMEOUT_MS = 20_000;
const TOO_MANY_REQUESTS = 429;
const FAREWELL_TIMEOUT_MS = 2_000;

/** The connection behind {@link SourceConnection}; its invariants stand there. */
export class SourceLink implements SourceConnection, SourceWire {
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
  readonly #onUnauthorized: ConnectOptions["onUnauthorized"];
  readonly #probe: ChannelProbe;
  #isConnected = false;
  /** Kept here: the client forgets it when it closes. */
  #greeting = NO_GREETING;
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

    const { maxBodyBytes = 0 } = options;
    const { maxMessageBytes = Math.max(MIN_MESSAGE_BYTES, MESSAGE_BYTES_PER_BODY_BYTE * maxBodyBytes), onStderr } =
      options;
    if ("url" in endpoint) {
      this.http = new HttpWatch({
        maxMessageBytes,
        patience: ServerPatience.of(endpoint),
        isModern: () => this.client.getProtocolEra() === "modern",
        // From no event on: a stream of its own.
        requestStream: () => transport.resumeStream(""),
      });
      const transport = httpTransport(endpoint, (...request) => this.#fetch(...request));
      this.#transport = transport;
    } else {
      this.http = undefined;
      this.#transport = stdioTransport(endpoint, { maxMessageBytes, onStderr });
    }
    this.#onUnauthorized = options.onUnauthorized;
    this.#probe = new ChannelProbe({
      ask: () => this.#askForLife(),
      isFatal: (error, inDoubt) => this.#isFatal(error, inDoubt),
      onLost: (cause) => this.#end({ reason: "session_lost", cause }),
      quietMs: options.quietMs,
    });
    this.#watchTransport();
    this.client = this.#makeClient(options);
  }

  get wire(): SourceWire {
    return this;
  }

  get era(): ProtocolEra {
    return this.#greeting.era;
  }

  get protocolVersion(): string {
    return this.#greeting.protocolVersion;
  }

  get server(): { name: string; version: string } | undefined {
    return this.#greeting.server;
  }

  get capabilities(): SourceCapabilities {
    return this.#greeting.capabilities;
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
      this.#greeting = greetingOf(this.client);
      this.#isConnected = true;
      // A modern server over HTTP keeps nothing of a connection; its listen stream is proved by its renewals.
      if (!this.http || this.sessionId !== undefined) this.#probe.watch();
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
        { cause: this.presentable(problem.cause) },
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
    const context = { signal, sessionBound: this.sessionId !== undefined };
    const kind = classifyFailure(error, context);
    if (kind === "session_lost") this.#end({ reason: "session_lost", cause: error });
    else if (kind === "unauthorized") this.#onUnauthorized?.(this.explain(error));
    else if (this.#isConnected && isDoubtful(error, kind, context)) this.#probe.doubt();
    return kind;
  }

  error(what: string, error: unknown, signal?: AbortSignal): FencelineError<ConnectorErrorCode> {
    const kind = this.failure(error, signal);
    return this.#connectorError(failureCode(kind), `${what} at ${this.#name}`, error);
  }

  presentable(error: unknown): unknown {
    return presentableError(error, this.#redact);
  }

  explain(error: unknown): string {
    return this.#redact(describeError(error));
  }

  /** A 429 to the question for the era would be taken for the answer of an older server, which is then spoken to as one. */
  async #fetch(...request: Parameters<Fetch>): Promise<Response> {
    const response = await (this.http as HttpWatch).fetch(...request);
    if (this.#isConnected || response.status !== TOO_MANY_REQUESTS) return response;
    throw connectorError("source_throttled", "it is asked too often (HTTP 429)");
  }

  #makeClient(options: ConnectOptions): Client {
    const probe = this.http ? {} : { timeoutMs: Math.min(this.requestTimeoutMs, STDIO_PROBE_TIMEOUT_MS) };
    const client = new Client(options.clientInfo ?? CLIENT_INFO, {
      versionNegotiation: { mode: "auto", probe },
      capabilities: { extensions: { [SNAPSHOT_ID_EXTENSION]: {} } },
      // Without it a missing capability is answered with an empty list and a line on standard output.
      enforceStrictCapabilities: true,
      // Nobody sits here to be asked.
      inputRequired: { autoFulfill: false },
    });
    client.onerror = (error) => {
      options.onProblem?.(`${this.#name}: ${this.explain(error)}`);
      this.#noteStreamFailure(error);
    };
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

  /** The GET stream has nobody who waits for it, and so nobody who is told why it did not open. */
  #noteStreamFailure(error: Error): void {
    const isAboutStream = error instanceof SdkHttpError && error.code === SdkErrorCode.ClientHttpFailedToOpenStream;
    if (error instanceof UnauthorizedError || (isAboutStream && error.status === 401)) this.failure(error);
    // Servers without such a stream refuse it in any way they like: only a request tells whether the session is lost.
    else if (isAboutStream && this.#isConnected) this.#probe.doubt();
  }

  /** An error for no request is how some servers answer a session they do not know; whoever asked waits until the timeout. */
  #noteUnaddressed(error: JSONRPCErrorResponse["error"]): void {
    if (!this.#isConnected) return;
    if (this.sessionId === undefined || !saysUnknownSession(error)) this.#probe.doubt();
    else this.#end({ reason: "session_lost", cause: new ProtocolError(error.code, error.message) });
  }

  /** Every server of an era has to answer this. */
  #askForLife(): Promise<unknown> {
    const options = { timeout: this.requestTimeoutMs };
    return this.era === "modern" ? this.client.discover(options) : this.client.ping(options);
  }

  #isFatal(error: unknown, inDoubt: boolean): boolean {
    const context = { signal: undefined, sessionBound: this.sessionId !== undefined };
    const kind = classifyFailure(error, context);
    if (kind === "unauthorized") this.#onUnauthorized?.(this.explain(error));
    return kind === "session_lost" || kind === "timed_out" || (inDoubt && isDoubtful(error, kind, context));
  }

  #deliver(uri: string | undefined, offer: (listener: SourceListener) => IgnoredReason | undefined): void {
    const listeners = [...this.#listeners];
    const refusals = listeners.map(offer);
    if (refusals.includes(undefined)) return;
    // The stream that it came on knows best.
    const refusal = refusals.find((reason) => reason !== "other_subscription") ?? refusals[0];
    if (refusal !== undefined) listeners[0]?.ignored(refusal, uri);
  }

  #end(end: ConnectionEnd): void {
    if (this.#ended) return;
    this.#probe.stop();
    this.#ended = "cause" in end ? { ...end, cause: this.presentable(end.cause) } : end;
    this.#resolveClosed(this.#ended);
  }

  #watchTransport(): void {
    const send: Transport["send"] = this.#transport.send.bind(this.#transport);
    const answers = new LenientAnswers();
    mendMessages(this.#transport, (message) => {
      this.#probe.heard();
      if ("error" in message && (message.id ?? null) === null) this.#noteUnaddressed(message.error);
      return answers.received(this.http?.received(message) ?? message);
    });
    // The handle that `listen` returns does not tell its subscription id; the request that opens it does.
    this.#transport.send = (message: JSONRPCMessage, sendOptions?: TransportSendOptions) => {
      if ("method" in message && "id" in message && message.method === "subscriptions/listen") {
        const filter = message.params?.["notifications"];
        if (typeof filter === "object" && filter !== null) this.#subscriptionIds.set(filter, message.id);
      }
      answers.sent(message);
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
      return { message: this.#redact(describeError(text)) || "the tool reported an error" };
    } catch (error) {
      this.failure(error, signal);
      return { message: this.explain(error), cause: error };
    }
  }

  #connectError(error: unknown, signal: AbortSignal | undefined): FencelineError<ConnectorErrorCode> {
    const kind = this.failure(error, signal);
    // An end during the handshake is no lost session: there was none yet.
    const code = kind === "session_lost" ? "source_unreachable" : failureCode(kind);
    return this.#connectorError(code, `cannot connect to ${this.#name}`, error);
  }

  #connectorError(code: ConnectorErrorCode, what: string, error: unknown): FencelineError<ConnectorErrorCode> {
    return connectorError(code, `${what}: ${this.explain(error)}`, { cause: this.presentable(error) });
  }
}

/** Passes each message through `mend` before whoever the client has set to receive it. */
function mendMessages(transport: Transport, mend: (message: JSONRPCMessage) => JSONRPCMessage): void {
  let receive: Transport["onmessage"];
  Object.defineProperty(transport, "onmessage", {
    get: () => receive,
    set: (receiver: Transport["onmessage"]) => {
      receive = receiver && ((message, extra) => receiver(mend(message as JSONRPCMessage) as typeof message, extra));
    },
  });
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
