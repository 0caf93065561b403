import { recordArguments } from "./arguments/records.js";
import type { Queryable } from "./database/database.js";
import { assert, FencelineError } from "./errors.js";
import { entryIds, type LedgerIdentity } from "./identity.js";
import { checkedCalls, shortened } from "./input.js";
import {
  type LedgerReceipt,
  type ReceiptRecordName,
  type ReceiptRow,
  receiptKinds,
  receiptOf,
} from "./ledger-receipts.js";
import { parseLineageId } from "./lineage-id.js";
import { type CapabilityReceipt, capabilityReceipt } from "./records/capability-receipt.js";
import { type DerivedEntry, derivedEntry } from "./records/derived-entry.js";
import { parseRecordAs } from "./records/parse-record.js";
import { type PermissionRevocation, permissionRevocation } from "./records/permission-revocation.js";
import { type PurgeReceipt, purgeReceipt } from "./records/purge-receipt.js";
import { type ResourceDiscoveryScan, resourceDiscoveryScan } from "./records/resource-discovery-scan.js";
import { type ResourceSubscription, resourceSubscription } from "./records/resource-subscription.js";
import { type ResourceVersion, resourceVersion } from "./records/resource-version.js";
import { parseUriScope } from "./scope-text.js";
import { type SubscriptionCounters, shownState } from "./subscription-state.js";

/** Some receipts of the feed, in its order, and where to go on. */
export interface ReceiptPage {
  readonly receipts: readonly LedgerReceipt[];
  /** Opaque; the same as before where nothing new came. `undefined`: nothing came yet. */
  readonly next: string | undefined;
}

export interface RecordLedger {
  /** `undefined`: there is none of this id, or it has not ended. */
  scanRecord(scanId: number): Promise<ResourceDiscoveryScan | undefined>;
  /** As it stands now. `undefined`: there is none of this id. */
  subscriptionRecord(subscriptionId: number): Promise<ResourceSubscription | undefined>;
  /** `undefined`: it was never accepted, or pruned. */
  versionRecord(lineageId: string): Promise<ResourceVersion | undefined>;
  /** `undefined`: there is none of this id; a subscription's record names its own. */
  capabilityRecord(capabilityReceiptId: number): Promise<CapabilityReceipt | undefined>;
  /** `undefined`: no entry of this ledger, or one that was purged. */
  entryRecord(entryId: string): Promise<DerivedEntry | undefined>;
  revocationRecord(revocationId: number): Promise<PermissionRevocation | undefined>;
  purgeRecord(purgeReceiptId: number): Promise<PurgeReceipt | undefined>;
  /**
   * The feed of version, stale, close and tombstone receipts. It skips none, whatever transaction wrote it and however long
   * that stayed open: one that is still open holds back what came after it. Within one subscription positions rise. After a
   * restore into another cluster some may come twice, with the same position.
   *
   * @param page.after `next` of the page before; without it, from the oldest receipt that was not pruned
   * @param page.kinds default: all four
   * @throws {FencelineError} `cursor_unknown`
   */
  receipts(page: {
    readonly after?: string;
    readonly limit: number;
    readonly kinds?: readonly ReceiptRecordName[];
  }): Promise<ReceiptPage>;
}

