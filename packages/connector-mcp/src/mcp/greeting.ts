import type { Client } from "@modelcontextprotocol/client";
import { SNAPSHOT_ID_EXTENSION } from "./snapshot-id.js";
import type { SourceConnection } from "./source-connection.js";

/** What the handshake told. */
export type Greeting = Pick<SourceConnection, "era" | "protocolVersion" | "server" | "capabilities">;

/** Before there was one. */
export const NO_GREETING: Greeting = {
  era: "legacy",
  protocolVersion: "",
  server: undefined,
  capabilities: { resources: false, subscribe: false, listChanged: false, snapshotId: false },
};

/** Of a client that has just connected. */
export function greetingOf(client: Client): Greeting {
  const server = client.getServerVersion();
  const { resources, extensions } = client.getServerCapabilities() ?? {};
  return {
    era: client.getProtocolEra() ?? "legacy",
    protocolVersion: client.getNegotiatedProtocolVersion() ?? "",
    server: server && { name: server.name, version: server.version },
    capabilities: {
      resources: resources !== undefined,
      subscribe: resources?.subscribe === true,
      listChanged: resources?.listChanged === true,
      snapshotId: resources !== undefined && extensions?.[SNAPSHOT_ID_EXTENSION] !== undefined,
    },
  };
}
