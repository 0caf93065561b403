import type { Ledger } from "@fenceline/ledger";
import type { Logger } from "pino";
import type { Settings } from "../config/settings.js";
import type { ResourceChoice } from "../mcp/resource-choice.js";
import type { SourceConnection } from "../mcp/source-connection.js";
import type { SessionLease } from "./session-lease.js";
import type { SourceCounts } from "./source-counts.js";
import type { PoolProgress } from "./worker-pool-options.js";

/** What everything done over one connection to one (source, reader) works with. */
export interface SourceContext {
  readonly ledger: Ledger;
  readonly lease: SessionLease;
  readonly connection: SourceConnection;
  readonly settings: Settings;
  /** What of the source is taken. */
  readonly choice: ResourceChoice;
  readonly counts: SourceCounts;
  readonly logger: Logger;
  readonly onProgress: (progress: Omit<PoolProgress, "source">) => void;
  /** Aborted when the lease is lost, the connection has ended, or the pool stops: write nothing from then on. */
  readonly signal: AbortSignal;
}
