import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream as NodeWebStream } from "node:stream/web";

/** Answers one request; the shape of `createMcpHandler(…).fetch`. */
export type WebHandler = (request: Request) => Promise<Response>;

/** Called with the node response of every event stream that opens. */
export type StreamObserver = (response: ServerResponse) => void;

/** Serves a web-standard handler with `node:http`. */
export function serveWeb(handle: WebHandler, onStream: StreamObserver): Server {
  return createServer((request, response) => {
    answer(handle, onStream, request, response).catch((error: unknown) => {
      if (response.headersSent) response.destroy();
      else response.writeHead(500, { "content-type": "text/plain" }).end(String(error));
    });
  });
}

async function answer(
  handle: WebHandler,
  onStream: StreamObserver,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const gone = new AbortController();
  response.once("close", () => gone.abort());
  const reply = await handle(webRequest(request, gone.signal));
  const headers = Object.fromEntries(reply.headers);
  response.writeHead(reply.status, headers);
  if (reply.body === null) return void response.end();
  if (headers["content-type"]?.startsWith("text/event-stream")) onStream(response);
  response.flushHeaders();
  // A client that hangs up ends the pipeline with an error; that is how every stream ends here.
  await pipeline(Readable.fromWeb(reply.body as NodeWebStream), response).catch(() => {});
}

function webRequest(request: IncomingMessage, signal: AbortSignal): Request {
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers)) {
    for (const item of Array.isArray(value) ? value : [value]) if (item !== undefined) headers.append(name, item);
  }
  const method = request.method ?? "GET";
  const url = `http://${request.headers.host ?? "127.0.0.1"}${request.url ?? "/"}`;
  if (method === "GET" || method === "HEAD") return new Request(url, { method, headers, signal });
  const body = Readable.toWeb(request) as ReadableStream<Uint8Array>;
  return new Request(url, { method, headers, signal, body, duplex: "half" });
}
