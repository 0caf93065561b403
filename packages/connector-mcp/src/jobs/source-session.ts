/**
 * The holder of one (source, reader): takes its session, connects, finds resources, subscribes and reads, for as long as
 * the lease stands; then tries to take it again.
 *
 * Invariants:
 * 1. Nothing is written after the lease is lost: everything that writes shares one signal, and the ledger refuses the rest.
 * 2. One connection at a time, and one in a session: when it ends, the session ends with it, and the next is another
 *    generation, in which everything is subscribed and read again (U4).
 * 3. Discovery and reading run once each at a time; asked for while they run, they run once more.
 */
import type { Ledger } from "@fenceline/ledger";
import type { Logger } from "pino";
import { aborted, Backoff, pause, STABLE_AFTER_MS } from "../backoff.js";
import type { ConfiguredSource } from "../config/configured-sources.js";
import { ResourceChoice } from "../mcp/resource-choice.js";
import { connectSource, type SourceConnection } from "../mcp/source-connection.js";
import { storableText } from "../storable-text.js";
import { problemOf } from "./problem.js";
import { SessionLease } from "./session-lease.js";
import type { SourceContext } from "./source-context.js";
import { SourceCounts } from "./source-counts.js";
import { type SourceWakes, SourceWork } from "./source-work.js";
import type { PoolMode, PoolProgress } from "./worker-pool-options.js";

/** Connections tried under one lease before another process may have a go; in mode `once` tries altogether. */
const TRIES_PER_LEASE = 3;
/** Between two looks at a session that another process holds and was asked to work (mode `once`). */
const LOOK_AGAIN_MS = 500;
/** A standby looks again at least this often, whatever the holder's lease says. */
const MAX_STANDBY_MS = 30_000;

/**
 * How a try to be the holder ended. `done`: mode `once` has nothing more to do. `waited`: another process has the session.
 * `ended`: the connection, the lease or the source failed.
 */
