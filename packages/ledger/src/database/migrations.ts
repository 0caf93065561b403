import type { Database } from "./database.js";

export interface MigrateOptions {
  /** The schema of the ledger's tables: a plain lower-case identifier. Default `fenceline`. */
  schema?: string;
}

/** What {@link migrate} did; both lists are empty when there was nothing to do. */
export interface MigrationReport {
  /** Names of the migrations applied now, such as `0001-ledger`. */
  applied: string[];
  /** Names of the function files created anew. */
  functions: string[];
}

/**
 * Brings the schema to this version. Any number of processes may call it at once: each migration is applied exactly once.
 *
 * @throws {FencelineError} `schema_newer`, `schema_invalid_name`, `migration_failed`, `migration_changed`
 */
export declare function migrate(database: Database, options?: MigrateOptions): Promise<MigrationReport>;
