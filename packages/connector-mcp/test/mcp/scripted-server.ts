import type { IncomingHttpHeaders, ServerResponse } from "node:http";
import { bodyOf, type HttpServer, serveHttp } from "./http-server.js";

/** What the script answers to one request: a result, a JSON-RPC error, or a bare HTTP answer. */
export type Reply =
  | { result: Record<string, unknown> }
  | { error: { code: number; message: string; data?: unknown } }
  | { status: number; body?: string; headers?: Record<string, string> }
  /** Never answers. */
  | "silence";

export type Params = Record<string, unknown>;

export interface ScriptedServer extends HttpServer {
  requests: { method: string; params: Params; id: unknown }[];
  /** Sends a message on every open listen stream. */
  send(message: Record<string, unknown>): void;
}

/** Answers of the modern era, written by hand, for what no SDK will send. */
export async function startScriptedServer(script: {
  capabilities?: Record<string, unknown>;
  reply?: (method: string, params: Params, asked: number, headers: IncomingHttpHeaders) => Reply | undefined;
  /** Instead of what `server/discover` is answered with. */
  discover?: () => Reply | undefined;
  /**
   * How a listen request is answered, counted from 1: refused; or acknowledged, and then ended in good order, at once or later.
   * Default: it stays open.
   */
  listen?: (asked: Params, count: number) => { status: number } | "end" | { endAfterMs: number } | undefined;
  /** The first message on a listen stream, or "silence". Default: everything asked for is acknowledged. */
  acknowledge?: (filter: Params) => unknown;
  /** Gives events ids, so that the client takes the stream for one it may resume. */
  eventIds?: boolean;
}): Promise<ScriptedServer> {
  const requests: ScriptedServer["requests"] = [];
  let eventId = 0;
  const write = (response: ServerResponse, message: Record<string, unknown>): void => {
    eventId += 1;
    const id = script.eventIds ? `id: ${eventId}\n` : "";
    response.write(`${id}event: message\ndata: ${JSON.stringify({ jsonrpc: "2.0", ...message })}\n\n`);
  };
  const http = await serveHttp(async (request, response) => {
    if (request.method !== "POST")
      return void response.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
    const {
      id,
      method,
      params = {},
    } = JSON.parse(await bodyOf(request)) as { id?: unknown; method: string; params?: Params };
    requests.push({ method, params, id });
    if (id === undefined) return void response.writeHead(202).end();
    if (method === "subscriptions/listen") {
      const asked = params["notifications"] as Params;
      const listens = requests.filter((earlier) => earlier.method === method).length;
      const way = script.listen?.(asked, listens);
      if (typeof way === "object" && "status" in way) return void response.writeHead(way.status).end();
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.flushHeaders();
      const honored = script.acknowledge ? script.acknowledge(asked) : asked;
      if (honored !== "silence") write(response, acknowledgement(id, honored));
      const end = (): void => {
        write(response, { id, result: { resultType: "complete" } });
        response.end();
      };
      if (way === "end") end();
      else if (way) setTimeout(end, way.endAfterMs);
      return;
    }
    const asked = requests.filter((earlier) => earlier.method === method).length;
    const reply =
      method === "server/discover"
        ? (script.discover?.() ?? discovery(script.capabilities))
        : script.reply?.(method, params, asked, request.headers);
    if (reply === "silence") return;
    if (reply && "status" in reply) return void response.writeHead(reply.status, reply.headers).end(reply.body);
    const answer = reply ?? { error: { code: -32601, message: "not scripted" } };
    const complete =
      "result" in answer
        ? { result: { resultType: "complete", ttlMs: 0, cacheScope: "private", ...answer.result } }
        : answer;
    response
      .writeHead(200, { "content-type": "application/json" })
      .end(JSON.stringify({ jsonrpc: "2.0", id, ...complete }));
  });
  return {
    ...http,
    requests,
    send(message) {
      for (const stream of http.streams) write(stream, message);
    },
  };
}

function acknowledgement(id: unknown, notifications: unknown): Record<string, unknown> {
  const _meta = { "io.modelcontextprotocol/subscriptionId": id };
  return { method: "notifications/subscriptions/acknowledged", params: { _meta, notifications } };
}

function discovery(
  capabilities: Record<string, unknown> = { resources: { subscribe: true, listChanged: true } },
): Reply {
  return {
    result: {
      supportedVersions: ["2026-07-28"],
      capabilities,
      _meta: { "io.modelcontextprotocol/serverInfo": { name: "scripted", version: "0.0.1" } },
    },
  };
}

/** An `updated` notification as it would come on a listen stream. */
export function updated(uri: string, subscriptionId: string | undefined): Record<string, unknown> {
  return { method: "notifications/resources/updated", params: { uri, _meta: metaOf(subscriptionId) } };
}

/** A `list_changed` as it would come on a listen stream. */
export function listChanged(subscriptionId: string | undefined): Record<string, unknown> {
  return { method: "notifications/resources/list_changed", params: { _meta: metaOf(subscriptionId) } };
}

function metaOf(subscriptionId: string | undefined): Record<string, unknown> {
  return subscriptionId === undefined ? {} : { "io.modelcontextprotocol/subscriptionId": subscriptionId };
}
