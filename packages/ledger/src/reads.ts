import type { Session } from "./sessions.js";

export type ReadReason = "first" | "notified" | "stream_opened" | "timer" | "vanished" | "reopened" | "demand";

/** A read that took its ordinal (F1). The ordinal is also the claim: at most one is in flight per URI (U5). */
export interface IssuedRead {
  readonly subscriptionId: number;
  readonly ordinal: number;
  /** UUID; the answer has to name it. */
  readonly requestId: string;
  /** The server's own spelling. */
  readonly uri: string;
  readonly generation: number;
  readonly reason: ReadReason;
}

/** One content of an answer; its URI may differ from the one asked for (F5). */
export interface ReadPart {
  readonly uri: string;
  readonly mimeType?: string;
  readonly text?: string;
  readonly bytes?: Uint8Array;
}

export interface ReadAnswer {
  readonly subscriptionId: number;
  readonly ordinal: number;
  readonly requestId: string;
  /** SHA-256 over the canonical encoding of all parts. */
  readonly digest: Uint8Array;
  readonly mimeType?: string;
  readonly parts: readonly ReadPart[];
}

export type AcceptOutcome =
  /** A new version, current. */
  | "accepted"
  /** A new version, but something was announced after its read was sent: kept, not served as fresh, due again (F3). */
  | "accepted_not_current"
  /** Same content: watermark and `verifiedAt` move, nothing is indexed again (F6). */
  | "unchanged"
  | "unchanged_not_current"
  /** Older than what was accepted, or of an older session or generation: a stale receipt and nothing else (F4). */
  | "stale"
  /** The subscription was closed: audit only (U8). */
  | "stale_after_close"
  /** A standing revocation covers it (P2). */
  | "revoked"
  /** No such read was issued, or it was settled before (F9). */
  | "not_issued";

export interface AcceptedRead {
  readonly subscriptionId: number;
  readonly ordinal: number;
  readonly outcome: AcceptOutcome;
  /** Of the newest version, where the outcome accepted one or confirmed it unchanged. */
  readonly lineageId?: string;
}

/** How a read ended without content. */
export type SettledAs = "lost" | "failed" | "empty" | "too_large" | "not_found" | "forbidden" | "unauthorized";

export type SettleOutcome = "settled" | "tombstone_pending" | "tombstoned" | "hidden" | "stale" | "not_issued";

export interface ReadLedger {
  /** Claims what is due, oldest first, and issues each its ordinal, in one round trip. `[]` also when the session is lost. */
  issueDueReads(session: Session, page: { readonly limit: number; readonly leaseMs: number }): Promise<IssuedRead[]>;
  /** Issues reads for these URIs whether due or not (on demand); those in flight, closed or revoked are left out. */
  issueReads(
    session: Session,
    request: { readonly uris: readonly string[]; readonly reason: ReadReason; readonly leaseMs: number },
  ): Promise<IssuedRead[]>;
  /** Milliseconds until the next read of this scope is due; 0 when one is, `undefined` when none will be. */
  millisecondsToNextRead(session: Session): Promise<number | undefined>;
  /** The one place that accepts (F3): the whole fence, versions, bodies, receipts and outbox in one round trip. */
  acceptResourceVersions(session: Session, answers: readonly ReadAnswer[]): Promise<AcceptedRead[]>;
  /** Ends reads that brought no content (F7, F9, P7). */
  settleReads(
    session: Session,
    reads: readonly {
      readonly subscriptionId: number;
      readonly ordinal: number;
      readonly requestId: string;
      readonly as: SettledAs;
      readonly message?: string;
    }[],
  ): Promise<{ readonly subscriptionId: number; readonly ordinal: number; readonly outcome: SettleOutcome }[]>;
}
