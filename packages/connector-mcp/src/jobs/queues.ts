/**
 * The four queues over whichever backend the configuration names. One code path: BullMQ on Redis, or the same BullMQ on
 * PostgreSQL, be it a server or the ledger's embedded database.
 *
 * Invariants:
 * 1. A wake sent while its job runs is not lost: every job is deduplicated with `keepLastIfActive`, so one more run follows.
 * 2. A wake never hangs and never throws: where the queue does not answer it reports `false`, and the caller (or the
 *    reconciler) does the work without it.
 */
import type { Database } from "@fenceline/ledger";
import {
  createPostgresBackend,
  type Job,
  type JobsOptions,
  type PostgresPoolConfig,
  Queue,
  type QueueBaseOptions,
  Worker,
} from "bullmq";
import { Redis } from "ioredis";
import type { QueueAddress } from "../config/config-schema.js";
import { connectorError } from "../errors.js";
import { withDeadline } from "./deadline.js";

export const QUEUE_KINDS = ["discovery", "read", "index", "purge"] as const;
export type QueueKind = (typeof QUEUE_KINDS)[number];

/** Name of a queue; `fenceline-read` with the default prefix. */
export function queueName(kind: QueueKind, prefix = "fenceline"): string {
  return `${prefix}-${kind}`;
}

export interface OpenQueuesOptions {
  readonly queue: QueueAddress;
  /** Used where `queue` is `embedded`: BullMQ's tables then live in the ledger's database. */
  readonly database: Database;
  /** Default `fenceline`. */
  readonly prefix?: string;
  /** Schema of BullMQ's tables in a PostgreSQL server. Default `bullmq`, as BullMQ's own. */
  readonly schema?: string;
  /** How long the queue's database has to answer. Default 10 s. */
  readonly timeoutMs?: number;
  /** Errors of connections, which BullMQ repairs by itself. */
  readonly onError?: (error: Error) => void;
  /** A job failed for good; what was due is still in the ledger. */
  readonly onFailed?: (kind: QueueKind, jobId: string | undefined, error: Error) => void;
}

export interface WorkOptions {
  /** Jobs of this queue at once in this process. */
  readonly concurrency: number;
}

/** The opened queues. */
export interface JobQueues {
  /**
   * Adds a job unless one with this deduplication id waits already. `false`: the queue did not answer in time.
   *
   * @param deduplicationId what the job is about: `source reader`, an index, a store
   */
  wake(kind: QueueKind, deduplicationId: string, payload: Readonly<Record<string, unknown>>): Promise<boolean>;
  /** Takes jobs of a queue from now on. */
  work(kind: QueueKind, process: (job: Job) => Promise<unknown>, options: WorkOptions): Promise<void>;
  /** Takes no more jobs and waits for those that run, at most this long; then closes every connection. */
  close(options: { readonly deadlineMs: number }): Promise<void>;
}

const OPEN_TIMEOUT_MS = 10_000;
/** A job of a worker that was killed is given to another after at most twice this, as a claim of the ledger is. */
const JOB_LOCK_MS = 10_000;
const WAKE_TIMEOUT_MS = 2_000;

/** What is kept of finished jobs, for whoever looks at the queues: they carry no truth. */
const KEPT: JobsOptions = {
  removeOnComplete: { age: 3_600, count: 100 },
  removeOnFail: { age: 86_400, count: 1_000 },
};

/**
 * Opens the queues and makes sure their database answers.
 *
 * @throws {FencelineError} `queue_unreachable`
 */
export async function openQueues(options: OpenQueuesOptions): Promise<JobQueues> {
  const backend = backendOf(options);
  const queues = new Queues(backend, options);
  try {
    await withDeadline(queues.ready(), options.timeoutMs ?? OPEN_TIMEOUT_MS);
    return queues;
  } catch (cause) {
    await queues.close({ deadlineMs: 1_000 });
    throw connectorError("queue_unreachable", `The queue at ${backend.name} does not answer. Is it running?`, {
      cause,
    });
  }
}

/** How BullMQ reaches a database. */
interface Backend {
  /** Fit for messages: no credentials. */
  readonly name: string;
  readonly producer: QueueBaseOptions;
  readonly consumer: QueueBaseOptions;
  readonly factory: typeof createPostgresBackend | undefined;
  close(): Promise<void>;
}

