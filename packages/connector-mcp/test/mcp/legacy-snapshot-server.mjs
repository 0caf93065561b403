// A server of the line before (SDK 1.x) on standard input and output, whose list binds a snapshot id to each of its two pages, where
// the client declared the extension as well.
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { ListResourcesRequestSchema, ReadResourceRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const EXTENSION = "io.fenceline/snapshot-id";
const server = new Server(
  { name: "snapshots", version: "1.0.0" },
  { capabilities: { resources: {}, extensions: { [EXTENSION]: {} } } },
);
server.setRequestHandler(ListResourcesRequestSchema, ({ params }) => {
  const isNegotiated = server.getClientCapabilities()?.extensions?.[EXTENSION] !== undefined;
  const _meta = isNegotiated ? { [EXTENSION]: "state 1" } : {};
  if (params?.cursor === "2") return { resources: [{ uri: "note://b", name: "b" }], _meta };
  return { resources: [{ uri: "note://a", name: "a" }], nextCursor: "2", _meta };
});
server.setRequestHandler(ReadResourceRequestSchema, ({ params: { uri } }) => ({
  contents: [{ uri, mimeType: "text/plain", text: "a note" }],
}));
await server.connect(new StdioServerTransport());
