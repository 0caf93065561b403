import { missing } from "../ledger/ledger-bench.js";
import type { Suite } from "../measure.js";
import { changeLatency, readsPerChange } from "./changes.js";
import { fencedReads } from "./fenced-reads.js";
import { longList } from "./long-list.js";
import { type McpBench, withMcpBench } from "./mcp-bench.js";

/** The measures of the connector's MCP side, in the order in which they are printed. */
export const mcpSuite: Suite<McpBench> = {
  name: "mcp",
  missing,
  withBench: withMcpBench,
  measures: [fencedReads, ...longList, ...readsPerChange, ...changeLatency],
};
