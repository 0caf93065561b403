import { auditArguments } from "./arguments/audit.js";
import type { Queryable } from "./database/database.js";
import { type EntryIdParts, parseEntryId } from "./entry-id.js";
import { assert } from "./errors.js";
import { call } from "./fenced-call.js";
import { entryIds, type LedgerIdentity } from "./identity.js";
import { checkedCalls } from "./input.js";
import { lineageIdOf } from "./lineage-id.js";
import type { DerivedEntry } from "./records/derived-entry.js";
import { keyDigest } from "./resource-rows.js";
import { resourceKey } from "./resource-uri.js";
import type { ListedFault } from "./scans.js";

export interface TracedVersion {
  readonly lineageId: string;
  readonly uri: string;
  readonly ordinal: number;
  /** Hex; `undefined` once purged. */
  readonly digest: string | undefined;
  readonly acceptedAt: Date;
  readonly source: string;
  readonly reader: string;
  readonly readId: string;
  readonly session: number;
  readonly scan: number | undefined;
  readonly server: string | undefined;
  readonly entries: readonly {
    readonly index: string;
    readonly store: string;
    readonly kind: DerivedEntry["kind"];
    readonly id: string;
    readonly state: string;
  }[];
}

/** An entry in a trace, also one that a purge took: that it was, from what, and the receipts of its end; no content (P8). */
export interface TracedEntry {
  readonly id: string;
  /** 0: the one asked for; below: what it came from, step by step; above: what came from it. */
  readonly step: number;
  readonly index: string;
  readonly store: string;
  readonly kind: DerivedEntry["kind"];
  /** Of its group: `INTENT`, `PRESENT`, `ABANDONED`, `PURGING`, `PURGED`. */
  readonly state: DerivedEntry["state"];
  readonly audience: string | undefined;
  readonly purgedAt: Date | undefined;
  readonly purgeReceipts: readonly number[];
  readonly parents: readonly {
    readonly as: "alternative" | "ingredient";
    /** Parents of one number are alternatives. */
    readonly ingredient: number;
    readonly lineageId?: string;
    /** Of the part, where one was named. */
    readonly uri?: string;
    readonly entryId?: string;
  }[];
}

export interface Trace {
  readonly uri?: string;
  readonly entry?: string;
  readonly versions: readonly TracedVersion[];
  /** Of an entry: itself, and everything above and below it. */
  readonly derivations: readonly TracedEntry[];
}

export interface Invariant {
  readonly name: string;
  readonly checked: number;
  readonly broken: number;
}

export interface LedgerStatus {
  readonly sources: readonly {
    readonly name: string;
    readonly reader: string;
    readonly era: string | undefined;
    readonly pushed: number;
    readonly polled: number;
    /** Verdict of the catalogue, or `UNSETTLED` where the last scans came to none (S4). */
    readonly scan: string | undefined;
    readonly oldestVerifiedAt: Date | undefined;
    readonly due: number;
    /** Owner of the live session, or `undefined`. */
    readonly holder: string | undefined;
    /** When the catalogue was measured, and when it is to be measured again (S5). */
    readonly catalogMeasuredAt: Date | undefined;
    readonly nextReviewAt: Date | undefined;
    /** The last scan that ended, whatever came of it: one that failed leaves the catalogue as it was (S8). */
    readonly lastScan:
      | {
          /** `undefined`: it was complete, and nothing was published of it. */
          readonly verdict: string | undefined;
          /** Why it is INCOMPLETE or VOID. */
          readonly reason: string | undefined;
          readonly endedAt: Date;
        }
      | undefined;
    /** What was not valid in the list when it was last walked to its end. */
    readonly listFaults: readonly ListedFault[];
    /** Removals that the floor holds back (S8). */
    readonly heldRemovals: number;
  }[];
  readonly revocations: { readonly open: number; readonly complete: number };
  readonly stores: readonly { readonly store: string; readonly reachable: boolean; readonly failure?: string }[];
  /** Work that waits, by kind: resources to read and to index, groups of entries to remove. */
  readonly waiting: {
    readonly reads: number;
    readonly indexing: number;
    readonly purging: number;
    /** What is to be indexed, by index; also of one that no configuration names any more. */
    readonly byIndex: readonly { readonly index: string; readonly version: number; readonly resources: number }[];
    /** What is to be removed, by store. */
    readonly byStore: readonly { readonly store: string; readonly groups: number }[];
  };
}

export type EntryStanding =
  /** Recorded, and to be in the store. */
  | "present"
  /** Recorded, and being written or removed. */
  | "changing"
  /** Bears the mark of this ledger and index, and no record speaks of it: to be deleted. */
  | "unrecorded"
  /** Of another index, another ledger, or none. */
  | "foreign";

