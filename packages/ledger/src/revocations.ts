import { randomUUID } from "node:crypto";
import { revocationArguments } from "./arguments/revocations.js";
import type { Queryable } from "./database/database.js";
import { FencelineError } from "./errors.js";
import { call, fenceOf } from "./fenced-call.js";
import { entryIds, type LedgerIdentity } from "./identity.js";
import { checkedCalls } from "./input.js";
import type { PurgeReceipt } from "./records/purge-receipt.js";
import type { UriScope } from "./resource-uri.js";
import { requestIdReused, revocationParameters } from "./revocation-parameters.js";
import { revocationStatuses } from "./revocation-status.js";
import type { Session } from "./sessions.js";
import { sourceIdOf } from "./subjects.js";

export type RevocationRole = "reader" | "audience" | "both";
export type RevocationState = "EFFECTIVE" | "COMPLETE" | "COMPLETE_EXCEPT_EXPORTS" | "LIFTED";

export interface RevocationRequest {
  /** Idempotency key; the same id with the same contents answers with the same revocation. Default: a new UUID. */
  readonly requestId?: string;
  /** Default: every source. */
  readonly source?: string;
  readonly subject: string;
  /** Default `both` (P1). */
  readonly role?: RevocationRole;
  /** Default: everything. */
  readonly scope?: UriScope;
  readonly reason: string;
  readonly requestedBy?: string;
}

/** Why entries that must go are still there (P5). */
export interface PurgeWait {
  /**
   * - `writer`: the lease of the process that writes them runs; a write may come yet
   * - `claimed`: a process is removing them
   * - `failing`: their store failed, see `failure`; tried again later
   * - `due`: nobody has taken them; if that lasts, no running process removes from the store
   */
  readonly because: "writer" | "claimed" | "failing" | "due";
  readonly entries: number;
  /** When it ends at the latest, or is tried again; absent for `due`. */
  readonly until?: Date;
}

export interface RevocationStatus {
  readonly revocationId: number;
  readonly requestId: string;
  readonly state: RevocationState;
  readonly nothingCovered: boolean;
  readonly subject: string;
  readonly role: RevocationRole;
  readonly source: string | undefined;
  readonly scope: UriScope;
  readonly reason: string;
  readonly requestedBy: string;
  readonly effectiveAt: Date;
  readonly completedAt: Date | undefined;
  readonly covered: { readonly resources: number; readonly entries: number };
  /** Whether `advanceRevocation` still has something to close, mark or reopen: more may come to be listed under `stores`. */
  readonly batchesLeft: boolean;
  readonly stores: readonly {
    readonly store: string;
    readonly entries: number;
    /** Entries not yet verified absent, with the failure that blocks them where there is one. */
    readonly remaining: number;
    readonly absentAt: Date | undefined;
    readonly claim: "hidden" | "absent" | "erased";
    readonly failure?: string;
    /** What the remaining entries wait for; empty where none remain. */
    readonly waits: readonly PurgeWait[];
  }[];
  /** Exports it cannot reach and nobody acknowledged (L6). */
  readonly exports: number;
}

/** Groups of one store that nothing holds any more, claimed for removal. */
export interface PurgeClaim {
  readonly groupId: number;
  readonly claimToken: string;
  readonly indexId: number;
  /** Its entries were absent on an earlier sweep; the write of some may have ended since (P3). */
  readonly sweptBefore: boolean;
  readonly entries: readonly { readonly entryId: string; readonly storeKey?: string }[];
}

