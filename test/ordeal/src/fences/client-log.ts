import type { AcceptOutcome, SettledAs, SettleOutcome } from "@fenceline/ledger";

/** What is wrong with an answer, as whoever sends it knows; nothing that others do meanwhile can put it right. */
export type Deviation =
  | "none"
  /** The request was answered before. */
  | "again"
  | "wrong_request_id"
  | "never_issued"
  /** Sent under the fence of a session that was taken over. */
  | "old_session"
  /** Sent by today's session, to a request of one before it. */
  | "request_of_old_session"
  /** The subscription was closed and opened again since the request was sent. */
  | "old_generation";

/** One answer or settlement: what was sent, and what the ledger said. */
export interface SentAnswer {
  readonly scopeId: number;
  readonly subscriptionId: number;
  readonly ordinal: number;
  readonly deviation: Deviation;
  /** Hex digest of the content; of a settlement how it ended. */
  readonly content: string | { readonly settledAs: SettledAs };
  readonly outcome: AcceptOutcome | SettleOutcome;
}

/** Everything that was answered, as the clients saw it: the checker holds the ledger's rows against it. */
export type ClientLog = SentAnswer[];

/** Whether the ledger said that it raised the watermark to this ordinal (F3, F7). */
export function raisedWatermark({ content, outcome }: SentAnswer): boolean {
  if (typeof content === "string") return outcome.startsWith("accepted") || outcome.startsWith("unchanged");
  const evidence = content.settledAs === "not_found" || content.settledAs === "forbidden";
  return evidence && outcome !== "stale" && outcome !== "not_issued";
}

/** Whether the ledger said that the answer changed nothing. */
export function wasRefused({ outcome }: SentAnswer): boolean {
  return outcome === "stale" || outcome === "stale_after_close" || outcome === "not_issued" || outcome === "revoked";
}
