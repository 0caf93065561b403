import { connectorError } from "../errors.js";
import type { WorkerPool, WorkerPoolOptions } from "./worker-pool-options.js";

/**
 * Starts the workers of a configuration on a ledger, and resolves when they take work. Several pools, in one process or
 * many, share the work of one ledger; each (source, reader) is held by one of them at a time.
 *
 * @throws {FencelineError} `queue_unreachable`, and the ledger's own errors. A source that cannot be reached is no error
 * here: it is tried again, and shows in `stats()` and the ledger's status.
 */
export async function startWorkers(_options: WorkerPoolOptions): Promise<WorkerPool> {
  throw connectorError("pool_closed", "to be built");
}
