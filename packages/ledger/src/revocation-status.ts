import type { Queryable } from "./database/database.js";
import type { PurgeWait, RevocationRole, RevocationState, RevocationStatus } from "./revocations.js";
import { parseUriScope } from "./scope-text.js";

/**
 * Revocations with what became of them, newest first.
 *
 * @param revocationId one of them, or `null` for all
 * @param open `true` for those still to be completed, `false` for the others, `null` for any
 */
export async function revocationStatuses(
  database: Queryable,
  revocationId: number | null,
  open: boolean | null,
): Promise<RevocationStatus[]> {
  const rows = await database.query<StatusRow>("select * from fenceline.revocation_status($1, $2)", [
    revocationId,
    open,
  ]);
  return rows.map((row) => ({
    revocationId: row.revocation_id,
    requestId: row.request_id,
    state: row.state,
    nothingCovered: row.nothing_covered,
    subject: row.subject,
    role: row.role,
    source: row.source ?? undefined,
    scope: parseUriScope(row.scope_text),
    reason: row.reason,
    requestedBy: row.requested_by,
    effectiveAt: row.effective_at,
    completedAt: row.completed_at ?? undefined,
    covered: {
      resources: row.covered_resources,
      entries: (row.stores ?? []).reduce((sum, store) => sum + store.entries, 0),
    },
    batchesLeft: row.batches_left,
    stores: (row.stores ?? []).map(storeStatus),
    exports: row.exports,
  }));
}

function storeStatus({ store, entries, remaining, absentAt, claim, failure, waits }: StoreStatusRow) {
  const gone = remaining === 0;
  return {
    store,
    entries,
    remaining,
    absentAt: gone && absentAt !== null ? new Date(absentAt) : undefined,
    claim: gone ? (claim ?? "hidden") : ("hidden" as const),
    ...(!gone && failure !== null && { failure }),
    waits: (waits ?? []).map(({ until, ...wait }) => ({ ...wait, ...(until !== null && { until: new Date(until) }) })),
  };
}

interface StatusRow {
  readonly revocation_id: number;
  readonly request_id: string;
  readonly state: RevocationState;
  readonly nothing_covered: boolean;
  readonly subject: string;
  readonly role: RevocationRole;
  readonly source: string | null;
  readonly scope_text: string;
  readonly reason: string;
  readonly requested_by: string;
  readonly effective_at: Date;
  readonly completed_at: Date | null;
  readonly covered_resources: number;
  readonly batches_left: boolean;
  readonly stores: readonly StoreStatusRow[] | null;
  readonly exports: number;
}

interface StoreStatusRow {
  readonly store: string;
  readonly entries: number;
  readonly remaining: number;
  readonly absentAt: number | null;
  readonly claim: "absent" | "erased" | null;
  readonly failure: string | null;
  readonly waits: readonly { because: PurgeWait["because"]; entries: number; until: number | null }[] | null;
}