export interface RevocationLedger {
  /**
   * Takes effect when this returns (P2): nothing it covers is shown or accepted from then on. Wakes the purge by NOTIFY.
   *
   * @throws {FencelineError} `input_invalid`, `source_unknown`, `uri_invalid`, `request_id_reused`
   */
  revoke(request: RevocationRequest): Promise<RevocationStatus>;
  /**
   * The policy by which a 403 becomes a revocation (P7): of each of these reads that was settled as `forbidden` inside its
   * fence, the URI is revoked for the session's reader, under a request id made of the read. Others are passed over. To be
   * called after `settleReads`, which has hidden the resource already; if a process dies in between, the next 403 of the
   * resource brings it here again. Idempotent.
   */
  revokeForbidden(
    session: Session,
    reads: readonly { readonly subscriptionId: number; readonly ordinal: number }[],
  ): Promise<RevocationStatus[]>;
  /**
   * Lifts it: what it closed, and no other standing revocation covers, is read again under a new generation, and served
   * when that read is accepted. Denies nothing from the first of its transactions on, and reopens in batches after it; who
   * dies between two leaves the rest to `advanceRevocation`. Idempotent.
   *
   * @throws {FencelineError} `revocation_unknown`
   */
  lift(revocationId: number): Promise<RevocationStatus>;
  revocation(revocationId: number): Promise<RevocationStatus | undefined>;
  listRevocations(filter?: { readonly open?: boolean }): Promise<RevocationStatus[]>;
  /** One batch of closing covered subscriptions and marking covered edges, or of reopening after a lift; call until `done`. */
  advanceRevocation(revocationId: number, options?: { readonly limit?: number }): Promise<"more" | "done">;
  /** Open or lifted revocations whose batches are not done. */
  revocationsToAdvance(): Promise<number[]>;
  /** Groups to remove from a store: superseded, tombstoned, abandoned or revoked; not those a writer may still be writing. */
  claimPurge(request: {
    readonly store: string;
    readonly limit: number;
    readonly leaseMs: number;
  }): Promise<PurgeClaim[]>;
  /** The entries are gone by id, probed at `absentAt`. Leaves a receipt per store and cause, and completes revocations (P3). */
  confirmPurge(
    store: string,
    claims: readonly PurgeClaim[],
    proof: {
      readonly claim: "absent" | "erased";
      /** Entries of claims swept before that were in the store again, and had to be deleted once more. */
      readonly reappeared?: readonly string[];
    },
  ): Promise<void>;
  /** Hands claims back; the store is recorded as failing and the revocation stays open (P5). */
  releasePurge(store: string, claims: readonly PurgeClaim[], failure: string): Promise<void>;
  /** In the order they were written; without an id those of no revocation (superseded, tombstoned, abandoned, reappeared). */
  purgeReceipts(revocationId?: number): Promise<PurgeReceiptRow[]>;
}

/** A removal from one store that was verified (P3); `purgeReceiptOf` makes the `purgeReceipt.v1` record of it. */
export interface PurgeReceiptRow {
  readonly purgeReceiptId: number;
  readonly revocationId: number | undefined;
  readonly store: string;
  readonly cause: PurgeReceipt["cause"];
  readonly entries: number;
  /** Keyed digest of the sorted entry ids, hex (P8). */
  readonly idsDigest: string;
  readonly claim: "absent" | "erased";
  readonly startedAt: Date;
  readonly absentAt: Date;
}

/** Covered resources per batch under the revocation's row (P2). No fence is held meanwhile; the batches of a lift, which do, are smaller. */
const ADVANCE_LIMIT = 500;

/** The revocations of a ledger; see `RevocationLedger`. The rules are in `functions/revocations.sql` and `functions/purge.sql`. */
export function revocationLedger(database: Queryable, identity: LedgerIdentity): RevocationLedger {
  const ids = entryIds(identity);

  async function statusOf(revocationId: number): Promise<RevocationStatus> {
    const [status] = await revocationStatuses(database, revocationId, null);
    if (status === undefined) {
      throw new FencelineError(
        "revocation_unknown",
        `There is no revocation ${revocationId}; see \`fenceline revocations\`.`,
      );
    }
    return status;
  }

  const advance = (revocationId: number, limit: number) =>
    call<"more" | "done">(database, "fenceline.advance_revocation($1, $2)", [revocationId, limit]);

  async function revoke(request: RevocationRequest): Promise<RevocationStatus> {
    const { outcome, id, requestId } = await insertRevocation(database, request);
    if (outcome === "request_id_reused") throw requestIdReused(requestId);
    if (outcome === "revoked") await call(database, "fenceline.note_coverage($1)", [id]);
    return statusOf(id);
  }

  return checkedCalls(revocationArguments, {
    revoke,

    async revokeForbidden(session, reads) {
      const forbidden = await database.query<{ request_id: string; uri: string }>(
        "select request_id, uri from fenceline.forbidden_reads($1, $2, $3)",
        [fenceOf(session)[0], reads.map((read) => read.subscriptionId), reads.map((read) => read.ordinal)],
      );
      const statuses: RevocationStatus[] = [];
      for (const { request_id: requestId, uri } of forbidden) {
        const { source, reader: subject } = session;
        const reason = "the server answered 403 to a read (P7)";
        statuses.push(await revoke({ requestId, source, subject, role: "reader", scope: { uri }, reason }));
      }
      return statuses;
    },

    async lift(revocationId) {
      await call(database, "fenceline.lift_revocation($1)", [revocationId]);
      while ((await advance(revocationId, ADVANCE_LIMIT)) === "more");
      return statusOf(revocationId);
    },

    async revocation(revocationId) {
      const [status] = await revocationStatuses(database, revocationId, null);
      return status;
    },

    listRevocations: ({ open } = {}) => revocationStatuses(database, null, open ?? null),

    advanceRevocation: (revocationId, { limit = ADVANCE_LIMIT } = {}) =>
      advance(revocationId, Math.min(limit, ADVANCE_LIMIT)),

    async revocationsToAdvance() {
      const rows = await database.query<{ revocation_id: number }>(
        `select revocation_id from fenceline.revocation
         where state = 'EFFECTIVE' and not (closed_all and marked_all) or reopening order by revocation_id`,
      );
      return rows.map((row) => row.revocation_id);
    },

    async claimPurge({ store, limit, leaseMs }) {
      for (;;) {
        const rows = await database.query<PurgeRow>("select * from fenceline.claim_purge($1, $2, $3)", [
          store,
          limit,
          leaseMs,
        ]);
        const held = rows.filter((row) => row.claim_token === null).map((row) => row.group_id);
        // In a statement of its own: the rows of revocations are locked before those of groups.
        if (held.length > 0) await untilDone(() => call(database, "fenceline.keep_held_groups($1)", [held]));
        // A page of nothing but groups that stay is no end.
        if (held.length < rows.length || rows.length === 0) return rows.flatMap((row) => purgeClaim(row, ids.format));
      }
    },

    async confirmPurge(store, claims, { claim, reappeared = [] }) {
      if (claims.length === 0) return;
      const numbers = reappeared.map((id) => ids.numberOf(id)).filter((number) => number !== undefined);
      const parameters = [store, ...claimParameters(claims), claim, numbers, identity.receiptKey];
      await untilDone(() => call(database, "fenceline.confirm_purge($1, $2, $3, $4, $5, $6)", parameters));
    },

    async releasePurge(store, claims, failure) {
      const parameters = [store, ...claimParameters(claims), failure];
      await call(database, "fenceline.release_purge($1, $2, $3, $4)", parameters);
    },

    async purgeReceipts(revocationId) {
      const rows = await database.query<ReceiptRow>(
        `select r.*, s.name as store from fenceline.purge_receipt r join fenceline.store s using (store_id)
         where r.revocation_id is not distinct from $1 order by r.purge_receipt_id`,
        [revocationId ?? null],
      );
      return rows.map((row) => ({
        purgeReceiptId: row.purge_receipt_id,
        revocationId: row.revocation_id ?? undefined,
        store: row.store,
        cause: row.cause,
        entries: row.entries,
        idsDigest: row.ids_digest.toString("hex"),
        claim: row.claim,
        startedAt: row.started_at,
        absentAt: row.absent_at,
      }));
    },
  });
}

