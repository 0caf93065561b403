/**
 * 25 resources in pages of ten behind `tmcp`, an implementation of the protocol that shares no code with the SDK. The tool
 * `bump` changes one of them twice, a moment later each time.
 */
import { setTimeout as later } from "node:timers/promises";
import { StdioTransport } from "@tmcp/transport-stdio";
import { McpServer } from "tmcp";
import { resource, tool } from "tmcp/utils";

const BUMPED = "note://list/7";
let version = 1;

const server = new McpServer(
  { name: "tmcp-notes", version: "1.0.0", description: "notes" },
  {
    adapter: undefined,
    capabilities: { tools: {}, resources: { listChanged: true, subscribe: true } },
    pagination: { resources: { size: 10 } },
  },
);

for (let number = 1; number <= 25; number++) {
  const uri = `note://list/${number}`;
  server.resource({ name: `note ${number}`, description: "a note", uri }, () =>
    resource.text(uri, `note number ${number} says ${uri === BUMPED ? version : 1}`),
  );
}

server.tool({ name: "bump", description: "changes a note twice, later" }, () => {
  void (async () => {
    for (version = 2; ; version++) {
      await later(1_500);
      server.changed("resource", BUMPED);
      if (version === 3) return;
    }
  })();
  return tool.text("it will change");
});

new StdioTransport(server).listen();
