import { assert } from "./errors.js";
import { lineageIdOf } from "./lineage-id.js";
import type { CloseReceipt } from "./records/close-receipt.js";
import { type LedgerRecord, parseRecordAs, recordSchemas } from "./records/parse-record.js";
import type { StaleReceipt } from "./records/stale-receipt.js";
import type { TombstoneReceipt } from "./records/tombstone-receipt.js";

/** The records that the feed of receipts is made of. */
export type ReceiptRecordName = "versionReceipt.v1" | "staleReceipt.v1" | "closeReceipt.v1" | "tombstoneReceipt.v1";
export type LedgerReceipt = LedgerRecord<ReceiptRecordName>;

/** A row of the table `receipt`, with the names of what it is about. */
export interface ReceiptRow {
  readonly receipt_id: number;
  readonly kind: string;
  readonly source: string;
  readonly subject: string;
  readonly subscription_id: number;
  readonly uri: string | null;
  readonly ordinal: number | null;
  readonly detail: Readonly<Record<string, unknown>> | null;
  readonly event: string | null;
  readonly to_state: string | null;
  readonly generation: number | null;
  readonly at: string;
}

const STALE_VERDICTS: Readonly<Record<string, StaleReceipt["verdict"]>> = {
  stale: "STALE",
  stale_after_close: "STALE_AFTER_CLOSE",
  not_issued: "NOT_ISSUED",
  refused_revoked: "REVOKED",
};

const CLOSE_STATES: Readonly<Record<string, CloseReceipt["state"]>> = {
  unsubscribing: "UNSUBSCRIBING",
  closed: "CLOSED",
  unsubscribe_unknown: "UNSUBSCRIBE_UNKNOWN",
};

const TOMBSTONE_STATES: Readonly<Record<string, TombstoneReceipt["state"]>> = {
  tombstone_pending: "PENDING",
  removal_held: "HELD",
  tombstone: "CONFIRMED",
};

/** Kinds of the table `receipt`, by the record that each becomes. */
const KINDS: Readonly<Record<ReceiptRecordName, readonly string[]>> = {
  "versionReceipt.v1": ["version"],
  "staleReceipt.v1": Object.keys(STALE_VERDICTS),
  "closeReceipt.v1": Object.keys(CLOSE_STATES),
  "tombstoneReceipt.v1": Object.keys(TOMBSTONE_STATES),
};

export const receiptRecordNames = Object.keys(KINDS) as [ReceiptRecordName, ...ReceiptRecordName[]];

/** The kinds of the table `receipt` that become these records. Default: all. */
export function receiptKinds(names: readonly ReceiptRecordName[] = receiptRecordNames): string[] {
  return names.flatMap((name) => KINDS[name]);
}

/** The record of a row. Only what is named here leaves the ledger: what a server said stays in `detail` (P8). */
export function receiptOf(row: ReceiptRow): LedgerReceipt {
  const record = receiptRecordNames.find((name) => KINDS[name].includes(row.kind));
  assert(record !== undefined, `A receipt of the kind ${row.kind} becomes a record.`);
  const { receipt_id: position, source, subject, subscription_id: subscriptionId, uri, at } = row;
  const common = { record, position, source, subject, subscriptionId, uri, at };
  return parseRecordAs(recordSchemas[record], { ...common, ...ownFields(record, row) });
}

function ownFields(record: ReceiptRecordName, { kind, ordinal, detail, ...row }: ReceiptRow): object {
  switch (record) {
    case "versionReceipt.v1":
      return {
        lineageId: lineageIdOf(row.subscription_id, ordinal ?? 0),
        readOrdinal: ordinal,
        generation: detail?.["generation"],
        currentWhenAccepted: detail?.["current"],
      };
    case "staleReceipt.v1":
      return {
        readOrdinal: ordinal,
        verdict: STALE_VERDICTS[kind],
        sessionGeneration: detail?.["session"] ?? null,
      };
    case "closeReceipt.v1":
      return {
        state: CLOSE_STATES[kind],
        event: row.event,
        revocationId: detail?.["revocation"] ?? null,
        generation: row.generation,
        closeOrdinal: ordinal,
        closeEpoch: detail?.["policyEpoch"] ?? null,
      };
    case "tombstoneReceipt.v1":
      return {
        state: TOMBSTONE_STATES[kind],
        readOrdinal: ordinal,
        because: detail?.["because"] ?? null,
      };
  }
}
