import { createHash, randomUUID } from "node:crypto";
import { setTimeout as delay, setImmediate as nextRound } from "node:timers/promises";
import type pg from "pg";
import { assert, FencelineError } from "../errors.js";
import { failureOf, mayConnectLater } from "./connection-failure.js";
import type { Database, Listening, ListenOptions, Queryable, StatementOptions } from "./database.js";
import { Listener } from "./listener.js";
import { rowValueTypes } from "./row-values.js";
import { refuseUnsuitableSessions } from "./session-settings.js";

export interface PooledDatabaseOptions {
  kind: Database["kind"];
  address: string;
  pool: pg.Pool;
  connectionOptions: pg.ClientConfig;
  /** Whether `close()` ends the pool. */
  ownsPool: boolean;
  /** Whether a connection is a session of its own that may be given settings: not behind a pooler, nor in a caller's pool. */
  ownsSessions: boolean;
  /** Where a connection listens; the same as `connectionOptions` but behind a pooler. */
  listenOptions: pg.ClientConfig;
  connectTimeoutMs: number;
  /** Asked when something failed: whether the files of an embedded database are gone, which explains it. */
  isDirectoryGone?: () => boolean;
  onClose?: () => Promise<void>;
}

const RETRY_FIRST_MS = 10;
const RETRY_MOST_MS = 200;

/**
 * Plans of the ledger's functions are generic: planning anew for each batch costs more than it gains (0.75 against
 * 0.41 ms for issuing one ordinal). Set per session, and only where the session is ours: elsewhere plans differ, answers do
 * not. The fences need READ COMMITTED and refuse anything else, whatever the database's own default is.
 */
const SESSION_SETTINGS =
  "set default_transaction_isolation = 'read committed'; set datestyle = 'ISO'; set plan_cache_mode = force_generic_plan; set jit = off";
/** A notification takes a millisecond; one that did not come by then will not. */
const SELF_TEST_MS = 2_000;

/** A {@link Database} over a `pg.Pool`: decides what is tried again, and gives every failure its code. */
export class PooledDatabase implements Database {
  readonly kind: Database["kind"];
  readonly address: string;
  readonly connectionOptions: pg.ClientConfig;
  readonly #options: PooledDatabaseOptions;
  readonly #pool: pg.Pool;
  /** Whether a connection's session is the database's own, which may be given settings and prepared statements. */
  readonly #isOwn = new WeakMap<pg.PoolClient, boolean>();
  readonly #listener: Listener;
  /** Those who wait for a connection, which a pool that ends never gives them. */
  readonly #waiting = new Set<() => void>();
  #closing: Promise<void> | undefined;
  #delivers: Promise<boolean> | undefined;

  private constructor(options: PooledDatabaseOptions) {
    this.#options = options;
    this.kind = options.kind;
    this.address = options.address;
    this.connectionOptions = options.connectionOptions;
    this.#pool = options.pool;
    this.#listener = new Listener(options.listenOptions, options.address, options.connectTimeoutMs);
    // An idle connection that breaks leaves the pool by itself; without a handler the event would end the process.
    if (options.ownsPool) this.#pool.on("error", () => {});
  }

  /** Returns once the database has answered. On failure the pool is ended if it is ours. */
  static async connect(options: PooledDatabaseOptions): Promise<PooledDatabase> {
    const database = new PooledDatabase(options);
    try {
      const session = await database.#checkOut(performance.now() + options.connectTimeoutMs);
      session.release();
      if (options.kind === "postgres" && !session.isOwn) await refuseUnsuitableSessions(database, options.address);
      return database;
    } catch (error) {
      if (options.ownsPool) await options.pool.end();
      throw error;
    }
  }

  async query<Row = Record<string, unknown>>(
    text: string,
    values?: readonly unknown[],
    options?: StatementOptions,
  ): Promise<Row[]> {
    return this.#untilRun(async (session) => (await session.run<Row>(text, values, options)).rows);
  }

