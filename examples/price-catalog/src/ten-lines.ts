/** The API example of the README, run against the price catalogue. A test keeps the two alike. */
import { startPriceCatalog } from "./server.js";

const server = await startPriceCatalog({ token: process.env["CATALOG_TOKEN"] ?? "demo-token" });
const { url, token } = server;

// README begins
import { defineConfig, openIndex, startWorkers } from "@fenceline/connector-mcp";
import { openLedger } from "@fenceline/ledger";

const config = defineConfig({
  mcpServers: { catalog: { url, headers: { Authorization: `Bearer ${token}` }, reader: "svc:rag" } },
  grants: [{ source: "catalog", reader: "svc:rag", audience: "group:sales", prefix: "catalog://plans" }],
});
const ledger = await openLedger(config.ledger); // "file:.fenceline": embedded, nothing to install
const workers = await startWorkers({ ledger, config }); // discovers, subscribes, reads, indexes, purges
await workers.idle({ timeoutMs: 60_000 });

const index = await openIndex({ ledger, config });
const asker = ["user:alice", "group:sales"];
const docs = await index.asRetriever({ k: 4 }).invoke("what does basic cost?", { configurable: { asker } });
await ledger.revoke({ source: "catalog", subject: "group:sales", reason: "the team was dissolved" });
// README ends

const after = await index.asRetriever({ k: 4 }).invoke("what does basic cost?", { configurable: { asker } });
process.stdout.write(`${JSON.stringify({ before: docs.map(({ metadata }) => metadata.uri), after: after.length })}\n`);
await workers.close();
await index.close();
await ledger.close();
await server.close();
