import { randomUUID } from "node:crypto";
import { defineConfig, type FencelineConfig } from "@fenceline/connector-mcp";
import { assert } from "@fenceline/ledger";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { pino } from "pino";
import { type LedgerBench, withLedgerBench } from "../ledger/ledger-bench.js";
import type { Platform } from "../measure.js";
import { connectSource, ResourceChoice, SessionLease, type SourceContext, SourceCounts } from "./connector-parts.js";
import { type CatalogServer, startCatalogServer } from "./server-process.js";

const READER = "svc:rag";

export const silent = pino({ level: process.env["FENCELINE_TEST_LOG"] ?? "silent" }, pino.destination(2));

/** A ledger of its own, and servers whose processes end with the bench. */
export interface McpBench extends LedgerBench {
  startServer(resources: number): Promise<CatalogServer>;
  /** A plain client of the SDK, for the raw operations. */
  connectBare(server: CatalogServer): Promise<Client>;
  /** The connector's parts on the source of that server, as a worker holds them: session, connection, settings. */
  hold(server: CatalogServer): Promise<SourceContext>;
  /** Ends something with the bench, before what it was made from. */
  onClose(close: () => Promise<unknown>): void;
}

export function withMcpBench<Result>(platform: Platform, use: (bench: McpBench) => Promise<Result>): Promise<Result> {
  return withLedgerBench(platform, async (ledgerBench) => {
    const closers: (() => Promise<unknown>)[] = [];
    const onClose = (close: () => Promise<unknown>) => closers.unshift(close);
    try {
      return await use({
        ...ledgerBench,
        async startServer(resources) {
          const server = await startCatalogServer(resources);
          onClose(() => server.close());
          return server;
        },
        async connectBare({ url }) {
          const client = new Client({ name: "bare", version: "1.0.0" }, { versionNegotiation: { mode: "auto" } });
          await client.connect(new StreamableHTTPClientTransport(new URL(url)));
          onClose(() => client.close());
          return client;
        },
        onClose,
        hold: (server) => hold(ledgerBench, server, onClose),
      });
    } finally {
      for (const close of closers) await close();
    }
  });
}

/** One source at that address. */
export function configFor(
  { url }: CatalogServer,
  settings: FencelineConfig["settings"] | object = {},
): FencelineConfig {
  return defineConfig({
    queuePrefix: `bench-${randomUUID()}`,
    mcpServers: { [`catalog-${randomUUID().slice(0, 8)}`]: { url, reader: READER } },
    indexes: {},
    settings,
  });
}

async function hold(
  { ledger }: LedgerBench,
  server: CatalogServer,
  onClose: (close: () => Promise<unknown>) => void,
): Promise<SourceContext> {
  const { settings, mcpServers } = configFor(server);
  const source = Object.keys(mcpServers)[0] ?? "";
  await ledger.registerSource({ name: source });
  const taken = await SessionLease.take(ledger, { source, reader: READER, owner: "bench", leaseMs: 600_000 });
  assert(taken.outcome === "taken", "A new source has no other holder.");
  onClose(() => taken.lease.end());
  const connection = await connectSource({ url: server.url });
  onClose(() => connection.close());
  const { era, protocolVersion, capabilities } = connection;
  await ledger.recordCapabilities(taken.lease.session, { era, protocolVersion, ...capabilities });
  return {
    ledger,
    lease: taken.lease,
    connection,
    settings,
    choice: new ResourceChoice(),
    counts: new SourceCounts(source, READER),
    logger: silent,
    onProgress: () => undefined,
    signal: new AbortController().signal,
  };
}
