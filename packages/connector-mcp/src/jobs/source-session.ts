/**
 * The holder of one (source, reader): takes its session, connects, finds resources, subscribes and reads, for as long as
 * the lease stands; then tries to take it again.
 *
 * Invariants:
 * 1. Nothing is written after the lease is lost: everything that writes shares one signal, and the ledger refuses the rest.
 * 2. One connection at a time. When it ends, what was pushed through it is unverified before another is tried (U4).
 * 3. Discovery and reading run once each at a time; asked for while they run, they run once more.
 */
import { FencelineError, type Ledger } from "@fenceline/ledger";
import type { Logger } from "pino";
import type { ConfiguredSource } from "../config/configured-sources.js";
import { connectSource, type SourceConnection } from "../mcp/source-connection.js";
import { storableText } from "../storable-text.js";
import { aborted, Backoff, pause } from "./backoff.js";
import { problemOf } from "./problem.js";
import { SessionLease } from "./session-lease.js";
import type { SourceContext } from "./source-context.js";
import { SourceCounts } from "./source-counts.js";
import { type SourceWakes, SourceWork } from "./source-work.js";
import type { PoolMode, PoolProgress } from "./worker-pool-options.js";

/** Connections tried under one lease before another process may have a go. */
const TRIES_PER_LEASE = 3;
/** A standby looks again at least this often, whatever the holder's lease says. */
const MAX_STANDBY_MS = 30_000;

export interface SourceSessionOptions {
  readonly ledger: Ledger;
  readonly source: ConfiguredSource;
  readonly owner: string;
  readonly mode: Exclude<PoolMode, "purge_only">;
  readonly logger: Logger;
  readonly onProgress: (progress: PoolProgress) => void;
  /** Wakes whoever holds this source, through the queue. */
  readonly wake: SourceWakes;
}

export class SourceSession {
  readonly counts: SourceCounts;
  /** Resolves when the session has ended for good; in mode `once`, when everything was tried. Never rejects. */
  readonly finished: Promise<void>;
  /** Resolves when the source was scanned and read once, or that failed, or another process has it. */
  readonly triedOnce: Promise<void>;
  #markTried: () => void = () => undefined;
  /** Mode `once`: the end that another holder's lease had when that holder was asked to do the work. */
  #handedOverAt: Date | undefined;
  readonly #stop = new AbortController();
  #poked = new AbortController();
  #work: SourceWork | undefined;

  constructor(private readonly options: SourceSessionOptions) {
    this.counts = new SourceCounts(options.source.name, options.source.reader);
    this.triedOnce = new Promise((resolve) => {
      this.#markTried = resolve;
    });
    this.finished = this.#run().finally(this.#markTried);
  }

  /** This process holds the session and its connection stands. */
  get holding(): boolean {
    return this.#work !== undefined;
  }

  /** Scanning or reading now; in mode `once` {@link finished} tells. */
  get busy(): boolean {
    return this.#work?.busy === true;
  }

  /** Mode `once`: a running worker has this source and was asked to do the work. */
  get handedOver(): boolean {
    return this.#handedOverAt !== undefined;
  }

  /** Tries at once to take the session, if it stands by; not if its source failed a moment ago. */
  poke(): void {
    this.#poked.abort();
  }