export interface AuditLedger {
  /** From a URI (of any source) or an entry id, both ways and through every derivation; also of what a purge took (L4). */
  trace(of: { readonly uri: string } | { readonly entry: string }): Promise<Trace>;
  /** Recomputes what a database can see of the invariants in `reliability`. */
  verify(): Promise<Invariant[]>;
  status(): Promise<LedgerStatus>;
  /** Ids the ledger records as PRESENT in an index's store, paged by id, for the comparison of store and ledger. */
  recordedEntries(index: string, page: { readonly limit: number; readonly afterId?: string }): Promise<string[]>;
  /** What the ledger knows of ids found in an index's store, in their order. */
  standingOfEntries(index: string, entryIds: readonly string[]): Promise<EntryStanding[]>;
  /**
   * Repair, for entries that are recorded and not in their store: they are not reused any more, and what they stand for is
   * read again and written anew. The number of subscriptions that became due.
   */
  requeueLostEntries(index: string, entryIds: readonly string[]): Promise<number>;
}

/** What a ledger says about itself; see `AuditLedger`. The rules are in `functions/audit.sql` and `functions/verify.sql`. */
export function auditLedger(database: Queryable, identity: LedgerIdentity): AuditLedger {
  const ids = entryIds(identity);
  return checkedCalls(auditArguments, {
    async trace(of) {
      const entry = "entry" in of ? (ids.numberOf(of.entry) ?? null) : null;
      const uri = "uri" in of ? keyDigest(resourceKey(of.uri)) : null;
      const rows = await database.query<TraceRow>("select * from fenceline.trace($1, $2)", [uri, entry]);
      const derivations =
        entry === null
          ? []
          : await database.query<TracedEntryRow>("select * from fenceline.trace_derivations($1)", [entry]);
      return {
        ...of,
        versions: rows.map((row) => tracedVersion(row, ids.format)),
        derivations: derivations.map((row) => tracedEntry(row, ids.format)),
      };
    },

    async verify() {
      return database.query<Invariant>("select * from fenceline.verify()");
    },

    async status() {
      const sources = await database.query<SourceStatusRow>("select * from fenceline.source_status()");
      const [row] = await database.query<LedgerStatusRow>("select * from fenceline.ledger_status()");
      assert(row !== undefined, "ledger_status answers with one row.");
      return {
        sources: sources.map(sourceStatus),
        revocations: { open: row.open_revocations, complete: row.complete_revocations },
        stores: (row.stores ?? []).map(({ store, failure }) =>
          failure === null ? { store, reachable: true } : { store, reachable: false, failure },
        ),
        waiting: waitingOf(row),
      };
    },

    async recordedEntries(index, { limit, afterId }) {
      const after = afterId === undefined ? -1 : ids.numberOf(afterId);
      assert(after !== undefined, `${afterId} is an entry id of this ledger.`);
      const rows = await database.query<{ index_id: number; entry_number: number }>(
        "select * from fenceline.recorded_entries($1, $2, $3)",
        [index, limit, after],
      );
      return rows.map((row) => ids.format(row.index_id, row.entry_number));
    },

    async standingOfEntries(index, entryIds) {
      const parts = entryIds.map((id) => parseEntryId(id));
      const versions = await database.query<{ index_id: number }>(
        "select index_id from fenceline.index where name = $1",
        [index],
      );
      const indexIds = new Set(versions.map((version) => version.index_id));
      const isOurs = (part: EntryIdParts | undefined): part is EntryIdParts =>
        part?.mark === identity.mark && indexIds.has(part.indexId);
      const rows = await database.query<{ index_id: number; entry_number: number; state: string }>(
        "select * from fenceline.entry_states($1, $2)",
        [index, parts.filter(isOurs).map((part) => part.number)],
      );
      const stateOf = new Map(rows.map((row) => [`${row.index_id} ${row.entry_number}`, row.state]));
      return parts.map((part) => {
        if (!isOurs(part)) return "foreign";
        const state = stateOf.get(`${part.indexId} ${part.number}`);
        return state === undefined ? "unrecorded" : state === "PRESENT" ? "present" : "changing";
      });
    },

    async requeueLostEntries(index, entryIds) {
      const numbers = entryIds.map((id) => ids.numberOf(id)).filter((number) => number !== undefined);
      return call<number>(database, "fenceline.requeue_lost_entries($1, $2)", [index, numbers]);
    },
  });
}

