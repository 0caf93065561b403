import pg from "pg";
import { FencelineError } from "../errors.js";
import { parseAddress, withoutPassword } from "./address.js";
import { EmbeddedServer } from "./embedded/embedded-server.js";
import { PooledDatabase } from "./pooled-database.js";

/** Whatever runs one SQL statement: a {@link Database}, or a transaction of one. */
export interface Queryable {
  /**
   * Runs one statement and returns its rows. `bigint` columns (and arrays of them) come back as JavaScript numbers,
   * `timestamptz` as `Date`, `numeric` as text.
   *
   * On a {@link Database} (not inside a transaction) a statement that certainly was not run, because no connection was
   * established or it was lost before the statement was sent, is tried again until the connect deadline.
   *
   * @throws {FencelineError} `statement_failed` (the SQL error is its `cause`), `connection_lost` (the statement may
   * have been run), `database_unreachable`, `integer_unsafe` (a `bigint` beyond 2^53 - 1), `ledger_closed`
   */
  query<Row = Record<string, unknown>>(
    text: string,
    values?: readonly unknown[],
    options?: StatementOptions,
  ): Promise<Row[]>;
}

export interface StatementOptions {
  /**
   * Parses the statement once on each connection (a named statement), which saves the server 70 us a call. For texts that are
   * run often and are few: a connection keeps what it has prepared. Where its sessions are not the database's own (a pooler
   * may give each statement another one) and embedded (one session for all), it is sent unnamed all the same.
   */
  readonly prepared?: boolean;
}

/** A channel listened to; see {@link Database.listen}. */
export interface Listening {
  /**
   * Whether notifications arrive at all: a notification of the database's own was sent when it first listened. `false` behind a
   * pooler in transaction mode (then pass `listenAddress`): whoever listens has to look on a timer instead.
   */
  readonly delivers: boolean;
  /** Stops listening. Never rejects. */
  close(): Promise<void>;
}

export interface ListenOptions {
  /** Called after the connection was lost and is back: notifications may have been missed, so look for yourself. */
  onReconnect?: () => void;
}

/** An open database, PostgreSQL or embedded. */
export interface Database extends Queryable {
  /** `embedded` is PGlite behind a local socket: one session shared by all clients, no autovacuum, no fsync. */
  readonly kind: "embedded" | "postgres";
  /** What was opened, without a password. Fit for logs. */
  readonly address: string;
  /** What another `pg` client or pool needs to reach the same database; stays valid when another process takes over. */
  readonly connectionOptions: pg.ClientConfig;

  /**
   * Runs `fn` inside one transaction (READ COMMITTED): commits when it resolves, rolls back when it rejects, and passes
   * its error on. Never call a store, a server, or this database itself inside `fn`: in the embedded database an open
   * transaction blocks every other client, and one that is idle for 5 s is rolled back.
   *
   * @throws {FencelineError} as {@link Queryable.query}; `connection_lost` may mean that the commit happened
   */
  transaction<T>(fn: (transaction: Queryable) => Promise<T>): Promise<T>;

  /**
   * Calls `onPayload` for each notification on `channel`, over a dedicated connection that reconnects by itself.
   * Resolves when the database is listening. An open listening keeps the process alive.
   *
   * @throws {FencelineError} `database_unreachable`, `ledger_closed`
   */
  listen(channel: string, onPayload: (payload: string) => void, options?: ListenOptions): Promise<Listening>;

  /** Refreshes the planner's statistics. PGlite has no autovacuum, so call it after growth; PostgreSQL needs no call. */
  analyze(): Promise<void>;

  /** Makes the `vector` extension available; false where the server does not offer it or forbids creating it. */
  ensureVector(): Promise<boolean>;

  /**
   * Waits for running statements, then closes all connections. An embedded database that this process holds is handed
   * over: another process that has it open takes over at once. Idempotent. A user's own pool is left open.
   */
  close(): Promise<void>;
}

