/**
 * The client that `@modelcontextprotocol/conformance` tests: the connector's own connection. Called with the server's URL;
 * what the scenario gives beside it comes in the environment.
 */
import { connectSource } from "../../packages/connector-mcp/dist/mcp/source-connection.js";

const scenario = process.env["MCP_CONFORMANCE_SCENARIO"] ?? "";
const url = process.argv.at(-1) ?? "";

const connection = await connectSource({
  url,
  requestTimeoutMs: 20_000,
  ...(scenario === "sse-retry" && { afterConnect: [{ tool: "test_reconnection", arguments: {} }] }),
});
await connection.close();
