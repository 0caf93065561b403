/**
 * An MCP server on standard input and output whose list of articles binds snapshot ids (docs/snapshot-id.md). The tool `withdraw`
 * takes an article away, also between two pages of a list.
 */
import { McpServer, ProtocolError, ProtocolErrorCode, ResourceNotFoundError } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";
import { SnapshotList, UnknownCursor } from "./snapshot-list.js";

const SNAPSHOT_ID = "io.fenceline/snapshot-id";
const ARTICLES = 25;

const articles = new Map(
  Array.from({ length: ARTICLES }, (_, number) => [`article://${number}`, `The text of article ${number}.`]),
);
const list = new SnapshotList(listed(), { pageSize: 10, keptStates: 8 });

serveStdio(() => {
  const mcp = new McpServer(
    { name: "articles", version: "1.0.0" },
    { capabilities: { resources: {}, tools: {}, extensions: { [SNAPSHOT_ID]: {} } } },
  );
  mcp.server.setRequestHandler("resources/list", ({ params }) => {
    const { entries, snapshotId, nextCursor } = pageAt(params?.cursor);
    return {
      resources: [...entries],
      ...(nextCursor !== undefined && { nextCursor }),
      _meta: { [SNAPSHOT_ID]: snapshotId },
    };
  });
  mcp.server.setRequestHandler("resources/read", ({ params: { uri } }) => {
    const text = articles.get(uri);
    if (text === undefined) throw new ResourceNotFoundError(uri);
    return { contents: [{ uri, mimeType: "text/plain", text }] };
  });
  mcp.registerTool("withdraw", { inputSchema: z.object({ uri: z.string() }) }, ({ uri }) => {
    articles.delete(uri);
    list.set(listed());
    return { content: [] };
  });
  return mcp;
});

function listed() {
  return [...articles.keys()].map((uri) => ({ uri, name: uri, mimeType: "text/plain" }));
}

/** A cursor of a state that is gone is refused, never answered from another one. */
function pageAt(cursor: string | undefined) {
  try {
    return list.page(cursor);
  } catch (error) {
    if (!(error instanceof UnknownCursor)) throw error;
    throw new ProtocolError(ProtocolErrorCode.InvalidParams, error.message);
  }
}