  /** Sends the reads that are due; `not_holding`: somebody else has to. */
  async drainReads(): Promise<"drained" | "stopped" | "not_holding"> {
    return (await this.#work?.drainReads()) ?? "not_holding";
  }

  /** Scans the list and brings what is new under subscription; `not_holding`: somebody else has to. */
  async discover(): Promise<string> {
    return (await this.#work?.discover()) ?? "not_holding";
  }

  /** Ends connection and session. Never rejects. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.finished;
  }

  async #run(): Promise<void> {
    const backoff = new Backoff({ minMs: 500, maxMs: 10_000 });
    while (!this.#stop.signal.aborted) {
      const end = await this.#takeAndHold().catch((error: unknown): "failed" => {
        this.#problem(error);
        return "failed";
      });
      if (end === "done") return;
      if (end === "lost") backoff.reset();
      await pause(backoff.next(), this.#stop.signal);
    }
  }

  /** `done`: mode `once` has nothing more to do. `failed`: the source could not be used. */
  async #takeAndHold(): Promise<"done" | "lost" | "failed"> {
    const { ledger, source, owner, mode, logger } = this.options;
    const request = { source: source.name, reader: source.reader, owner, leaseMs: source.settings.leaseMs };
    const taken = await SessionLease.take(ledger, request);
    if (taken.outcome === "held") {
      if (mode === "once") return this.#leaveTo(taken);
      logger.debug({ holder: taken.owner }, "the session is held elsewhere");
      this.#markTried();
      const untilFree = taken.expiresAt.getTime() - Date.now();
      await this.#standBy(Math.min(MAX_STANDBY_MS, Math.max(100, untilFree)));
      return "lost";
    }
    const { lease } = taken;
    this.#handedOverAt = undefined;
    try {
      logger.info({ session: lease.session.sessionId }, "session taken");
      return await this.#hold(lease);
    } finally {
      await lease.end();
    }
  }

  /** Connects, works until the connection ends, and connects again, while the lease stands. */
  async #hold(lease: SessionLease): Promise<"done" | "lost" | "failed"> {
    const { mode } = this.options;
    const signal = AbortSignal.any([this.#stop.signal, lease.lost]);
    const watched = new Map<string, number>();
    const backoff = new Backoff({ minMs: 250, maxMs: 5_000 });
    while (!signal.aborted && backoff.failures < TRIES_PER_LEASE) {
      try {
        const end = await this.#connectAndWork(lease, watched, signal, () => backoff.reset());
        if (end === "done") return "done";
      } catch (error) {
        if (!signal.aborted) await this.#failed(lease, error);
      }
      await pause(backoff.next(), signal);
    }
    if (lease.lost.aborted || signal.aborted) return "lost";
    return mode === "once" ? "done" : "failed";
  }

  async #connectAndWork(
    lease: SessionLease,
    watched: Map<string, number>,
    signal: AbortSignal,
    onWorking: () => void,
  ): Promise<"done" | "lost"> {
    const { ledger, source, logger, mode, wake } = this.options;
    this.#progress({ phase: "connect", done: 0, total: 1 });
    const connection = await this.#connect(signal);
    const ended = new AbortController();
    void connection.closed.then(({ reason }) => {
      if (reason !== "local") logger.warn({ reason }, "connection ended");
      ended.abort();
    });
    const context: SourceContext = {
      ledger,
      lease,
      connection,
      settings: source.settings,
      counts: this.counts,
      logger,
      onProgress: (progress) => this.#progress(progress),
      signal: AbortSignal.any([signal, ended.signal]),
    };
    const work = new SourceWork(context, watched, wake);
    try {
      await ledger.recordCapabilities(lease.session, negotiatedBy(connection));
      this.counts.era = connection.era;
      this.counts.resolved();
      this.#progress({ phase: "connect", done: 1, total: 1 });
      logger.info({ era: connection.era, ...connection.capabilities }, "connected");
      if (mode === "once") {
        await work.runOnce();
        return context.signal.aborted ? "lost" : "done";
      }
      this.#work = work;
      await work.start();
      onWorking();
      this.#markTried();
      await aborted(context.signal);
      return "lost";
    } finally {
      this.#work = undefined;
      await work.stop();
      await connection.close();
    }
  }

  #connect(signal: AbortSignal): Promise<SourceConnection> {
    const { source, logger } = this.options;
    return connectSource(source.endpoint, { signal, onProblem: (problem) => logger.debug(problem) });
  }

  /**
   * A running worker has this source: it is asked to do what `once` would have done. One that was killed has it too until
   * its lease ends, but renews it no more; then the work is done here.
   */
  async #leaveTo(holder: { readonly expiresAt: Date }): Promise<"done" | "lost"> {
    const { ledger, source, logger } = this.options;
    if (this.#handedOverAt !== undefined) return holder.expiresAt > this.#handedOverAt ? "done" : "lost";
    this.#handedOverAt = holder.expiresAt;
    logger.info("another worker holds this source and is asked to scan and read it");
    for (const kind of ["discovery", "read"] as const) {
      await ledger.announce({ kind, source: source.name, reader: source.reader });
    }
    return "lost";
  }

  /** Waits, unless poked or stopped. */
  async #standBy(durationMs: number): Promise<void> {
    this.#poked = new AbortController();
    await pause(durationMs, AbortSignal.any([this.#poked.signal, this.#stop.signal]));
  }

  /** A refused credential leaves what was read before unverified; it revokes nothing (P7). */
  async #failed(lease: SessionLease, error: unknown): Promise<void> {
    this.#problem(error);
    if (!(error instanceof FencelineError) || error.code !== "source_unauthorized") return;
    const { ledger } = this.options;
    await ledger
      .suspendScope(lease.session, storableText(error.message))
      .catch((failure: unknown) => this.#problem(failure));
  }

  #problem(error: unknown): void {
    this.#markTried();
    const problem = problemOf(error);
    this.counts.problem(problem);
    this.options.logger.warn({ code: problem.code }, problem.message);
  }

  #progress(progress: Omit<PoolProgress, "source">): void {
    this.options.onProgress({ source: this.options.source.name, ...progress });
  }
}

function negotiatedBy({ era, protocolVersion, server, capabilities }: SourceConnection) {
  const named = server && { name: storableText(server.name), version: storableText(server.version) };
  return { era, protocolVersion, ...capabilities, ...(named && { server: named }) };
}
