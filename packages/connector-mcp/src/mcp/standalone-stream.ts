import type { FencelineError } from "@fenceline/ledger";
import { type ConnectorErrorCode, connectorError } from "../errors.js";
import { limitEvents } from "./event-limit.js";
import type { Fetch } from "./http-watch.js";
import { classifyFailure, describeError, failureCode } from "./wire-failure.js";

/** Answers the client's request for a stream as one that will never come. */
export const noStream = (): Response => new Response(null, { status: 405 });

const CODES: Readonly<Record<number, ConnectorErrorCode>> = {
  401: "source_unauthorized",
  403: "source_forbidden",
  429: "source_throttled",
  502: "source_unreachable",
  503: "source_unreachable",
  504: "source_unreachable",
};

export interface StandaloneStreamOptions {
  /** Largest event, in bytes; a larger one is dropped. */
  readonly maxEventBytes: number;
  /** Has the MCP client ask for the stream. */
  request(): Promise<void>;
}

/**
 * The one GET stream on which a server of the older era sends its notifications.
 *
 * Invariants:
 * 1. Every end is told, also the clean one: what the server sends until the next is lost (U4).
 * 2. Only 405 says that there is none: any other refusal may be of the moment.
 * 3. One at a time: a server answers a second one with an error, or hands it the notifications of the first. So once it has
 *    ended, it is whoever needs it who has it asked for, and not the client by itself.
 * 4. It is never resumed: event ids are left out, for a server that forgot them would leave the client open and deaf. What was
 *    missed is read again.
 */
export class StandaloneStream {
  #state: "absent" | "opening" | "open" | "refused" = "absent";
  #failure: FencelineError<ConnectorErrorCode> | undefined;
  #hasEnded = false;
  #asking: Promise<void> | undefined;
  #quietAfterMs: number | undefined;
  #quiet: NodeJS.Timeout | undefined;
  /** Ends the open stream from this side. */
  #end: () => void = () => undefined;
  readonly #onBreak = new Set<(cause: unknown) => void>();
  readonly #onChange = new Set<() => void>();

  constructor(private readonly options: StandaloneStreamOptions) {}

  /** Calls back at each end that this side did not ask for; returns how to stop listening. */
  onBreak(listener: (cause: unknown) => void): () => void {
    this.#onBreak.add(listener);
    return () => this.#onBreak.delete(listener);
  }

  /** A stream on which nothing at all comes for this long counts as broken: not every lost connection is told. */
  breakWhenQuiet(quietAfterMs: number): void {
    this.#quietAfterMs = quietAfterMs;
    if (this.#state === "open") this.#heard();
  }

  /**
   * Waits until the stream is open, and has it asked for where nobody does. `refused`: there is none.
   *
   * @throws {FencelineError} the code that tells why it is not open; `request_timeout` after `timeoutMs`
   */
  async open(timeoutMs: number): Promise<"open" | "refused"> {
    if (this.#state === "absent") this.#ask();
    let timer: NodeJS.Timeout | undefined;
    const deadline = performance.now() + timeoutMs;
    while (this.#state !== "open" && this.#state !== "refused") {
      if (this.#state === "absent" && !this.#asking) throw this.#failure ?? notOpen("source_lost", "it ended");
      if (performance.now() >= deadline) throw notOpen("request_timeout", "the server does not answer");
      await new Promise<void>((resolve) => {
        timer = setTimeout(resolve, deadline - performance.now());
        this.#onChange.add(resolve);
      });
      clearTimeout(timer);
    }
    return this.#state;
  }

  /** What the client's request for the stream is answered with. */
  async answer(fetch: Fetch, url: string | URL, init: RequestInit | undefined): Promise<Response> {
    const isUnasked = this.#hasEnded && !this.#asking;
    if (this.#state === "opening" || this.#state === "open" || isUnasked) return noStream();
    this.#become("opening");
    let response: Response;
    try {
      response = await fetch(url, init);
    } catch (error) {
      this.#failure = notOpen("source_unreachable", "nobody answers", error);
      this.#become("absent");
      throw error;
    }
    if (!response.ok || response.body === null) {
      this.#failure = notOpen(CODES[response.status] ?? "source_failed", `HTTP ${response.status}`);
      this.#become(response.status === 405 ? "refused" : "absent");
      return response;
    }
    this.#become("open");
    const { status, headers } = response;
    const limited = limitEvents(response.body, this.options.maxEventBytes, () => undefined);
    return new Response(withoutIds(this.#watched(limited, init?.signal)), { status, headers });
  }

  #ask(): void {
    this.#failure = undefined;
    this.#asking ??= this.options
      .request()
      .catch((error: unknown) => {
        // It may have failed before it was sent: a token could not be had.
        const kind = classifyFailure(error, { sessionBound: false });
        this.#failure ??= notOpen(failureCode(kind), describeError(error), error);
      })
      .finally(() => {
        this.#asking = undefined;
        this.#tell();
      });
  }

  #watched(body: ReadableStream<Uint8Array>, signal: AbortSignal | null | undefined): ReadableStream<Uint8Array> {
    const reader = body.getReader();
    let isOver = false;
    const over = (cause: unknown): void => {
      if (isOver) return;
      isOver = true;
      clearTimeout(this.#quiet);
      this.#failure = undefined;
      this.#hasEnded = true;
      this.#become("absent");
      if (signal?.aborted) return;
      for (const listener of this.#onBreak) listener(cause);
    };
    this.#heard();
    return new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.#end = () => {
          if (isOver) return;
          void reader.cancel().catch(() => undefined);
          over(notOpen("source_lost", `nothing came for ${this.#quietAfterMs} ms`));
          controller.close();
        };
      },
      pull: async (controller) => {
        try {
          const { done, value } = await reader.read();
          if (isOver) return;
          this.#heard();
          if (!done) return controller.enqueue(value);
          over(undefined);
          controller.close();
        } catch (error) {
          if (isOver) return;
          over(error);
          controller.error(error);
        }
      },
      cancel: (reason) => {
        over(reason);
        return reader.cancel(reason);
      },
    });
  }

  #heard(): void {
    clearTimeout(this.#quiet);
    if (this.#quietAfterMs === undefined) return;
    this.#quiet = setTimeout(() => this.#end(), this.#quietAfterMs);
    this.#quiet.unref();
  }

  #become(state: "absent" | "opening" | "open" | "refused"): void {
    this.#state = state;
    this.#tell();
  }

  #tell(): void {
    const waiting = [...this.#onChange];
    this.#onChange.clear();
    for (const look of waiting) look();
  }
}

function notOpen(code: ConnectorErrorCode, why: string, cause?: unknown): FencelineError<ConnectorErrorCode> {
  return connectorError(code, `the server's notification stream is not open: ${why}`, { cause });
}

/** Leaves the ids of events out, with which the client would resume the stream. */
function withoutIds(body: ReadableStream<Uint8Array>): ReadableStream<Uint8Array> {
  let begun = "";
  const lines = new TransformStream<string, string>({
    transform(text, controller) {
      const end = text.lastIndexOf("\n") + 1;
      if (end > 0) controller.enqueue((begun + text.slice(0, end)).replace(/(?<=^|\n)id(?::[^\n]*)?\n/g, ""));
      begun = end > 0 ? text.slice(end) : begun + text;
    },
  });
  return body
    .pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>)
    .pipeThrough(lines)
    .pipeThrough(new TextEncoderStream());
}
