import { exportArguments } from "./arguments/exports.js";
import type { Queryable } from "./database/database.js";
import { call } from "./fenced-call.js";
import { entryIds, type LedgerIdentity } from "./identity.js";
import { type IndexWork, type WorkRow, workOf } from "./index-work.js";
import { checkedCalls } from "./input.js";

/** What left our sight (L6): a version, or an entry. */
export interface ExportRecord {
  readonly exportId: number;
  /** Of an exported entry. */
  readonly entryId: string | undefined;
  /** The version that left, or those the entry was made of. */
  readonly versions: readonly {
    readonly lineageId: string;
    readonly source: string;
    readonly reader: string;
    readonly uri: string;
  }[];
  readonly destination: string;
  readonly exportedAt: Date;
  readonly acknowledgedAt: Date | undefined;
  /** Standing revocations that cover something it held, and could not reach it. */
  readonly revocations: readonly number[];
}

export interface ExportLedger {
  /**
   * Accepted newest versions of a reader, for a loader; each is recorded as an export with the parts it held (L6). What is
   * hidden or revoked is left out.
   */
  exportVersions(page: {
    readonly source: string;
    readonly reader: string;
    readonly destination: string;
    readonly limit: number;
    readonly afterId?: number;
  }): Promise<IndexWork[]>;
  /** Records that entries leave our sight: those of them that the asker may see, which are answered with. */
  exportEntries(request: {
    readonly index: string;
    readonly entryIds: readonly string[];
    readonly asker: readonly string[];
    readonly destination: string;
  }): Promise<{ readonly exportId: number; readonly entryId: string }[]>;
  /**
   * Exports as a feed, in the order of their ids.
   *
   * @param filter.open `true`: those a standing revocation lists and nobody acknowledged; `false`: the others
   * @param filter.revocationId those that this revocation could not reach
   * @param filter.limit default 1000
   */
  exports(filter?: {
    readonly after?: number;
    readonly open?: boolean;
    readonly revocationId?: number;
    readonly limit?: number;
  }): Promise<ExportRecord[]>;
  /** Somebody dealt with it; a revocation that waited for nothing else is `COMPLETE`. `false`: unknown, or done before. */
  acknowledgeExport(exportId: number): Promise<boolean>;
}

/** The claim of what is not claimed: an export. */
const NO_CLAIM = "00000000-0000-0000-0000-000000000000";

/** The exports of a ledger; see `ExportLedger`. The rules are in `functions/exports.sql`. */
export function exportLedger(database: Queryable, identity: LedgerIdentity): ExportLedger {
  const ids = entryIds(identity);
  return checkedCalls(exportArguments, {
    async exportVersions({ source, reader, destination, limit, afterId }) {
      const rows = await database.query<WorkRow>("select * from fenceline.export_versions($1, $2, $3, $4, $5)", [
        source,
        reader,
        destination,
        limit,
        afterId ?? 0,
      ]);
      return rows.map((row) => ({ ...workOf(row), claimToken: NO_CLAIM, present: [] }));
    },

    async exportEntries({ index, entryIds: asked, asker, destination }) {
      const idOf = new Map(asked.map((id) => [ids.numberOf(id), id]));
      idOf.delete(undefined);
      if (idOf.size === 0 || asker.length === 0) return [];
      const rows = await database.query<{ export_id: number; entry_number: number }>(
        "select * from fenceline.export_entries($1, $2, $3, $4)",
        [index, [...idOf.keys()], asker, destination],
      );
      return rows.map((row) => ({ exportId: row.export_id, entryId: idOf.get(row.entry_number) as string }));
    },

    async exports({ after = 0, open, revocationId, limit = 1000 } = {}) {
      const rows = await database.query<ExportRow>("select * from fenceline.export_feed($1, $2, $3, $4)", [
        after,
        limit,
        open ?? null,
        revocationId ?? null,
      ]);
      return rows.map((row) => ({
        exportId: row.export_id,
        entryId:
          row.entry_number === null || row.index_id === null ? undefined : ids.format(row.index_id, row.entry_number),
        versions: row.roots ?? [],
        destination: row.destination,
        exportedAt: row.exported_at,
        acknowledgedAt: row.acknowledged_at ?? undefined,
        revocations: row.revocations,
      }));
    },

    async acknowledgeExport(exportId) {
      for (;;) {
        const done = await call<boolean | null>(database, "fenceline.acknowledge_export($1)", [exportId]);
        // Null: a batch listed it for another revocation meanwhile; each comes once, so this ends.
        if (done !== null) return done;
      }
    },
  });
}

interface ExportRow {
  readonly export_id: number;
  readonly entry_number: number | null;
  readonly index_id: number | null;
  readonly roots: ExportRecord["versions"] | null;
  readonly destination: string;
  readonly exported_at: Date;
  readonly acknowledged_at: Date | null;
  readonly revocations: readonly number[];
}
