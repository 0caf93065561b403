// A server of the 2026-07-28 revision on standard input and output, started by the tests as a child process.
// Appends its process id to PID_FILE, and does as MODE says: `serve`, `silent` (never answers), `stubborn` (serves, and
// ends neither with its input nor on SIGTERM), `dying` (serves, and ends after its first read), `shy` (a server of the line before that ends on anything that comes before
// `initialize`), `old` (a raw server of the line before that says of each request what was asked, and answers `initialize` alone;
// it calls itself what stands in VERSION_FILE).
import { appendFileSync } from "node:fs";

const { MODE = "serve", PID_FILE } = process.env;
if (PID_FILE) appendFileSync(PID_FILE, `${process.pid}\n`);
console.error("a line on standard error");

if (MODE === "silent" || MODE === "stubborn") setInterval(() => {}, 60_000);
if (MODE === "stubborn") process.on("SIGTERM", () => {});

if (MODE === "old") {
  const { createInterface } = await import("node:readline");
  const { readFileSync } = await import("node:fs");
  for await (const line of createInterface({ input: process.stdin })) {
    const { id, method } = JSON.parse(line);
    console.error(`asked ${method}`);
    if (method !== "initialize") continue;
    const serverInfo = { name: "old", version: readFileSync(process.env.VERSION_FILE, "utf8") };
    const result = { protocolVersion: "2025-11-25", capabilities: { resources: {} }, serverInfo };
    process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id, result })}\n`);
  }
} else if (MODE !== "silent") {
  // Loaded last: it takes longer than all the rest, and a test of a silent process waits only for its id.
  const { McpServer } = await import("@modelcontextprotocol/server");
  const { serveStdio } = await import("@modelcontextprotocol/server/stdio");
  if (MODE === "shy") {
    process.stdin.once("data", (first) => {
      if (!first.includes('"method":"initialize"')) process.exit(1);
    });
  }
  serveStdio(() => {
    const mcp = new McpServer(
      { name: "stdio", version: "1.0.0" },
      { capabilities: { resources: { subscribe: true, listChanged: true }, tools: {} } },
    );
    mcp.registerResource("a", "note://a", {}, (uri) => {
      if (MODE === "dying") setTimeout(() => process.exit(1), 20);
      return { contents: [{ uri: uri.href, text: `of process ${process.pid}` }] };
    });
    mcp.registerTool("die", {}, () => process.exit(3));
    mcp.registerTool("touch", {}, async () => {
      await mcp.server.sendResourceUpdated({ uri: "note://a" });
      return { content: [] };
    });
    mcp.registerTool("scold", {}, () => ({ isError: true, content: [{ type: "text", text: "not like this" }] }));
    return mcp;
  });
}