  async transaction<T>(fn: (transaction: Queryable) => Promise<T>): Promise<T> {
    const session = await this.#untilRun(async (begun) => {
      await begun.run("begin isolation level read committed");
      return begun;
    }, "keep");
    const transaction = new Transaction(session);
    let value: T;
    try {
      value = await fn(transaction);
      await transaction.commit();
    } catch (error) {
      await transaction.rollback();
      session.release();
      throw error;
    }
    session.release();
    return value;
  }

  async listen(channel: string, onPayload: (payload: string) => void, options: ListenOptions = {}): Promise<Listening> {
    this.#refuseWhenClosed();
    const listening = await this.#listener.listen(channel, onPayload, options.onReconnect);
    this.#delivers ??= this.#hearsItself();
    return { close: listening.close, delivers: await this.#delivers };
  }

  /** Behind a pooler in transaction mode LISTEN succeeds and nothing ever arrives: only a notification of one's own tells. */
  async #hearsItself(): Promise<boolean> {
    if (this.kind === "embedded") return true;
    const channel = `fenceline_self_test_${randomUUID()}`;
    const arrived = new AbortController();
    const listening = await this.#listener.listen(channel, () => arrived.abort());
    try {
      await this.query("select pg_catalog.pg_notify($1, '')", [channel]);
      await delay(SELF_TEST_MS, undefined, { signal: arrived.signal }).catch(() => {});
      return arrived.signal.aborted;
    } finally {
      await listening.close();
    }
  }

  async analyze(): Promise<void> {
    if (this.kind === "embedded") await this.query("analyze");
  }

  async ensureVector(): Promise<boolean> {
    const installed = () => this.query("select 1 from pg_catalog.pg_extension where extname = 'vector'");
    if ((await installed()).length > 0) return true;
    const offered = await this.query("select 1 from pg_catalog.pg_available_extensions where name = 'vector'");
    if (offered.length === 0) return false;
    try {
      await this.query("create extension if not exists vector with schema public");
      return true;
    } catch (error) {
      // Another process may have created it at the same time (unique violation), or this role may not create it.
      if (error instanceof FencelineError && error.code === "statement_failed") return (await installed()).length > 0;
      throw error;
    }
  }

  close(): Promise<void> {
    this.#closing ??= (async () => {
      await this.#listener.close();
      if (this.#options.ownsPool) await this.#pool.end();
      await this.#options.onClose?.();
    })();
    for (const giveUp of this.#waiting) giveUp();
    return this.#closing;
  }

  /** Calls `step` on a session, again on another one while it certainly had no effect and the deadline allows. */
  async #untilRun<T>(step: (session: Session) => Promise<T>, after: "release" | "keep" = "release"): Promise<T> {
    const deadline = performance.now() + this.#options.connectTimeoutMs;
    for (let wait = RETRY_FIRST_MS; ; wait = Math.min(wait * 2, RETRY_MOST_MS)) {
      const session = await this.#checkOut(deadline);
      try {
        const value = await step(session);
        if (after === "release") session.release();
        return value;
      } catch (error) {
        session.release();
        const retry = error instanceof StatementNotRun || (after === "keep" && isConnectionLost(error));
        if (!retry) throw error;
        if (performance.now() + wait >= deadline) throw this.#unreachable(error);
      }
      await delay(wait);
    }
  }

  async #checkOut(deadline: number): Promise<Session> {
    for (let wait = RETRY_FIRST_MS; ; wait = Math.min(wait * 2, RETRY_MOST_MS)) {
      this.#refuseWhenClosed();
      try {
        const client = await this.#connected(deadline);
        const session = new Session(client, this.#options);
        if (await this.#isUsable(session)) return session;
        session.release();
        continue;
      } catch (error) {
        this.#refuseWhenClosed();
        refuseWhenGone(this.#options, error);
        if (!mayConnectLater(error) || performance.now() + wait >= deadline) throw this.#unreachable(error);
      }
      await delay(wait);
    }
  }

  /**
   * A client of the pool; rejects at the deadline and when the database is closed. Plain timers: this is on the way of every
   * statement, where an abortable delay costs more than all else of the checkout.
   */
  #connected(deadline: number): Promise<pg.PoolClient> {
    return new Promise((resolve, reject) => {
      let hasGivenUp = false;
      const giveUp = () => {
        settle();
        hasGivenUp = true;
        reject(new FencelineError("database_unreachable", "no free or new connection in time"));
      };
      const timer = setTimeout(giveUp, Math.max(1, deadline - performance.now()));
      const settle = () => {
        clearTimeout(timer);
        this.#waiting.delete(giveUp);
      };
      this.#waiting.add(giveUp);
      this.#pool.connect().then(
        (client) => {
          if (hasGivenUp) return client.release();
          settle();
          resolve(client);
        },
        (error: unknown) => {
          settle();
          reject(error);
        },
      );
    });
  }

  /** Gives a new connection its settings, and finds out whether an older one has been lost meanwhile. */
  async #isUsable(session: Session): Promise<boolean> {
    let isOwn = this.#isOwn.get(session.client);
    if (isOwn === undefined) {
      // The embedded server is one session for all: it was given these settings when it started.
      isOwn = this.#options.ownsSessions && this.kind === "postgres" && (await session.isDirect());
      if (isOwn) await session.configure(SESSION_SETTINGS);
      this.#isOwn.set(session.client, isOwn);
    }
    session.isOwn = isOwn;
    // The end of the connection may lie in this round of the event loop, still unread. It is read in this one, `pg` hears of
    // it (the socket's "close") before the next, and the statement has not been sent; else it might have been run.
    await nextRound();
    await nextRound();
    return !session.isLost;
  }

  #refuseWhenClosed(): void {
    if (this.#closing) throw new FencelineError("ledger_closed", `The database ${this.address} was closed.`);
  }

  #unreachable(cause: unknown): FencelineError {
    const reason = cause instanceof Error && cause.message !== "" ? cause.message : String(cause);
    return new FencelineError(
      "database_unreachable",
      `No connection to ${this.address} within ${this.#options.connectTimeoutMs} ms: ${reason}`,
      { cause },
    );
  }
}

