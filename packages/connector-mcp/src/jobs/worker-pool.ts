/**
 * A pool puts the parts together: sessions that hold sources, workers that take jobs, the reconciler that wakes them when
 * nobody did, and the end of all of it.
 */
import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import type { Ledger, LedgerStatus, Listening, Wake } from "@fenceline/ledger";
import { type Logger, pino } from "pino";
import { pause } from "../backoff.js";
import { configuredSources } from "../config/configured-sources.js";
import { readTimingOf } from "../config/read-timing.js";
import { connectorError } from "../errors.js";
import { withDeadline } from "./deadline.js";
import { Indexer } from "./indexer.js";
import { JobProcessors } from "./job-processors.js";
import { problemOf } from "./problem.js";
import { Purger } from "./purger.js";
import { type JobQueues, openQueues, QUEUE_KINDS } from "./queues.js";
import { Reconciler } from "./reconciler.js";
import { registerConfiguration } from "./register-configuration.js";
import { SourceSessions } from "./source-sessions.js";
import { Wakes } from "./wakes.js";
import type { PoolStats, WorkerPool, WorkerPoolOptions } from "./worker-pool-options.js";

const DEFAULT_CLOSE_DEADLINE_MS = 10_000;
const RECONCILE_MS = 1_000;
const QUEUE_ERROR_EVERY_MS = 5_000;
/** While somebody waits for a pool to be idle, it looks this often. */
const IDLE_LOOK_MS = 100;

/**
 * Starts the workers of a configuration on a ledger, and resolves when they take work. Several pools, in one process or
 * many, share the work of one ledger; each (source, reader) is held by one of them at a time.
 *
 * @throws {FencelineError} `queue_unreachable`, `source_moved`, `source_removed`, and the ledger's own errors. A source or store that cannot be reached is
 * no error here: it is tried again, and shows in `stats()` and the ledger's status.
 */
export async function startWorkers(options: WorkerPoolOptions): Promise<WorkerPool> {
  const logger = options.logger ?? pino({ name: "fenceline", level: "info" }, pino.destination({ fd: 2, sync: true }));
  const queues = options.mode === "purge_only" ? undefined : await queuesOf(options, logger);
  const ledger = options.ledger.withReadTiming(readTimingOf(options.config));
  const pool = new Pool({ ...options, ledger }, queues, logger);
  try {
    await pool.start();
    return pool;
  } catch (error) {
    await pool.close({ deadlineMs: 2_000 });
    throw error;
  }
}

function queuesOf({ config, ledger, queue }: WorkerPoolOptions, logger: Logger): Promise<JobQueues> {
  let quietUntil = 0;
  const onError = (error: Error): void => {
    // A connection that is tried again every few milliseconds would fill the log.
    if (performance.now() < quietUntil) return;
    quietUntil = performance.now() + QUEUE_ERROR_EVERY_MS;
    logger.warn(problemOf(error), "the queue's connection failed");
  };
  return openQueues({
    queue: queue ?? config.queue,
    prefix: config.queuePrefix,
    database: ledger.database,
    onError,
    onFailed: (kind, job, error) => logger.warn({ queue: kind, job, ...problemOf(error) }, "job failed"),
  });
}

class Pool implements WorkerPool {
  readonly owner = `${hostname()} ${process.pid} ${randomUUID().slice(0, 8)}`;
  readonly #ledger: Ledger;
  readonly #stop = new AbortController();
  readonly #sessions = new SourceSessions();
  readonly #indexer: Indexer;
  readonly #purger: Purger;
  readonly #wakes: Wakes | undefined;
  readonly #processors: JobProcessors | undefined;
  #registered: Promise<void> = Promise.resolve();
  #reconciler: Reconciler | undefined;
  #listening: Listening | undefined;
  #closing: Promise<void> | undefined;
  /** What the reconciler's last look found waiting. */
  #waited = { indexing: false, purging: false };

