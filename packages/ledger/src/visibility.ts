import { visibilityArguments } from "./arguments/visibility.js";
import type { Queryable } from "./database/database.js";
import { PREPARED } from "./fenced-call.js";
import { entryIds, type LedgerIdentity } from "./identity.js";
import { checkedCalls } from "./input.js";
import { lineageIdOf } from "./lineage-id.js";

/** §9. `changed`: a newer version is known to exist; `unverified`: stream broken or credential problem; `expired`: past its bound. */
export type Freshness = "fresh" | "changed" | "unverified" | "expired";

export interface VisibleEntry {
  readonly entryId: string;
  readonly lineageId: string;
  readonly source: string;
  readonly reader: string;
  /** URI of the part the entry was made from (F5). */
  readonly uri: string;
  readonly freshness: Freshness;
  /** When the source last confirmed the content: the time its read was issued. */
  readonly verifiedAt: Date | undefined;
  /** Milliseconds since then, by the ledger's clock. */
  readonly ageMs: number | undefined;
}

export interface VisibilityLedger {
  /**
   * What of these entries the asker may see, and how fresh it is, in one query (G2, §9). An id without a record, of another
   * ledger, not PRESENT, hidden or not granted is left out. The order of the answer is that of the ids.
   *
   * @param asker the user (or service) first, then its groups: `["user:alice", "group:sales"]`
   */
  visibleEntries(request: {
    readonly index: string;
    readonly entryIds: readonly string[];
    readonly asker: readonly string[];
  }): Promise<VisibleEntry[]>;
}

/** What an asker may see; see `VisibilityLedger`. The rules are in `functions/visibility.sql`. */
export function visibilityLedger(database: Queryable, identity: LedgerIdentity): VisibilityLedger {
  const ids = entryIds(identity);
  return checkedCalls(visibilityArguments, {
    async visibleEntries({ index, entryIds: asked, asker }) {
      const parts = asked.map((id) => ids.partsOf(id));
      const known = [...new Set(parts.flatMap((part) => part?.number ?? []))];
      if (known.length === 0 || asker.length === 0) return [];
      const rows = await database.query<VisibleRow>(
        "select * from fenceline.visible_entries($1, $2, $3)",
        [index, known, asker],
        PREPARED,
      );
      const found = new Map(
        rows.flatMap((row) => {
          const entry = {
            lineageId: lineageIdOf(row.subscription_id, row.ordinal),
            source: row.source,
            reader: row.reader,
            uri: row.uri,
            freshness: row.freshness,
            verifiedAt: row.verified_at ?? undefined,
            ageMs: row.age_ms ?? undefined,
          };
          return row.entry_numbers.map((number) => [number, { indexId: row.index_id, entry }] as const);
        }),
      );
      return asked.flatMap((entryId, position) => {
        const { indexId, number } = parts[position] ?? {};
        const group = number === undefined ? undefined : found.get(number);
        // The id names the index as well: one of this ledger's numbers under another index is no entry.
        return group === undefined || group.indexId !== indexId ? [] : [{ entryId, ...group.entry }];
      });
    },
  });
}

interface VisibleRow {
  readonly entry_numbers: readonly number[];
  readonly index_id: number;
  readonly subscription_id: number;
  readonly ordinal: number;
  readonly source: string;
  readonly reader: string;
  readonly uri: string;
  readonly freshness: Freshness;
  readonly verified_at: Date | null;
  readonly age_ms: number | null;
}