/** The records of a ledger, read from its tables; see `RecordLedger`. The queries are in `functions/records.sql`. */
export function recordLedger(database: Queryable, identity: LedgerIdentity): RecordLedger {
  const ids = entryIds(identity);

  async function one<Row = { readonly record: object }>(from: string, values: readonly unknown[]) {
    const [row] = await database.query<Row>(`select * from fenceline.${from}`, values);
    return row;
  }

  return checkedCalls(recordArguments, {
    async scanRecord(scanId) {
      const row = await one("scan_record($1)", [scanId]);
      return row && parseRecordAs(resourceDiscoveryScan, row.record);
    },

    async subscriptionRecord(subscriptionId) {
      const row = await one<SubscriptionRecordRow>("subscription_record($1)", [subscriptionId]);
      if (row === undefined) return undefined;
      const state = shownState(row.record.lifecycle, row.shown);
      return parseRecordAs(resourceSubscription, { ...row.record, state });
    },

    async versionRecord(lineageId) {
      const version = parseLineageId(lineageId);
      if (version === undefined) return undefined;
      const row = await one("version_record($1, $2)", [version.subscriptionId, version.ordinal]);
      return row && parseRecordAs(resourceVersion, row.record);
    },

    async capabilityRecord(capabilityReceiptId) {
      const row = await one("capability_record($1)", [capabilityReceiptId]);
      return row && parseRecordAs(capabilityReceipt, row.record);
    },

    async entryRecord(entryId) {
      const number = ids.numberOf(entryId);
      if (number === undefined) return undefined;
      const row = await one<EntryRecordRow>("entry_record($1)", [number]);
      // The id names the index as well: one of this ledger's numbers under another index is no entry.
      if (row === undefined || ids.format(row.index_id, number) !== entryId.toLowerCase()) return undefined;
      const parents = row.record.parents.map(({ of, ...parent }) => ({
        ...parent,
        of: "entry" in of ? { entryId: ids.format(...of.entry) } : of,
      }));
      return parseRecordAs(derivedEntry, { ...row.record, entryId: entryId.toLowerCase(), parents });
    },

    async revocationRecord(revocationId) {
      const row = await one<RevocationRecordRow>("revocation_record($1)", [revocationId]);
      return row && parseRecordAs(permissionRevocation, { ...row.record, scope: parseUriScope(row.scope_text) });
    },

    async purgeRecord(purgeReceiptId) {
      const row = await one("purge_record($1)", [purgeReceiptId]);
      return row && parseRecordAs(purgeReceipt, row.record);
    },

    async receipts({ after, limit, kinds }) {
      const position = await one<FeedPosition>("feed_position()", []);
      assert(position !== undefined, "feed_position answers with one row.");
      const { incarnation } = position;
      const from = after === undefined ? BEGINNING : parseCursor(after, position);
      const rows = await database.query<ReceiptRow & FeedPlace>(
        "select * from fenceline.receipt_page($1, $2, $3, $4, $5)",
        [receiptKinds(kinds), from.restored, from.xid, from.receipt_id, limit],
      );
      const last = rows.at(-1);
      return {
        receipts: rows.map(receiptOf),
        next: last === undefined ? after : formatCursor(last, incarnation),
      };
    },
  });
}

interface SubscriptionRecordRow {
  readonly record: { readonly lifecycle: ResourceSubscription["lifecycle"] };
  readonly shown: SubscriptionCounters;
}

interface EntryRecordRow {
  readonly index_id: number;
  readonly record: {
    readonly parents: readonly {
      readonly of: { readonly lineageId: string } | { readonly entry: [indexId: number, number: number] };
    }[];
  };
}

interface RevocationRecordRow {
  readonly record: object;
  readonly scope_text: string;
}

/** Where a receipt stands in the feed. */
interface FeedPlace {
  readonly restored: boolean;
  readonly xid: string;
  readonly receipt_id: number;
}

interface FeedPosition {
  readonly incarnation: number;
  /** The first transaction that the cluster has not reached. */
  readonly next_xid: string;
}

const BEGINNING: FeedPlace = { restored: true, xid: "0", receipt_id: 0 };

function formatCursor({ restored, xid, receipt_id }: FeedPlace, incarnation: number): string {
  return `${incarnation}.${restored ? "r" : "t"}${xid}.${receipt_id}`;
}

/** A cursor of a transaction that was not reached comes from another cluster, whose numbers say nothing here. */
function parseCursor(cursor: string, { incarnation, next_xid }: FeedPosition): FeedPlace {
  const [, of, kind, xid, receiptId] = /^(\d{1,10})\.([rt])(\d{1,19})\.(\d{1,16})$/.exec(cursor) ?? [];
  const isForeign = kind === "t" && xid !== undefined && BigInt(xid) >= BigInt(next_xid);
  if (xid === undefined || receiptId === undefined || Number(of) !== incarnation || isForeign) {
    throw new FencelineError(
      "cursor_unknown",
      `${shortened(cursor)} is no cursor of this ledger since it was last restored or moved: begin again without one.`,
    );
  }
  return { restored: kind === "r", xid, receipt_id: Number(receiptId) };
}
