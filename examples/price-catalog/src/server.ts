import assert from "node:assert/strict";
import { realpathSync } from "node:fs";
import type { ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import {
  createMcpHandler,
  McpServer,
  ProtocolError,
  ProtocolErrorCode,
  ResourceNotFoundError,
} from "@modelcontextprotocol/server";
import { cardOf, firstPlans, type Plan, uriOf } from "./plans.js";
import { obeyStandardInput } from "./server-commands.js";
import { serveWeb } from "./server-http.js";

const PAGE_SIZE = 10;
const LISTEN_METHOD = "subscriptions/listen";

/** A running catalogue: an MCP server of the 2026-07-28 revision, and the levers with which a demo disturbs it. */
export interface PriceCatalog {
  /** The MCP endpoint. */
  readonly url: string;
  /** The bearer token that every request needs. */
  readonly token: string;
  /** All resource URIs, in the order of the list. */
  readonly uris: readonly string[];
  /**
   * Changes what a plan's card says.
   *
   * @param plan path of the plan, for instance `basic` or `basic/annual`
   * @param options `notify: false` leaves out the `updated` notification, as servers do that lose events
   */
  setPrice(plan: string, price: number, options?: { notify?: boolean }): void;
  /** Breaks every open stream as a network would, and refuses new ones until {@link PriceCatalog.restoreStreams}. Reads go on. */
  cutStreams(): void;
  restoreStreams(): void;
  /** How many streams are open now. */
  readonly openStreams: number;
  /** How often `resources/read` was answered for this URI. */
  reads(uri: string): number;
  close(): Promise<void>;
}

/** Starts the catalogue on the loopback interface. */
export async function startPriceCatalog(options: { port?: number; token: string }): Promise<PriceCatalog> {
  const plans = new Map(firstPlans().map((plan) => [uriOf(plan), plan]));
  const reads = new Map<string, number>();
  const streams = new Set<ServerResponse>();
  let cut = false;

  const mcp = createMcpHandler(() => catalogServer(plans, (uri) => reads.set(uri, (reads.get(uri) ?? 0) + 1)), {
    legacy: "reject",
  });
  const http = serveWeb(
    async (request) => {
      if (request.headers.get("authorization") !== `Bearer ${options.token}`) return unauthorized();
      if (cut && request.headers.get("mcp-method") === LISTEN_METHOD) return new Response(null, { status: 503 });
      return mcp.fetch(request);
    },
    (stream) => {
      streams.add(stream);
      stream.once("close", () => streams.delete(stream));
    },
  );
  await new Promise<void>((resolve, reject) => {
    http.once("error", reject);
    http.listen(options.port ?? 0, "127.0.0.1", resolve);
  });

  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
    token: options.token,
    uris: [...plans.keys()],
    setPrice(path, price, { notify = true } = {}) {
      const uri = uriOf({ path });
      const plan = plans.get(uri);
      assert(plan, `the catalogue has no plan ${path}`);
      plans.set(uri, { ...plan, price });
      if (notify) mcp.notify.resourceUpdated(uri);
    },
    cutStreams() {
      cut = true;
      for (const stream of streams) stream.destroy();
    },
    restoreStreams() {
      cut = false;
    },
    get openStreams() {
      return streams.size;
    },
    reads: (uri) => reads.get(uri) ?? 0,
    async close() {
      await mcp.close();
      http.closeAllConnections();
      await new Promise((resolve) => http.close(resolve));
    },
  };
}

/** One server instance; the handler asks for a new one per request. */
function catalogServer(plans: ReadonlyMap<string, Plan>, onRead: (uri: string) => void): McpServer {
  const mcp = new McpServer(
    { name: "price-catalog", version: "1.0.0" },
    { capabilities: { resources: { subscribe: true, listChanged: true } } },
  );
  // The request handlers below `McpServer` are set directly: its own registry lists everything on one page.
  mcp.server.setRequestHandler("resources/list", ({ params }) => {
    const start = startOfPage(params?.cursor, plans.size);
    const end = start + PAGE_SIZE;
    const resources = [...plans.values()].slice(start, end).map(listEntry);
    return { resources, ...(end < plans.size && { nextCursor: end.toString(36) }) };
  });
  mcp.server.setRequestHandler("resources/templates/list", () => ({ resourceTemplates: [] }));
  mcp.server.setRequestHandler("resources/read", ({ params: { uri } }) => {
    const plan = plans.get(uri);
    if (!plan) throw new ResourceNotFoundError(uri);
    onRead(uri);
    return { contents: [{ uri, mimeType: "text/markdown", text: cardOf(plan) }] };
  });
  return mcp;
}

function startOfPage(cursor: string | undefined, size: number): number {
  if (cursor === undefined) return 0;
  const start = Number.parseInt(cursor, 36);
  if (start > 0 && start < size && start % PAGE_SIZE === 0) return start;
  throw new ProtocolError(ProtocolErrorCode.InvalidParams, "unknown cursor");
}

function listEntry(plan: Plan) {
  return { uri: uriOf(plan), name: `${plan.name} plan`, mimeType: "text/markdown" };
}

function unauthorized(): Response {
  return new Response(null, { status: 401, headers: { "www-authenticate": "Bearer" } });
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(realpathSync(process.argv[1])).href) {
  const { values } = parseArgs({ options: { port: { type: "string", default: "3000" } } });
  const token = process.env["CATALOG_TOKEN"] ?? "catalog-demo-token";
  await obeyStandardInput(await startPriceCatalog({ port: Number(values.port), token }));
}
