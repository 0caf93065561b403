import { randomUUID } from "node:crypto";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import {
  ErrorCode,
  ListResourcesRequestSchema,
  McpError,
  ReadResourceRequestSchema,
  SubscribeRequestSchema,
  UnsubscribeRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { bodyOf, type HttpServer, serveHttp } from "./http-server.js";

export interface LegacyServer extends HttpServer {
  /** Text by URI; change it at will. */
  resources: Map<string, string>;
  subscribed: Set<string>;
  sessions: ReadonlyMap<string, unknown>;
  sendUpdated(uri: string): Promise<void>;
  sendListChanged(): Promise<void>;
  /** Forgets every session, as a restart would; a request of one is answered with this from then on. Default: 404, plain. */
  forgetSessions(answer?: UnknownSessionAnswer): void;
  /** Answers every further request for the notification stream with this status. */
  refuseStreams(status: number): void;
  /** Answers every read with this error, inside this HTTP status. Default: 200. */
  refuseReads(error: ReadError, status?: number): void;
  /** Methods of the requests that came, in order. */
  asked: readonly string[];
  /** Answers every unsubscribe with an internal error. */
  refuseUnsubscribe(): void;
  /** Refuses to subscribe this URI, beside `note://forbidden`; `undefined`: no other. */
  refuseSubscribe(uri: string | undefined): void;
  /** Answers the next requests for the notification stream with these statuses, one after the other. */
  refuseNextStreams(...statuses: number[]): void;
}

/** How a server answers a session that it does not know; `ID` in the body stands for the id of the request. */
export interface UnknownSessionAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}

export interface ReadError {
  readonly code: number;
  readonly message: string;
}

const NOT_FOUND: UnknownSessionAnswer = { status: 404, contentType: "text/plain", body: "unknown session" };

/** The SDK's server of the line before (1.x) over HTTP, with sessions or without. */
export async function startLegacyServer(options: { sessions: boolean } = { sessions: true }): Promise<LegacyServer> {
  const sessions = new Map<string, { server: Server; transport: StreamableHTTPServerTransport }>();
  const subscribed = new Set<string>();
  const resources = new Map([["note://a", "first"]]);
  const streamRefusals: number[] = [];
  let unsubscribeFails = false;
  let refused: string | undefined;
  let unknownSession = NOT_FOUND;
  let readError: ReadError | undefined;
  let readStatus = 200;
  const asked: string[] = [];
  let streamStatus: number | undefined;

  function newServer(): Server {
    const server = new Server(
      { name: "legacy", version: "1.0.0" },
      { capabilities: { resources: { subscribe: true, listChanged: true } } },
    );
    server.setRequestHandler(ListResourcesRequestSchema, () => ({
      resources: [...resources.keys()].map((uri) => ({ uri, name: uri })),
    }));
    server.setRequestHandler(ReadResourceRequestSchema, ({ params: { uri } }) => {
      if (readError) throw new McpError(readError.code, readError.message);
      const text = resources.get(uri);
      if (text === undefined) throw new McpError(ErrorCode.InvalidParams, "no such resource");
      return { contents: [{ uri, mimeType: "text/plain", text }] };
    });
    server.setRequestHandler(SubscribeRequestSchema, ({ params: { uri } }) => {
      if (uri === "note://forbidden" || uri === refused) throw new McpError(ErrorCode.InvalidParams, "not this one");
      subscribed.add(uri);
      // Some servers take a subscription in and never answer.
      return uri.startsWith("note://silent/") ? new Promise<never>(() => {}) : {};
    });
    server.setRequestHandler(UnsubscribeRequestSchema, ({ params: { uri } }) => {
      if (unsubscribeFails) throw new McpError(ErrorCode.InternalError, "no");
      subscribed.delete(uri);
      return {};
    });
    return server;
  }

  async function openSession(): Promise<StreamableHTTPServerTransport> {
    const server = newServer();
    const transport = options.sessions
      ? new StreamableHTTPServerTransport({
          sessionIdGenerator: randomUUID,
          onsessioninitialized: (id) => void sessions.set(id, { server, transport }),
          onsessionclosed: (id) => void sessions.delete(id),
        })
      : new StreamableHTTPServerTransport({});
    await server.connect(transport as Parameters<Server["connect"]>[0]);
    return transport;
  }

  const http = await serveHttp(async (request, response) => {
    const streamRefusal = request.method === "GET" ? (streamRefusals.shift() ?? streamStatus) : undefined;
    if (streamRefusal !== undefined) return void response.writeHead(streamRefusal).end();
    const id = request.headers["mcp-session-id"];
    const known = typeof id === "string" ? sessions.get(id)?.transport : undefined;
    const body =
      request.method === "POST" ? (JSON.parse(await bodyOf(request)) as { id?: unknown; method: string }) : undefined;
    if (body) asked.push(body.method);
    if (typeof id === "string" && !known) {
      const { status, contentType, body: text } = unknownSession;
      response.writeHead(status, { "content-type": contentType });
      return void response.end(text.replace("ID", JSON.stringify(body?.id ?? null)));
    }
    if (readStatus !== 200 && body?.method === "resources/read") {
      response.writeHead(readStatus, { "content-type": "application/json" });
      return void response.end(JSON.stringify({ jsonrpc: "2.0", id: body.id, error: readError }));
    }
    const transport = known ?? (await openSession());
    await transport.handleRequest(request, response, body);
  });
  const each = async (send: (server: Server) => Promise<void>): Promise<void> => {
    await Promise.all([...sessions.values()].map(({ server }) => send(server)));
  };
  return {
    ...http,
    resources,
    asked,
    subscribed,
    sessions,
    sendUpdated: (uri) => each((server) => server.sendResourceUpdated({ uri })),
    sendListChanged: () => each((server) => server.sendResourceListChanged()),
    forgetSessions(answer = NOT_FOUND) {
      unknownSession = answer;
      sessions.clear();
    },
    refuseStreams(status) {
      streamStatus = status;
    },
    refuseReads(error, status = 200) {
      readError = error;
      readStatus = status;
    },
    refuseUnsubscribe() {
      unsubscribeFails = true;
    },
    refuseSubscribe(uri) {
      refused = uri;
    },
    refuseNextStreams: (...statuses) => void streamRefusals.push(...statuses),
  };
}
