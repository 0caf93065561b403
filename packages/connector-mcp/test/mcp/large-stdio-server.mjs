// A raw server of the legacy era on standard input and output: `note://N` is answered with N bytes of text, its id written
// first, or last where the URI ends in `#last`.
import { createInterface } from "node:readline";

const answers = {
  initialize: () => ({
    protocolVersion: "2025-11-25",
    capabilities: { resources: {} },
    serverInfo: { name: "large", version: "1" },
  }),
  "resources/read": ({ uri }) => ({
    contents: [{ uri, text: '"id":1}'.padEnd(Number.parseInt(uri.slice(7), 10), "x") }],
  }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  const result = answers[method]?.(params);
  if (!result) send({ jsonrpc: "2.0", id, error: { code: -32601, message: "no such method" } });
  else if (params.uri?.endsWith("#last")) send({ result, jsonrpc: "2.0", id });
  else send({ jsonrpc: "2.0", id, result });
}

function send(message) {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}