type HoldEnd = "done" | "waited" | "ended";

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
  /** Of the connections, across leases: a server that dies shortly after each start is not started four times a second. */
  readonly #backoff = new Backoff({ minMs: 250, maxMs: 30_000 });
  /** Connections tried so far. */
  #tried = 0;
  readonly #choice: ResourceChoice;

  constructor(private readonly options: SourceSessionOptions) {
    this.#choice = new ResourceChoice(options.source.choice);
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
  async discover(jobAddedAt?: number): Promise<string> {
    return (await this.#work?.discover(jobAddedAt)) ?? "not_holding";
  }

  /** Ends connection and session. Never rejects. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.finished;
  }

  async #run(): Promise<void> {
    const { mode, logger } = this.options;
    while (!this.#stop.signal.aborted) {
      const end = await this.#takeAndHold().catch((error: unknown): HoldEnd => {
        this.#problem(error);
        return "ended";
      });
      if (end === "done" || (mode === "once" && this.#tried >= TRIES_PER_LEASE)) return;
      if (end === "waited" || this.#stop.signal.aborted) continue;
      const pauseMs = this.#backoff.next();
      logger.debug({ pauseMs }, "trying again after a pause");
      await pause(pauseMs, this.#stop.signal);
    }
  }

  async #takeAndHold(): Promise<HoldEnd> {
    const { ledger, source, owner, mode, logger } = this.options;
    const request = { source: source.name, reader: source.reader, owner, leaseMs: source.settings.leaseMs };
    const taken = await SessionLease.take(ledger, request);
    if (taken.outcome === "held") {
      if (mode === "once") return this.#leaveTo(taken);
      logger.debug({ holder: taken.owner }, "the session is held elsewhere");
      this.#markTried();
      const untilFree = taken.expiresAt.getTime() - Date.now();
      await this.#standBy(Math.min(MAX_STANDBY_MS, Math.max(100, untilFree)));
      return "waited";
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

  /** Connects, and works until that connection ends. */
  async #hold(lease: SessionLease): Promise<HoldEnd> {
    const signal = AbortSignal.any([this.#stop.signal, lease.lost]);
    const connection = await this.#connectInTries(lease, signal);
    if (connection === undefined) return "ended";
    const connectedAt = performance.now();
    try {
      return await this.#workOver(lease, connection, signal);
    } catch (error) {
      if (!signal.aborted) this.#problem(error);
      return "ended";
    } finally {
      if (performance.now() - connectedAt >= STABLE_AFTER_MS) this.#backoff.reset();
      // Before the session ends in the ledger, which takes that for the end of what was being unsubscribed (U9).
      await connection.close();
    }
  }

  /** While a source is down, its session is not ended and taken again with each try. */
  async #connectInTries(lease: SessionLease, signal: AbortSignal): Promise<SourceConnection | undefined> {
    this.#progress({ phase: "connect", done: 0, total: 1 });
    for (let tries = 1; !signal.aborted; tries += 1) {
      this.#tried += 1;
      try {
        return await this.#connect(lease, signal);
      } catch (error) {
        if (!signal.aborted) this.#problem(error);
      }
      if (tries === TRIES_PER_LEASE) return undefined;
      await pause(this.#backoff.next(), signal);
    }
    return undefined;
  }

  async #workOver(lease: SessionLease, connection: SourceConnection, signal: AbortSignal): Promise<HoldEnd> {
    const { ledger, source, logger, mode, wake } = this.options;
    const ended = new AbortController();
    void connection.closed.then(({ reason, cause }) => {
      const why = cause === undefined ? {} : { cause: problemOf(cause).message };
      if (reason !== "local") logger.warn({ reason, ...why }, "connection ended");
      ended.abort();
    });
    const context: SourceContext = {
      ledger,
      lease,
      connection,
      settings: source.settings,
      choice: this.#choice,
      counts: this.counts,
      logger,
      onProgress: (progress) => this.#progress(progress),
      signal: AbortSignal.any([signal, ended.signal]),
    };
    const work = new SourceWork(context, wake);
    try {
      await ledger.recordCapabilities(lease.session, negotiatedBy(connection));
      this.counts.era = connection.era;
      this.counts.resolved();
      this.#progress({ phase: "connect", done: 1, total: 1 });
      logger.info({ era: connection.era, ...connection.capabilities }, "connected");
      if (mode === "once") {
        await work.runOnce();
        return context.signal.aborted ? "ended" : "done";
      }
      this.#work = work;
      await work.start();
      this.#markTried();
      await aborted(context.signal);
      return "ended";
    } finally {
      this.#work = undefined;
      await work.stop();
    }
  }

  #connect(lease: SessionLease, signal: AbortSignal): Promise<SourceConnection> {
    const { source, logger } = this.options;
    return connectSource(source.endpoint, {
      signal,
      maxBodyBytes: source.settings.maxBodyBytes,
      onProblem: (problem) => logger.debug(problem),
      onUnauthorized: (message) => void this.#suspend(lease, message),
    });
  }

  /**
   * A running worker has this source: it is asked to do what `once` would have done. One that was killed has it too until
   * its lease ends, but renews it no more; then the work is done here.
   */
  async #leaveTo(holder: { readonly expiresAt: Date }): Promise<HoldEnd> {
    const { ledger, source, logger } = this.options;
    if (this.#handedOverAt !== undefined) {
      if (holder.expiresAt > this.#handedOverAt) return "done";
      await pause(LOOK_AGAIN_MS, this.#stop.signal);
      return "waited";
    }
    this.#handedOverAt = holder.expiresAt;
    logger.info("another worker holds this source and is asked to scan and read it");
    for (const kind of ["discovery", "read"] as const) {
      await ledger.announce({ kind, source: source.name, reader: source.reader });
    }
    return "waited";
  }

  /** Waits, unless poked or stopped. */
  async #standBy(durationMs: number): Promise<void> {
    this.#poked = new AbortController();
    await pause(durationMs, AbortSignal.any([this.#poked.signal, this.#stop.signal]));
  }

  /** A refused credential leaves what was read before unverified; it revokes nothing (P7). Never rejects. */
  async #suspend(lease: SessionLease, message: string): Promise<void> {
    this.counts.problem({ code: "source_unauthorized", message });
    if (!lease.held) return;
    try {
      await this.options.ledger.suspendScope(lease.session, storableText(message));
    } catch (error) {
      this.#problem(error);
    }
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
