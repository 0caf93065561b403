/**
 * What is done with a job of each queue. A job reaches any worker: it looks at the ledger, does what is due, and completes
 * with counts; it never decides. Read and discovery belong to the holder of the session, so a worker that is not, and
 * cannot become it, hands the wake over and completes.
 */
import type { Ledger, RevocationRequest, RevocationStatus } from "@fenceline/ledger";
import type { Job } from "bullmq";
import type { Indexer } from "./indexer.js";
import {
  discoveryPayload,
  indexPayload,
  parsePayload,
  purgePayload,
  type RevokePayload,
  readPayload,
  revokePayload,
} from "./payloads.js";
import type { Purger } from "./purger.js";
import type { QueueKind } from "./queues.js";
import type { SourceSessions } from "./source-sessions.js";
import type { Wakes } from "./wakes.js";

export interface JobProcessorsOptions {
  readonly ledger: Ledger;
  readonly sessions: SourceSessions;
  readonly indexer: Indexer;
  readonly purger: Purger;
  readonly wakes: Wakes;
}

/** Name of the job on the purge queue that asks for a revocation. Others on that queue are wakes. */
const REVOKE_JOB = "revoke";

export class JobProcessors implements Record<QueueKind, (job: Job) => Promise<unknown>> {
  constructor(private readonly options: JobProcessorsOptions) {}

  readonly read = async (job: Job) => {
    const { source, reader } = parsePayload(readPayload, job.data);
    const { sessions } = this.options;
    const end = (await sessions.get(source, reader)?.drainReads()) ?? "not_holding";
    return end === "not_holding" ? this.#handOver("read", source, reader) : { end };
  };

  readonly discovery = async (job: Job) => {
    const { source, reader } = parsePayload(discoveryPayload, job.data);
    const { sessions } = this.options;
    const end = (await sessions.get(source, reader)?.discover(job.timestamp)) ?? "not_holding";
    return end === "not_holding" ? this.#handOver("discovery", source, reader) : { end };
  };

  readonly index = async (job: Job) => {
    const { index } = parsePayload(indexPayload, job.data);
    return this.indexed(index);
  };

  readonly purge = async (job: Job) => {
    if (job.name === REVOKE_JOB) return this.#revoke(job);
    const { store } = parsePayload(purgePayload, job.data);
    return store === undefined ? this.advanced() : this.options.purger.purge(store);
  };

  /** Indexes what is due, and lets the stores drop what it replaced. */
  async indexed(index: string): Promise<object> {
    const end = await this.options.indexer.run(index);
    if (end && end.versions + end.failed > 0) this.#purgeStores();
    return end ?? { failure: "not configured here" };
  }

  /** Advances revocations; the stores are emptied beside it, each by a job of its own. */
  async advanced(): Promise<object> {
    const advanced = await this.options.purger.advance(() => this.#purgeStores());
    this.#purgeStores();
    return advanced;
  }

  #purgeStores(): void {
    for (const store of this.options.purger.stores) this.options.wakes.purge(store);
  }

  async #handOver(kind: "read" | "discovery", source: string, reader: string): Promise<object> {
    const { ledger, sessions } = this.options;
    // Where the session has become free, this process takes it, and then does what is due anyway.
    sessions.get(source, reader)?.poke();
    await ledger.announce({ kind, source, reader });
    return { end: "handed_over" };
  }

  /** Accepted when this returns, and with it the job is completed (P1). */
  async #revoke(job: Job): Promise<RevocationStatus> {
    const payload = parsePayload(revokePayload, job.data);
    const status = await this.options.ledger.revoke(requestOf(payload, `job ${job.queueName} ${job.id}`));
    this.options.wakes.purge();
    return status;
  }
}

function requestOf(payload: RevokePayload, jobId: string): RevocationRequest {
  const { subject, reason, source, role, uri, prefix } = payload;
  return {
    requestId: payload.requestId ?? jobId,
    subject,
    reason,
    requestedBy: payload.requestedBy ?? jobId,
    ...(source !== undefined && { source }),
    ...(role !== undefined && { role }),
    ...(uri !== undefined && { scope: { uri } }),
    ...(prefix !== undefined && { scope: { prefix } }),
  };
}
