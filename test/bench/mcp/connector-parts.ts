/**
 * Parts of the connector that are measured by themselves and are not public: taken from its build, as its own files take
 * them from each other.
 */
type Drain = typeof import("../../../packages/connector-mcp/dist/jobs/read-drain.js");
type Lease = typeof import("../../../packages/connector-mcp/dist/jobs/session-lease.js");
type Counts = typeof import("../../../packages/connector-mcp/dist/jobs/source-counts.js");
type Walk = typeof import("../../../packages/connector-mcp/dist/jobs/catalog-walk.js");
type Choice = typeof import("../../../packages/connector-mcp/dist/mcp/resource-choice.js");
type Connection = typeof import("../../../packages/connector-mcp/dist/mcp/source-connection.js");

export type { SourceContext } from "../../../packages/connector-mcp/dist/jobs/source-context.js";

const dist = new URL("dist/", import.meta.resolve("@fenceline/connector-mcp/package.json"));
const load = (path: string): Promise<unknown> => import(new URL(path, dist).href);

export const { ReadDrain } = (await load("jobs/read-drain.js")) as Drain;
export const { SessionLease } = (await load("jobs/session-lease.js")) as Lease;
export const { SourceCounts } = (await load("jobs/source-counts.js")) as Counts;
export const { reconcileCatalog } = (await load("jobs/catalog-walk.js")) as Walk;
export const { ResourceChoice } = (await load("mcp/resource-choice.js")) as Choice;
export const { connectSource } = (await load("mcp/source-connection.js")) as Connection;
