import type { FencelineError } from "@fenceline/ledger";
import type { JSONRPCMessage, RequestId } from "@modelcontextprotocol/client";
import { connectorError } from "../errors.js";
import { limitEvents } from "./event-limit.js";
import type { ServerPatience } from "./server-patience.js";
import { noStream, StandaloneStream } from "./standalone-stream.js";

const INTERNAL_ERROR = -32603;

/** The shape of `fetch` that the MCP client takes. */
export type Fetch = (url: string | URL, init?: RequestInit) => Promise<Response>;

/** What {@link HttpWatch} is told about the connection it belongs to. */
export interface HttpWatchOptions {
  /** Largest body, in bytes, of an answer; of an event stream, the largest event. */
  maxMessageBytes: number;
  /** What the server asked for, in this connection or an earlier one. */
  patience: ServerPatience;
  /** True once the modern era was negotiated, which has no GET stream. */
  isModern(): boolean;
  /** Has the MCP client ask for the GET stream of the older era. */
  requestStream(): Promise<void>;
}

/**
 * Sees what the MCP client does not report about its HTTP requests.
 *
 * Invariants:
 * 1. The GET stream of the older era is told from that of a single request, which the client resumes by its event id.
 * 2. On a modern connection no GET is ever sent: the client would resume a broken listen stream with one, and a lax server
 *    would leave that stream open and silent for ever. Refusing it makes the break visible.
 * 3. A single answer larger than `maxMessageBytes` is cut off instead of being held in memory, and fails its request alone.
 * 4. What a server says with 429 or `Retry-After` is kept, for those who are about to ask it again.
 */
export class HttpWatch {
  readonly patience: ServerPatience;
  readonly standalone: StandaloneStream;
  /** Requests whose answer came on an event stream and was cut off. */
  readonly #cutOff = new Set<RequestId>();

  constructor(private readonly options: HttpWatchOptions) {
    const { maxMessageBytes: maxEventBytes, requestStream: request } = options;
    this.patience = options.patience;
    this.standalone = new StandaloneStream({ maxEventBytes, request });
  }

  /** The `fetch` to hand to the transport. */
  readonly fetch: Fetch = async (url, init) => {
    if ((init?.method ?? "GET") !== "GET") {
      return this.#limited(await this.#noted(url, init), init?.body);
    }
    const headers = new Headers(init?.headers);
    // What is asked of an authorization server is no stream.
    if (!headers.get("accept")?.includes("text/event-stream")) return fetch(url, init);
    if (this.options.isModern()) return noStream();
    if (headers.has("last-event-id")) return this.#limited(await this.#noted(url, init), undefined);
    return this.standalone.answer((...request) => this.#noted(...request), url, init);
  };

  /** The answer of a request that was cut off says so, in a way that no server can. */
  received(message: JSONRPCMessage): JSONRPCMessage {
    if (!("error" in message) || message.id === undefined || !this.#cutOff.delete(message.id)) return message;
    return { ...message, error: { ...message.error, data: tooLarge(this.options.maxMessageBytes) } };
  }

  async #noted(url: string | URL, init: RequestInit | undefined): Promise<Response> {
    const response = await fetch(url, init);
    this.patience.note(response);
    return response;
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
