/**
 * The client that `@modelcontextprotocol/conformance` tests: the connector's own connection. Called with the server's URL;
 * what the scenario gives beside it comes in the environment.
 */
import { connectSource } from "../../packages/connector-mcp/dist/mcp/source-connection.js";

const scenario = process.env["MCP_CONFORMANCE_SCENARIO"] ?? "";
const context = JSON.parse(process.env["MCP_CONFORMANCE_CONTEXT"] ?? "{}");
const url = process.argv.at(-1) ?? "";

const connection = await connectSource({
  url,
  requestTimeoutMs: 20_000,
  ...(scenario === "sse-retry" && { afterConnect: [{ tool: "test_reconnection", arguments: {} }] }),
  ...(scenario === "auth/client-credentials-basic" && { auth: await clientCredentials() }),
});
await connection.close();

/** The connector sends a secret only to the issuer that is configured; what a person would write there, the server names. */
async function clientCredentials() {
  const { origin, pathname } = new URL(url);
  const answer = await fetch(`${origin}/.well-known/oauth-protected-resource${pathname}`);
  const { authorization_servers: issuers } = await answer.json();
  const { client_id: clientId, client_secret: clientSecret } = context;
  return { type: "client_credentials", clientId, clientSecret, issuer: issuers[0] };
}
