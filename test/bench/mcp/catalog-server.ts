/**
 * The server of the benchmarks, a process of its own: the SDK's server of the 2026-07-28 revision over HTTP, with as many
 * resources as it is told, in pages of a thousand. Started by `startCatalogServer`, with which it speaks over IPC.
 */
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream as WebStream } from "node:stream/web";
import { createMcpHandler, McpServer } from "@modelcontextprotocol/server";
import type { FromServer, ToServer } from "./server-process.js";

const PAGE = 1_000;
/** Announcements of a round are sent in ticks of this length. */
const TICK_MS = 10;

const resources = Number(process.argv[2]);
const uriOf = (index: number) => `note://catalog/${String(index).padStart(7, "0")}`;
/** When each was changed last, in milliseconds since 1970 with fractions; what its text says. */
const changedAt = new Map<string, number>();
let reads = 0;
let everyReadChanges = false;

const handler = createMcpHandler(
  () => {
    const mcp = new McpServer(
      { name: "catalog", version: "1.0.0" },
      { capabilities: { resources: { subscribe: true, listChanged: true } } },
    );
    mcp.server.setRequestHandler("resources/list", ({ params }) => {
      const start = Number(params?.cursor ?? 0);
      const end = Math.min(start + PAGE, resources);
      const page = Array.from({ length: end - start }, (_, index) => ({
        uri: uriOf(start + index),
        name: `note ${start + index}`,
        mimeType: "text/plain",
      }));
      return { resources: page, ...(end < resources && { nextCursor: String(end) }) };
    });
    mcp.server.setRequestHandler("resources/read", ({ params: { uri } }) => {
      reads += 1;
      const version = everyReadChanges ? reads : (changedAt.get(uri) ?? 0);
      return { contents: [{ uri, mimeType: "text/plain", text: `${version} ${"says the note. ".repeat(20)}` }] };
    });
    return mcp;
  },
  { legacy: "reject" },
);

const http = createServer(async (request, response) => {
  const gone = new AbortController();
  response.once("close", () => gone.abort());
  const headers = new Headers(Object.entries(request.headers).map(([name, value]) => [name, String(value)]));
  const body = request.method === "POST" ? { body: await bodyOf(request) } : {};
  const method = request.method ?? "GET";
  const reply = await handler.fetch(
    new Request("http://127.0.0.1/mcp", { method, headers, signal: gone.signal, ...body }),
  );
  response.writeHead(reply.status, Object.fromEntries(reply.headers));
  response.flushHeaders();
  if (reply.body === null) return void response.end();
  await pipeline(Readable.fromWeb(reply.body as WebStream), response).catch(() => undefined);
});

async function bodyOf(request: IncomingMessage): Promise<Buffer<ArrayBuffer>> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks) as Buffer<ArrayBuffer>;
}

/** Changes one resource after the other, so many a second, and announces each change so often, over so long. */
async function change({ changes, perSecond, times, overMs }: Extract<ToServer, { do: "change" }>): Promise<void> {
  const started = performance.now();
  const due: { at: number; uri: string }[] = [];
  for (let done = 0; done < changes || due.length > 0; ) {
    const now = performance.now() - started;
    for (; done < changes && (done * 1_000) / perSecond <= now; done++) {
      const uri = uriOf(done % resources);
      changedAt.set(uri, performance.timeOrigin + performance.now());
      for (let time = 0; time < times; time++) due.push({ at: now + (time * overMs) / times, uri });
    }
    const later = due.filter(({ at }) => at > now);
    for (const { at, uri } of due) if (at <= now) handler.notify.resourceUpdated(uri);
    due.splice(0, due.length, ...later);
    await new Promise((resolve) => setTimeout(resolve, TICK_MS));
  }
}

const tell = (message: FromServer) => process.send?.(message);

process.on("message", async (message: ToServer) => {
  if (message.do === "change") await change(message);
  if (message.do === "change_with_every_read") everyReadChanges = true;
  tell({ done: message.do });
});
process.once("disconnect", () => process.exit());

http.listen(0, "127.0.0.1", () => tell({ url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp` }));