/** Thrown between this file's own functions; it never reaches a caller. */
class StatementNotRun extends FencelineError {}

function isConnectionLost(error: unknown): boolean {
  return error instanceof FencelineError && error.code === "connection_lost";
}

/** The engine's own error would name one of its files, which says nothing to whoever deleted the directory. */
function refuseWhenGone({ address, isDirectoryGone }: PooledDatabaseOptions, cause: unknown): void {
  if (isDirectoryGone?.() !== true) return;
  throw new FencelineError(
    "directory_lost",
    `The directory of ${address} was deleted or moved while it was open; what it answered since then was not kept. Put it back, or open another one.`,
    { cause },
  );
}

/** One checked-out connection. */
class Session {
  readonly client: pg.PoolClient;
  readonly #options: PooledDatabaseOptions;
  isOwn = false;
  #lostBy: unknown;
  readonly #onError = (error: unknown) => this.lose(error);

  constructor(client: pg.PoolClient, options: PooledDatabaseOptions) {
    this.client = client;
    this.#options = options;
    // A connection may break between two statements; its error would otherwise end the process.
    client.on("error", this.#onError);
  }

  lose(error: unknown): void {
    this.#lostBy ??= error;
  }

  get isLost(): boolean {
    return this.#lostBy !== undefined;
  }

  async run<Row>(
    text: string,
    values?: readonly unknown[],
    { prepared = false }: StatementOptions = {},
  ): Promise<pg.QueryResult & { rows: Row[] }> {
    try {
      const name = prepared && this.isOwn ? { name: statementName(text) } : {};
      const config = { ...name, text, types: rowValueTypes, ...(values ? { values: [...values] } : {}) };
      const answer: pg.QueryResult | pg.QueryResult[] = await this.client.query(config);
      // A text of several statements, possible without values, has an answer for each; its last one counts.
      return (Array.isArray(answer) ? answer.at(-1) : answer) as pg.QueryResult & { rows: Row[] };
    } catch (error) {
      if (error instanceof FencelineError) throw error;
      const failure = failureOf(error);
      if (failure !== "failed") this.lose(error);
      refuseWhenGone(this.#options, error);
      switch (failure) {
        case "not_run":
          throw new StatementNotRun("connection_lost", this.#lostMessage("before the statement was sent"), {
            cause: this.#lostBy,
          });
        case "may_have_run":
          throw new FencelineError(
            "connection_lost",
            this.#lostMessage("while a statement ran; it may have taken effect"),
            {
              cause: this.#lostBy,
            },
          );
        case "failed":
          throw new FencelineError("statement_failed", messageOf(error), { cause: error });
      }
    }
  }

  /** Whether the server itself answers: a pooler names a process of its own when a connection is made. */
  async isDirect(): Promise<boolean> {
    const [row] = (await this.run<{ pid: number }>("select pg_catalog.pg_backend_pid() as pid")).rows;
    return row?.pid === (this.client as { processID?: unknown }).processID;
  }

  /** Applies settings; one the server does not know is done without. */
  async configure(settings: string): Promise<void> {
    try {
      await this.client.query(settings);
    } catch (error) {
      if (failureOf(error) !== "failed") this.lose(error);
    }
  }

  /** Gives the connection back to the pool, or ends it when it is broken. */
  release(): void {
    this.client.off("error", this.#onError);
    this.client.release(this.isLost);
  }

  #lostMessage(when: string): string {
    return `The connection to ${this.#options.address} was lost ${when}: ${messageOf(this.#lostBy)}`;
  }
}

/** The statements of one transaction, run one after the other even when they are called at once. */
class Transaction implements Queryable {
  readonly #session: Session;
  #tail: Promise<unknown> = Promise.resolve();
  #ended = false;