function backendOf({ queue, database, schema = "bullmq", onError }: OpenQueuesOptions): Backend {
  if (queue === "embedded") {
    const config = database.connectionOptions as PostgresPoolConfig;
    // The embedded database ignores a connection's search_path, so BullMQ's tables stand where it looks anyway.
    return postgresBackend(database.address, { ...config, schema: database.kind === "embedded" ? "public" : schema });
  }
  if (queue.startsWith("redis")) return redisBackend(queue, onError);
  return postgresBackend(withoutCredentials(queue), { connectionString: queue, schema });
}

function postgresBackend(name: string, config: PostgresPoolConfig): Backend {
  // BullMQ opens a pool per queue and per worker, and one more connection per worker to listen on.
  const options = { connection: { ...config, migrate: true, max: 1, application_name: "fenceline" } };
  return {
    name,
    producer: options as QueueBaseOptions,
    consumer: options as QueueBaseOptions,
    factory: createPostgresBackend,
    close: async () => undefined,
  };
}

function redisBackend(address: string, onError: OpenQueuesOptions["onError"]): Backend {
  // Workers wait on the connection for ever and so must retry for ever; a wake must rather fail than hang.
  const consumer = new Redis(address, { maxRetriesPerRequest: null });
  const producer = new Redis(address, { maxRetriesPerRequest: 1 });
  for (const redis of [consumer, producer]) redis.on("error", (error: Error) => onError?.(error));
  return {
    name: withoutCredentials(address),
    producer: { connection: producer, skipWaitingForReady: true },
    consumer: { connection: consumer },
    factory: undefined,
    close: async () => {
      consumer.disconnect();
      producer.disconnect();
    },
  };
}

class Queues implements JobQueues {
  readonly #queues: Record<QueueKind, Queue>;
  readonly #workers: Worker[] = [];
  #closing: Promise<void> | undefined;

  constructor(
    private readonly backend: Backend,
    private readonly options: OpenQueuesOptions,
  ) {
    const open = (kind: QueueKind): Queue => {
      const queue = new Queue(
        queueName(kind, options.prefix),
        { ...backend.producer, defaultJobOptions: KEPT, streams: { events: { maxLen: 1_000 } } },
        backend.factory as never,
      );
      queue.on("error", (error) => options.onError?.(error));
      return queue;
    };
    this.#queues = { discovery: open("discovery"), read: open("read"), index: open("index"), purge: open("purge") };
  }

  async ready(): Promise<void> {
    for (const queue of Object.values(this.#queues)) await queue.waitUntilReady();
  }

  async wake(kind: QueueKind, deduplicationId: string, payload: Readonly<Record<string, unknown>>): Promise<boolean> {
    if (this.#closing) return false;
    const deduplication = { id: deduplicationId, keepLastIfActive: true };
    try {
      await withDeadline(this.#queues[kind].add(kind, payload, { deduplication }), WAKE_TIMEOUT_MS);
      return true;
    } catch (error) {
      this.options.onError?.(error as Error);
      return false;
    }
  }

  async work(kind: QueueKind, process: (job: Job) => Promise<unknown>, { concurrency }: WorkOptions): Promise<void> {
    const worker = new Worker(
      queueName(kind, this.options.prefix),
      process,
      { ...this.backend.consumer, concurrency, lockDuration: JOB_LOCK_MS, stalledInterval: JOB_LOCK_MS },
      this.backend.factory as never,
    );
    worker.on("error", (error) => this.options.onError?.(error));
    worker.on("failed", (job, error) => this.options.onFailed?.(kind, job?.id, error));
    this.#workers.push(worker);
    await withDeadline(worker.waitUntilReady(), OPEN_TIMEOUT_MS);
  }

  close({ deadlineMs }: { readonly deadlineMs: number }): Promise<void> {
    this.#closing ??= this.#close(deadlineMs);
    return this.#closing;
  }

  async #close(deadlineMs: number): Promise<void> {
    const all = async (closing: Promise<unknown>[]) => void (await Promise.allSettled(closing));
    try {
      await withDeadline(all(this.#workers.map((worker) => worker.close())), deadlineMs);
    } catch {
      // Their jobs' locks run out; the ledger's claims do too.
      await all(this.#workers.map((worker) => withDeadline(worker.close(true), 1_000)));
    }
    await all(Object.values(this.#queues).map((queue) => withDeadline(queue.close(), 1_000)));
    await this.backend.close();
  }
}

function withoutCredentials(address: string): string {
  if (!URL.canParse(address)) return address.slice(0, address.indexOf(":"));
  const { protocol, host, pathname } = new URL(address);
  return `${protocol}//${host}${pathname}`;
}
