import type { FencelineError } from "@fenceline/ledger";
import type { JSONRPCMessage, RequestId } from "@modelcontextprotocol/client";
import { connectorError } from "../errors.js";
import { limitEvents } from "./event-limit.js";
import { ServerPatience } from "./server-patience.js";

const INTERNAL_ERROR = -32603;

/** The shape of `fetch` that the MCP client takes. */
export type Fetch = (url: string | URL, init?: RequestInit) => Promise<Response>;

/**
 * State of the one GET stream on which a legacy server sends its notifications.
 *
 * `idle`: not asked for yet. `refused` (405 and the like): nothing will ever arrive. `ended`: it broke; the client may try again.
 */
export type StandaloneStreamState = "idle" | "opening" | "open" | "refused" | "ended";

/** What {@link HttpWatch} is told about the connection it belongs to. */
export interface HttpWatchOptions {
  /** Largest body, in bytes, of an answer; of an event stream, the largest event. */
  maxMessageBytes: number;
  /** True once the modern era was negotiated, which has no GET stream. */
  isModern(): boolean;
}

/**
 * Sees what the MCP client does not report about its HTTP requests.
 *
 * Invariants:
 * 1. Every end of the GET stream is noticed, also the clean one, after which the client reconnects without a word; what the
 *    server sent meanwhile is lost (U4).
 * 2. On a modern connection no GET is ever sent: the client would resume a broken listen stream with one, and a lax server
 *    would leave that stream open and silent for ever. Refusing it makes the break visible.
 * 3. A single answer larger than `maxMessageBytes` is cut off instead of being held in memory, and fails its request alone.
 * 4. What a server says with 429 or `Retry-After` is kept, for those who are about to ask it again.
 */
export class HttpWatch {
  readonly patience = new ServerPatience();
  #state: StandaloneStreamState = "idle";
  /** Requests whose answer came on an event stream and was cut off. */
  readonly #cutOff = new Set<RequestId>();
  readonly #onBreak = new Set<(cause: unknown) => void>();
  readonly #onChange = new Set<() => void>();

  constructor(private readonly options: HttpWatchOptions) {}

  get standaloneStream(): StandaloneStreamState {
    return this.#state;
  }

  /** The `fetch` to hand to the transport. */
  readonly fetch: Fetch = async (url, init) => {
    if ((init?.method ?? "GET") !== "GET") {
      const response = await fetch(url, init);
      this.patience.note(response);
      return this.#limited(response, init?.body);
    }
    // What is asked of an authorization server is no stream.
    if (!new Headers(init?.headers).get("accept")?.includes("text/event-stream")) return fetch(url, init);
    if (this.options.isModern()) return new Response(null, { status: 405 });
    return this.#openStandaloneStream(url, init);
  };

  /** The answer of a request that was cut off says so, in a way that no server can. */
  received(message: JSONRPCMessage): JSONRPCMessage {
    if (!("error" in message) || message.id === undefined || !this.#cutOff.delete(message.id)) return message;
    return { ...message, error: { ...message.error, data: tooLarge(this.options.maxMessageBytes) } };
  }

  /** Calls back at each end of the GET stream that this side did not ask for; returns how to stop listening. */
  onBreak(listener: (cause: unknown) => void): () => void {
    this.#onBreak.add(listener);
    return () => this.#onBreak.delete(listener);
  }

  /** Waits until the GET stream is open. False when it was refused, or is not open within `timeoutMs`. */
  async whenOpen(timeoutMs: number): Promise<boolean> {
    if (this.#state === "open") return true;
    if (this.#state === "refused") return false;
    return new Promise((resolve) => {
      const settle = (open: boolean): void => {
        clearTimeout(timer);
        this.#onChange.delete(look);
        resolve(open);
      };
      const look = (): void => {
        if (this.#state === "open") settle(true);
        if (this.#state === "refused") settle(false);
      };
      const timer = setTimeout(() => settle(false), timeoutMs);
      this.#onChange.add(look);
    });
  }

  async #openStandaloneStream(url: string | URL, init: RequestInit | undefined): Promise<Response> {
    this.#become("opening");
    let response: Response;
    try {
      response = await fetch(url, init);
    } catch (error) {
      this.#become("ended");
      throw error;
    }
    if (!response.ok || response.body === null) {
      this.#become("refused");
      return response;
    }
    this.#become("open");
    const limited = limitEvents(response.body, this.options.maxMessageBytes, () => undefined);
    const body = watchEnd(limited, (cause) => {
      this.#become("ended");
      if (init?.signal?.aborted) return;
      for (const listener of this.#onBreak) listener(cause);
    });
    return new Response(body, { status: response.status, headers: response.headers });
  }

  #limited(response: Response, asked: RequestInit["body"]): Response {
    const { maxMessageBytes } = this.options;
    const type = response.headers.get("content-type")?.toLowerCase() ?? "";
    if (response.body === null) return response;
    if (type.startsWith("application/json")) return withBody(response, limitBytes(response.body, maxMessageBytes));
    if (!type.startsWith("text/event-stream")) return response;
    const refusal = (): Record<string, unknown> | undefined => {
      const id = answeredBy(asked);
      if (id === undefined) return undefined;
      this.#cutOff.add(id);
      return { jsonrpc: "2.0", id, error: { code: INTERNAL_ERROR, message: tooLarge(maxMessageBytes).message } };
    };
    return withBody(response, limitEvents(response.body, maxMessageBytes, refusal));
  }

  #become(state: StandaloneStreamState): void {
    this.#state = state;
    for (const look of [...this.#onChange]) look();
  }
}

/** Passes a stream on and calls back once when it ends, with the reason if it broke. */
function watchEnd(body: ReadableStream<Uint8Array>, onEnd: (cause: unknown) => void): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (!done) return controller.enqueue(value);
        onEnd(undefined);
        controller.close();
      } catch (error) {
        onEnd(error);
        controller.error(error);
      }
    },
    async cancel(reason) {
      await reader.cancel(reason);
    },
  });
}

function withBody(response: Response, body: ReadableStream<Uint8Array>): Response {
  const { status, statusText, headers } = response;
  return new Response(body, { status, statusText, headers });
}

function limitBytes(body: ReadableStream<Uint8Array>, maxBytes: number): ReadableStream<Uint8Array> {
  let seen = 0;
  return body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        seen += chunk.byteLength;
        if (seen <= maxBytes) controller.enqueue(chunk);
        else controller.error(tooLarge(maxBytes));
      },
    }),
  );
}

function tooLarge(maxBytes: number): FencelineError {
  return connectorError("response_too_large", `an answer exceeds ${maxBytes} bytes (maxMessageBytes)`);
}

/** The request that one answer belongs to. A listen stream has none: what is too large on it is a notification. */
function answeredBy(body: RequestInit["body"]): RequestId | undefined {
  if (typeof body !== "string") return undefined;
  const { id, method } = JSON.parse(body) as { id?: RequestId; method?: string };
  return method === "subscriptions/listen" ? undefined : id;
}
