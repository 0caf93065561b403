import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream as NodeWebStream } from "node:stream/web";

/** A node server on an ephemeral port that remembers its open event streams. */
export interface HttpServer {
  url: string;
  streams: ReadonlySet<ServerResponse>;
  /** `METHOD mcp-method` of every request, and `opened`/`closed` of every stream, in order. */
  log: string[];
  /** Breaks all open streams, as a network would. */
  cut(): void;
  close(): Promise<void>;
}

export async function serveHttp(
  answer: (request: IncomingMessage, response: ServerResponse) => Promise<void>,
): Promise<HttpServer> {
  const streams = new Set<ServerResponse>();
  const log: string[] = [];
  const server = createServer((request, response) => {
    log.push(`${request.method} ${request.headers["mcp-method"] ?? ""}`.trim());
    const writeHead = response.writeHead.bind(response) as (...args: unknown[]) => ServerResponse;
    response.writeHead = ((...args: unknown[]) => {
      if (JSON.stringify(args).includes("text/event-stream")) {
        streams.add(response);
        log.push("opened");
        response.once("close", () => {
          streams.delete(response);
          log.push("closed");
        });
      }
      return writeHead(...args);
    }) as typeof response.writeHead;
    answer(request, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    streams,
    log,
    cut() {
      for (const stream of streams) stream.destroy();
    },
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Serves a web-standard handler on a node request. */
export async function answerWeb(
  handle: (request: Request) => Promise<Response>,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const gone = new AbortController();
  response.once("close", () => gone.abort());
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers)) headers.set(name, String(value));
  const hasBody = request.method === "POST";
  const reply = await handle(
    new Request(`http://127.0.0.1${request.url ?? "/"}`, {
      method: request.method ?? "GET",
      headers,
      signal: gone.signal,
      ...(hasBody && { body: await bodyOf(request) }),
    }),
  );
  response.writeHead(reply.status, Object.fromEntries(reply.headers));
  response.flushHeaders();
  if (reply.body === null) return void response.end();
  await pipeline(Readable.fromWeb(reply.body as NodeWebStream), response).catch(() => {});
}

export async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString("utf8");
}