  constructor(
    private readonly options: WorkerPoolOptions,
    private readonly queues: JobQueues | undefined,
    private readonly logger: Logger,
  ) {
    const { ledger, config } = options;
    const progress = options.onProgress ?? (() => undefined);
    const signal = this.#stop.signal;
    this.#ledger = ledger;
    this.#indexer = new Indexer({
      ledger,
      config,
      logger,
      signal,
      countsOf: (source, reader) => this.#sessions.countsOf(source, reader),
      onProgress: (done, total) => progress({ phase: "index", done, total }),
    });
    this.#purger = new Purger({
      ledger,
      indexes: this.#indexer.indexes,
      logger,
      signal,
      onProgress: (done) => progress({ phase: "purge", done, total: done }),
    });
    if (!queues) return;
    this.#wakes = new Wakes(queues, (wake) => this.#doWithoutQueue(wake));
    this.#processors = new JobProcessors({
      ledger,
      sessions: this.#sessions,
      indexer: this.#indexer,
      purger: this.#purger,
      wakes: this.#wakes,
    });
  }

  async start(): Promise<void> {
    const { config } = this.options;
    if (this.queues && this.#processors) {
      await registerConfiguration(this.#ledger, config, this.options.confirm);
      this.#registered = this.#indexer.register();
      const sources = configuredSources(config).length;
      const concurrency = { read: sources, discovery: sources, index: this.#indexer.names.length, purge: 8 };
      for (const kind of QUEUE_KINDS) {
        await this.queues.work(kind, this.#processors[kind], { concurrency: Math.max(1, concurrency[kind]) });
      }
      this.#startSessions();
    }
    this.#listening = await this.#ledger.onWake((wake) => this.#woken(wake));
    if (!this.#listening.delivers) {
      this.logger.warn(
        "no notification arrives from the ledger's database: it is looked at on a timer alone; see ledgerListen",
      );
    }
    this.#reconciler = new Reconciler({
      ledger: this.#ledger,
      intervalMs: RECONCILE_MS,
      logger: this.logger,
      wake: (status, revocations) => this.#reconcile(status, revocations),
    });
    if (!this.queues) void this.#purger.sweep();
  }

  stats(): PoolStats {
    return { sources: this.#sessions.counts.map((counts) => counts.snapshot()) };
  }

  async idle({ timeoutMs }: { readonly timeoutMs: number }): Promise<"idle" | "timed_out"> {
    const deadline = performance.now() + timeoutMs;
    const { mode } = this.options;
    const begun = [this.#registered, mode === "once" ? this.#sessions.finished() : this.#sessions.triedOnce()];
    const hasBegun = await withDeadline(Promise.all(begun), timeoutMs).then(Boolean, () => false);
    if (!hasBegun) return "timed_out";
    for (;;) {
      if (this.#closing) throw connectorError("pool_closed", "the pool was closed");
      if (await this.#isIdle()) return "idle";
      if (performance.now() >= deadline) return "timed_out";
      await pause(IDLE_LOOK_MS, this.#stop.signal);
    }
  }

  close({ deadlineMs = DEFAULT_CLOSE_DEADLINE_MS }: { readonly deadlineMs?: number } = {}): Promise<void> {
    this.#closing ??= this.#close(deadlineMs);
    return this.#closing;
  }

  #startSessions(): void {
    const { config, mode = "serve", onProgress = () => undefined } = this.options;
    if (mode === "purge_only") return;
    for (const source of configuredSources(config)) {
      const { name, reader } = source;
      this.#sessions.start({
        ledger: this.#ledger,
        source,
        owner: this.owner,
        mode,
        logger: this.logger.child({ source: name, reader }),
        onProgress,
        wake: {
          read: () => this.#wakes?.read(name, reader),
          discovery: () => this.#wakes?.discovery(name, reader),
          index: () => this.#wakeIndexes(),
        },
      });
    }
  }

  #wakeIndexes(): void {
    for (const name of this.#indexer.names) this.#wakes?.index(name);
  }

  /** Another process announced something. */
  #woken(wake: Wake): void {
    if (this.#closing) return;
    switch (wake.kind) {
      case "revocation":
        if (this.#wakes) this.#wakes.purge();
        else void this.#purger.sweep();
        return;
      case "read":
        void this.#sessions.get(wake.source, wake.reader)?.drainReads();
        return;
      case "discovery":
        void this.#sessions.get(wake.source, wake.reader)?.discover();
        return;
      case "index":
        this.#wakes?.index(wake.index);
        return;
      default:
        wake satisfies never;
    }
  }

  /** The queue did not take it. */
  #doWithoutQueue(wake: Parameters<ConstructorParameters<typeof Wakes>[1]>[0]): void {
    if (this.#closing) return;
    if (wake.kind === "index") void this.#processors?.indexed(wake.index);
    else if (wake.kind === "purge") void this.#purger.sweep();
    else this.#woken(wake);
  }

  /**
   * What waits is woken through the queue; what still waits at the next look is done without it, because a queue may have
   * taken the wake and keep it to itself: behind the job of a worker that was killed (58 s until BullMQ lets go of it), or
   * paused. Two workers at once do no harm: what one has claimed the other does not get.
   */
  #reconcile(status: LedgerStatus, revocationsToAdvance: readonly number[]): void {
    if (this.#closing) return;
    const { indexing, purging: removing } = this.#waitingHere(status.waiting);
    const purging = revocationsToAdvance.length > 0 || removing;
    const waited = this.#waited;
    this.#waited = { indexing, purging };
    for (const { name, reader, due, holder } of status.sources) {
      const session = this.#sessions.get(name, reader);
      if (holder === undefined) session?.poke();
      else if (due > 0) void session?.drainReads();
    }
    if (indexing) this.#wakeIndexes();
    if (indexing && waited.indexing) for (const name of this.#indexer.names) void this.#processors?.indexed(name);
    if (purging) this.#wakes?.purge();
    if (purging && (waited.purging || !this.#wakes)) void this.#purger.sweep();
  }

  async #isIdle(): Promise<boolean> {
    const { mode = "serve" } = this.options;
    if (this.#sessions.busy) return false;
    const { waiting, sources } = await this.#ledger.status();
    const due = sources.some((source) => this.#awaits(source) && source.due > 0);
    // In mode `once` what fails would be tried again later by a worker; it is reported instead of waited for.
    const gaveUp = mode === "once";
    const here = this.#waitingHere(waiting);
    const indexing = here.indexing && mode !== "purge_only" && !(gaveUp && this.#indexer.failing);
    const purging = here.purging && !(gaveUp && this.#purger.failing.length > 0);
    if (indexing) this.#wakeIndexes();
    if (purging) this.#wakes?.purge();
    return !due && !indexing && !purging && (await this.#ledger.revocationsToAdvance()).length === 0;
  }

  /** What of the ledger's work is this pool's: of an index or store that left its configuration, nothing is. */
  #waitingHere({ byIndex, byStore }: LedgerStatus["waiting"]): { indexing: boolean; purging: boolean } {
    const { indexes } = this.#indexer;
    return {
      indexing: byIndex.some((row) =>
        indexes.some(({ name, version }) => name === row.index && version === row.version),
      ),
      purging: byStore.some((row) => indexes.some(({ storeName }) => storeName === row.store)),
    };
  }

  /** Whether reads of this source are waited for: in mode `once` those that a running worker was asked to send. */
  #awaits(source: LedgerStatus["sources"][number]): boolean {
    const session = this.#sessions.get(source.name, source.reader);
    if (session?.handedOver) session.counts.adopt(source);
    if (this.options.mode === "once") return session?.handedOver === true && source.holder !== undefined;
    return session !== undefined;
  }

  async #close(deadlineMs: number): Promise<void> {
    this.#stop.abort();
    await this.#reconciler?.stop();
    const ending = Promise.allSettled([
      this.#listening?.close(),
      this.#sessions.stop(),
      this.queues?.close({ deadlineMs }),
      this.#registered,
    ]).then(() => this.#indexer.close());
    await withDeadline(ending, deadlineMs + 2_000).catch((error: unknown) => {
      this.logger.error(problemOf(error), "not everything ended in time");
    });
  }
}