/** Calls again while another revocation had come to wait for the same groups; each comes once, so this ends. */
async function untilDone(step: () => Promise<boolean>): Promise<void> {
  while (!(await step()));
}

interface PurgeRow {
  readonly group_id: number;
  /** `null`: somebody attached to it, so it stays. */
  readonly claim_token: string | null;
  readonly index_id: number;
  readonly swept_before: boolean;
  readonly entries: readonly number[] | null;
  readonly store_keys: readonly (string | null)[] | null;
}

interface ReceiptRow {
  readonly purge_receipt_id: number;
  readonly revocation_id: number | null;
  readonly store: string;
  readonly cause: PurgeReceipt["cause"];
  readonly entries: number;
  readonly ids_digest: Buffer;
  readonly claim: "absent" | "erased";
  readonly started_at: Date;
  readonly absent_at: Date;
}

async function insertRevocation(database: Queryable, request: RevocationRequest) {
  const { source, subject, role = "both", scope = { everything: true }, reason, requestedBy = "unknown" } = request;
  const { requestId = randomUUID() } = request;
  const parametersIn = revocationParameters({ subject, role, scope, reason, requestedBy });
  const sourceId = source === undefined ? null : await sourceIdOf(database, source);
  const [row] = await database
    .query<{ outcome: "revoked" | "known" | "request_id_reused"; id: number }>(
      "select * from fenceline.revoke($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
      [requestId, sourceId, ...parametersIn(sourceId)],
    )
    .catch((error: unknown) => {
      throw isUniqueViolation(error) ? requestIdReused(requestId) : error;
    });
  return { outcome: row?.outcome, id: row?.id as number, requestId };
}

function isUniqueViolation(error: unknown): boolean {
  const cause = error instanceof FencelineError ? error.cause : undefined;
  return cause instanceof Error && (cause as Error & { code?: unknown }).code === "23505";
}

function purgeClaim(row: PurgeRow, idOf: (indexId: number, number: number) => string): PurgeClaim[] {
  const { group_id: groupId, claim_token: claimToken, index_id: indexId, swept_before: sweptBefore } = row;
  if (claimToken === null) return [];
  const entries = (row.entries ?? []).map((number, place) => {
    const entryId = idOf(indexId, number);
    const storeKey = row.store_keys?.[place] ?? undefined;
    return storeKey === undefined ? { entryId } : { entryId, storeKey };
  });
  return [{ groupId, claimToken, indexId, sweptBefore, entries }];
}

function claimParameters(claims: readonly PurgeClaim[]): [groupIds: number[], tokens: string[]] {
  return [claims.map(({ groupId }) => groupId), claims.map(({ claimToken }) => claimToken)];
}