export interface OpenDatabaseOptions {
  /** How long a call may wait for a connection before it fails with `database_unreachable`. Default 15 s. */
  connectTimeoutMs?: number;
  /** Connections of this process at most. Default 10; embedded 4. Ignored for a pool that was passed in. */
  maxConnections?: number;
  /**
   * Address of the PostgreSQL server itself, for listening, where `address` leads to a pooler in transaction mode (PgBouncer, a
   * cloud's proxy).
   */
  listenAddress?: string;
}

const DEFAULT_CONNECT_TIMEOUT_MS = 15_000;

/**
 * Opens a database and returns once it answers.
 *
 * Neither an idle connection nor an embedded server keeps the process alive; a {@link Listening} does. A process that
 * ends without `close()` leaves a stale lock behind, which the next one to open the directory recognises.
 *
 * @param address `file:DIR` (embedded; DIR relative to the working directory, created when missing),
 * `postgres://…` or `postgresql://…`, or a `pg.Pool` of the caller's own, whose settings are not touched.
 * @throws {FencelineError} `address_invalid`, `address_in_use`, `database_unreachable`, `directory_incompatible`,
 * `session_unsuitable`
 */
export async function openDatabase(
  address: string | pg.Pool,
  { connectTimeoutMs = DEFAULT_CONNECT_TIMEOUT_MS, maxConnections, listenAddress }: OpenDatabaseOptions = {},
): Promise<Database> {
  const direct = listenAddress === undefined ? undefined : directOptions(listenAddress);
  if (typeof address !== "string") {
    // A pool hides its password from enumeration, so that whoever spreads its options would lose it.
    const connectionOptions = { ...address.options, ...passwordOf(address.options) };
    return PooledDatabase.connect({
      kind: "postgres",
      address: "pool",
      pool: address,
      connectionOptions,
      ownsPool: false,
      ownsSessions: false,
      listenOptions: direct ?? connectionOptions,
      connectTimeoutMs,
    });
  }
  const parsed = parseAddress(address);
  switch (parsed.kind) {
    case "postgres": {
      const connectionOptions = { connectionString: parsed.connectionString };
      return PooledDatabase.connect({
        kind: "postgres",
        address: withoutPassword(parsed.connectionString),
        pool: createPool(connectionOptions, maxConnections ?? 10, connectTimeoutMs),
        connectionOptions,
        ownsPool: true,
        ownsSessions: direct === undefined,
        listenOptions: direct ?? connectionOptions,
        connectTimeoutMs,
      });
    }
    case "embedded": {
      const server = await EmbeddedServer.open(parsed.directory, connectTimeoutMs);
      try {
        return await PooledDatabase.connect({
          kind: "embedded",
          address: `file:${parsed.directory}`,
          pool: createPool(server.connectionOptions, maxConnections ?? 4, connectTimeoutMs),
          connectionOptions: server.connectionOptions,
          ownsPool: true,
          ownsSessions: true,
          listenOptions: server.connectionOptions,
          connectTimeoutMs,
          isDirectoryGone: () => server.isDirectoryGone(),
          onClose: () => server.close(),
        });
      } catch (error) {
        await server.close();
        throw error;
      }
    }
    default:
      throw new FencelineError("address_invalid", `Unknown address ${parsed satisfies never}`);
  }
}

function directOptions(listenAddress: string): pg.ClientConfig {
  const parsed = parseAddress(listenAddress);
  if (parsed.kind === "postgres") return { connectionString: parsed.connectionString };
  throw new FencelineError("address_invalid", "A listen address is one of PostgreSQL: postgres://…");
}

function passwordOf({ password }: pg.PoolOptions): Pick<pg.ClientConfig, "password"> {
  return password === undefined ? {} : { password };
}

function createPool(connectionOptions: pg.ClientConfig, max: number, connectTimeoutMs: number): pg.Pool {
  return new pg.Pool({
    ...connectionOptions,
    application_name: "fenceline",
    max,
    connectionTimeoutMillis: connectTimeoutMs,
    allowExitOnIdle: true,
  });
}
