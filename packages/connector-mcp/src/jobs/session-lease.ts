/**
 * Holding the session of one (source, reader).
 *
 * Invariants:
 * 1. The holder counts its lease from when it *sent* the request that granted it, on a monotonic clock: it stops before
 *    the ledger lets another one in, whatever the round trip took and whatever happens to the wall clock.
 * 2. `lost` is aborted exactly once; nothing may be written after it. The ledger refuses it anyway (F1).
 */
import type { Ledger, Session } from "@fenceline/ledger";
import { pause } from "../backoff.js";

export interface LeaseRequest {
  readonly source: string;
  readonly reader: string;
  readonly owner: string;
  readonly leaseMs: number;
}

export type TakenLease =
  | { readonly outcome: "taken"; readonly lease: SessionLease }
  | { readonly outcome: "held"; readonly owner: string; readonly expiresAt: Date };

/** The part of the ledger a lease needs. */
export type LeaseLedger = Pick<Ledger, "openSession" | "heartbeat" | "endSession">;

export class SessionLease {
  readonly #lost = new AbortController();
  readonly #beating: Promise<void>;
  readonly #ended = new AbortController();
  #validUntil: number;

  /** Takes the session where it is free, and keeps it until {@link end}. */
  static async take(ledger: LeaseLedger, request: LeaseRequest): Promise<TakenLease> {
    const sentAt = performance.now();
    const opened = await ledger.openSession(request);
    if (opened.outcome === "held") return opened;
    return { outcome: "taken", lease: new SessionLease(ledger, opened.session, sentAt) };
  }

  private constructor(
    private readonly ledger: LeaseLedger,
    readonly session: Session,
    sentAt: number,
  ) {
    this.#validUntil = sentAt + session.leaseMs;
    this.#beating = this.#beat();
  }

  /** Aborted when the lease ended without {@link end}, or another holder took over. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  get held(): boolean {
    return !this.#lost.signal.aborted && !this.#ended.signal.aborted && performance.now() < this.#validUntil;
  }

  /** Gives the session back. Never rejects: where the ledger does not answer, the lease runs out. */
  async end(): Promise<void> {
    const wasHeld = this.held;
    this.#ended.abort();
    await this.#beating;
    if (wasHeld) await this.ledger.endSession(this.session).catch(() => undefined);
  }

  async #beat(): Promise<void> {
    const interval = this.session.leaseMs / 3;
    let next = interval;
    while (!this.#ended.signal.aborted) {
      const remaining = this.#validUntil - performance.now();
      if (remaining <= 0) return this.#lost.abort();
      await pause(Math.min(next, remaining), this.#ended.signal);
      if (this.#ended.signal.aborted) return;
      const sentAt = performance.now();
      const answer = await this.#answerInTime(sentAt);
      if (answer === "lost") return this.#lost.abort();
      if (answer === "held") this.#validUntil = sentAt + this.session.leaseMs;
      next = answer === "held" ? interval : interval / 10;
    }
  }

  /** A heartbeat that hangs must not outlast the lease. */
  async #answerInTime(sentAt: number): Promise<"held" | "lost" | "unanswered"> {
    const waiting = new AbortController();
    const signal = AbortSignal.any([waiting.signal, this.#ended.signal]);
    const heartbeat = this.ledger.heartbeat(this.session).catch(() => "unanswered" as const);
    const patience = pause(Math.max(0, this.#validUntil - sentAt), signal).then(() => "unanswered" as const);
    try {
      return await Promise.race([heartbeat, patience]);
    } finally {
      waiting.abort();
    }
  }
}