  constructor(session: Session) {
    this.#session = session;
  }

  async query<Row = Record<string, unknown>>(
    text: string,
    values?: readonly unknown[],
    options?: StatementOptions,
  ): Promise<Row[]> {
    assert(!this.#ended, "A statement was run on a transaction that has ended.");
    return (await this.#inTurn(() => this.#session.run<Row>(text, values, options))).rows;
  }

  async commit(): Promise<void> {
    this.#ended = true;
    const { command } = await this.#inTurn(() => this.#session.run("commit"));
    // PostgreSQL answers the commit of a failed transaction with ROLLBACK, not with an error.
    if (command === "ROLLBACK") {
      throw new FencelineError(
        "statement_failed",
        "The transaction was rolled back: one of its statements had failed.",
      );
    }
  }

  async rollback(): Promise<void> {
    this.#ended = true;
    if (this.#session.isLost) return;
    try {
      await this.#inTurn(() => this.#session.run("rollback"));
    } catch (error) {
      // The transaction ends with its connection; the error that led here is the one to report.
      this.#session.lose(error);
    }
  }

  #inTurn<T>(step: () => Promise<T>): Promise<T> {
    const run = this.#tail.then(step, step);
    this.#tail = run.catch(() => {});
    return run;
  }
}

const statementNames = new Map<string, string>();

/** The same for the same text: a name of 63 bytes at most cannot be the text itself. */
function statementName(text: string): string {
  const known = statementNames.get(text);
  if (known !== undefined) return known;
  const name = `fenceline_${createHash("sha256").update(text).digest("hex").slice(0, 32)}`;
  statementNames.set(text, name);
  return name;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