interface TraceRow {
  readonly subscription_id: number;
  readonly ordinal: number;
  readonly uri: string;
  readonly digest: string | null;
  readonly accepted_at: Date;
  readonly source: string;
  readonly reader: string;
  readonly read_id: string;
  readonly session_id: number;
  readonly scan_id: number | null;
  readonly server: string | null;
  readonly entries:
    | readonly {
        index: string;
        indexId: number;
        store: string;
        kind: DerivedEntry["kind"];
        number: number;
        state: string;
      }[]
    | null;
}

interface TracedEntryRow {
  readonly entry_number: number;
  readonly place: number;
  readonly index_id: number;
  readonly index: string;
  readonly store: string;
  readonly kind: DerivedEntry["kind"];
  readonly state: DerivedEntry["state"];
  readonly audience: string | null;
  readonly purged_at: Date | null;
  readonly receipts: readonly number[];
  readonly parents:
    | readonly {
        ingredient: number;
        as: "alternative" | "ingredient";
        index: number | null;
        number: number | null;
        lineageId: string | null;
        uri: string | null;
      }[]
    | null;
}

interface SourceStatusRow {
  readonly name: string;
  readonly reader: string;
  readonly era: string | null;
  readonly pushed: number;
  readonly polled: number;
  readonly scan: string | null;
  readonly oldest_verified_at: Date | null;
  readonly due: number;
  readonly holder: string | null;
  readonly catalog_measured_at: Date | null;
  readonly next_review_at: Date | null;
  readonly last_scan_verdict: string | null;
  readonly last_scan_reason: string | null;
  readonly last_scan_ended_at: Date | null;
  readonly list_faults: readonly ListedFault[] | null;
  readonly held_removals: number;
}

interface LedgerStatusRow {
  readonly open_revocations: number;
  readonly complete_revocations: number;
  readonly reads: number;
  readonly by_index: LedgerStatus["waiting"]["byIndex"] | null;
  readonly by_store: LedgerStatus["waiting"]["byStore"] | null;
  readonly stores: readonly { store: string; failure: string | null }[] | null;
}

function sourceStatus(row: SourceStatusRow): LedgerStatus["sources"][number] {
  const { name, reader, pushed, polled, due, held_removals: heldRemovals, last_scan_ended_at: endedAt } = row;
  return {
    ...{ name, reader, pushed, polled, due, heldRemovals },
    era: row.era ?? undefined,
    scan: row.scan ?? undefined,
    oldestVerifiedAt: row.oldest_verified_at ?? undefined,
    holder: row.holder ?? undefined,
    catalogMeasuredAt: row.catalog_measured_at ?? undefined,
    nextReviewAt: row.next_review_at ?? undefined,
    listFaults: row.list_faults ?? [],
    lastScan:
      endedAt === null
        ? undefined
        : { verdict: row.last_scan_verdict ?? undefined, reason: row.last_scan_reason ?? undefined, endedAt },
  };
}

function waitingOf({ reads, by_index, by_store }: LedgerStatusRow): LedgerStatus["waiting"] {
  const byIndex = by_index ?? [];
  const byStore = by_store ?? [];
  return {
    reads,
    indexing: byIndex.reduce((sum, { resources }) => sum + resources, 0),
    purging: byStore.reduce((sum, { groups }) => sum + groups, 0),
    byIndex,
    byStore,
  };
}

function tracedVersion(row: TraceRow, idOf: (indexId: number, number: number) => string): TracedVersion {
  return {
    lineageId: lineageIdOf(row.subscription_id, row.ordinal),
    uri: row.uri,
    ordinal: row.ordinal,
    digest: row.digest ?? undefined,
    acceptedAt: row.accepted_at,
    source: row.source,
    reader: row.reader,
    readId: row.read_id,
    session: row.session_id,
    scan: row.scan_id ?? undefined,
    server: row.server ?? undefined,
    entries: (row.entries ?? []).map(({ index, indexId, store, kind, number, state }) => ({
      index,
      store,
      kind,
      id: idOf(indexId, number),
      state,
    })),
  };
}

function tracedEntry(row: TracedEntryRow, idOf: (indexId: number, number: number) => string): TracedEntry {
  const { index, store, kind, state } = row;
  return {
    id: idOf(row.index_id, row.entry_number),
    step: row.place,
    index,
    store,
    kind,
    state,
    audience: row.audience ?? undefined,
    purgedAt: row.purged_at ?? undefined,
    purgeReceipts: row.receipts,
    parents: (row.parents ?? []).map((parent) => ({
      as: parent.as,
      ingredient: parent.ingredient,
      ...(parent.lineageId !== null && { lineageId: parent.lineageId }),
      ...(parent.uri !== null && { uri: parent.uri }),
      ...(parent.number !== null && parent.index !== null && { entryId: idOf(parent.index, parent.number) }),
    })),
  };
}
