import {
  createMcpHandler,
  type McpHttpHandler,
  McpServer,
  ResourceNotFoundError,
  type ServerCapabilities,
} from "@modelcontextprotocol/server";
import { answerWeb, type HttpServer, serveHttp } from "./http-server.js";

export interface ModernServer extends HttpServer {
  /** Text by URI; change it at will. */
  resources: Map<string, string>;
  reads: Map<string, number>;
  /** URIs whose reads are never answered. */
  hanging: Set<string>;
  toolCalls: string[];
  /** The URIs that each listen request asked for, in order. */
  listens: string[][];
  notify: McpHttpHandler["notify"];
  /** Answers every further request with this status. */
  refuseWith(status: number): void;
  /** Ends every stream with the server's own goodbye. */
  endStreams(): Promise<void>;
}

/** The SDK's own server of the 2026-07-28 revision, over HTTP. */
export async function startModernServer(
  options: { capabilities?: ServerCapabilities; ttlMs?: number; legacy?: "stateless" | "reject" } = {},
): Promise<ModernServer> {
  const resources = new Map([
    ["note://a", "first"],
    ["note://b", "second"],
    ["note://c", "third"],
  ]);
  const reads = new Map<string, number>();
  const hanging = new Set<string>();
  const toolCalls: string[] = [];
  const listens: string[][] = [];
  let status: number | undefined;
  const capabilities = options.capabilities ?? { resources: { subscribe: true, listChanged: true } };

  const handler = createMcpHandler(
    () => {
      const mcp = new McpServer({ name: "modern", version: "2.0.0" }, { capabilities });
      if (capabilities.tools) {
        mcp.registerTool("wake", { description: "counts" }, () => {
          toolCalls.push("wake");
          return { content: [{ type: "text", text: "awake" }] };
        });
      }
      if (!capabilities.resources) return mcp;
      mcp.server.setRequestHandler("resources/list", () => ({
        resources: [...resources.keys()].map((uri) => ({ uri, name: uri })),
      }));
      mcp.server.setRequestHandler("resources/read", ({ params: { uri } }) => {
        const text = resources.get(uri);
        if (text === undefined) throw new ResourceNotFoundError(uri);
        reads.set(uri, (reads.get(uri) ?? 0) + 1);
        if (hanging.has(uri)) return new Promise<never>(() => {});
        const contents = [{ uri, mimeType: "text/plain", text }];
        return options.ttlMs === undefined
          ? { contents }
          : { contents, ttlMs: options.ttlMs, cacheScope: "private" as const };
      });
      return mcp;
    },
    { legacy: options.legacy ?? "reject" },
  );
  const http = await serveHttp(async (request, response) => {
    if (status !== undefined) return void response.writeHead(status).end("refused for Bearer secret-token-1");
    await answerWeb(
      async (webRequest) => {
        if (webRequest.headers.get("mcp-method") === "subscriptions/listen") listens.push(await askedFor(webRequest));
        return handler.fetch(webRequest);
      },
      request,
      response,
    );
  });
  return {
    ...http,
    resources,
    reads,
    hanging,
    toolCalls,
    listens,
    notify: handler.notify,
    refuseWith(next) {
      status = next;
    },
    endStreams: () => handler.close(),
    async close() {
      await handler.close();
      await http.close();
    },
  };
}

async function askedFor(request: Request): Promise<string[]> {
  const { params } = (await request.clone().json()) as {
    params: { notifications: { resourceSubscriptions?: string[] } };
  };
  return params.notifications.resourceSubscriptions ?? [];
}
