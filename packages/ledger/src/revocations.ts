import type { UriScope } from "./resource-uri.js";

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
  readonly stores: readonly {
    readonly store: string;
    readonly entries: number;
    /** Entries not yet verified absent, with the failure that blocks them where there is one. */
    readonly remaining: number;
    readonly absentAt: Date | undefined;
    readonly claim: "hidden" | "absent" | "erased";
    readonly failure?: string;
  }[];
  /** Exports it cannot reach and nobody acknowledged (L6). */
  readonly exports: number;
}

/** Groups of one store that nothing holds any more, claimed for removal. */
export interface PurgeClaim {
  readonly groupId: number;
  readonly claimToken: string;
  readonly indexId: number;
  readonly entries: readonly { readonly entryId: string; readonly storeKey?: string }[];
}

export interface RevocationLedger {
  /** Takes effect when this returns (P2): nothing it covers is shown or accepted from then on. Wakes the purge by NOTIFY. */
  revoke(request: RevocationRequest): Promise<RevocationStatus>;
  lift(revocationId: number): Promise<RevocationStatus>;
  revocation(revocationId: number): Promise<RevocationStatus | undefined>;
  listRevocations(filter?: { readonly open?: boolean }): Promise<RevocationStatus[]>;
  /** One batch of closing covered subscriptions and marking covered edges; call until `done`. */
  advanceRevocation(revocationId: number, options?: { readonly limit?: number }): Promise<"more" | "done">;
  /** Open revocations whose batches are not done. */
  revocationsToAdvance(): Promise<number[]>;
  /** Groups to remove from a store: superseded, tombstoned, abandoned or revoked; not those a writer may still be writing. */
  claimPurge(request: { readonly store: string; readonly limit: number; readonly leaseMs: number }): Promise<PurgeClaim[]>;
  /** The entries are gone by id, probed at `absentAt`. Writes `purgeReceipt.v1` rows and completes revocations (P3). */
  confirmPurge(store: string, claims: readonly PurgeClaim[], proof: { readonly claim: "absent" | "erased" }): Promise<void>;
  /** Hands claims back; the store is recorded as failing and the revocation stays open (P5). */
  releasePurge(store: string, claims: readonly PurgeClaim[], failure: string): Promise<void>;
  purgeReceipts(revocationId: number): Promise<PurgeReceiptRow[]>;
}

export interface PurgeReceiptRow {
  readonly record: "purgeReceipt.v1";
  readonly purgeReceiptId: number;
  readonly revocationId: number | undefined;
  readonly store: string;
  readonly cause: string;
  readonly entries: number;
  /** Keyed digest of the sorted entry ids, hex (P8). */
  readonly idsDigest: string;
  readonly claim: "hidden" | "absent" | "erased";
  readonly startedAt: Date;
  readonly absentAt: Date;
}
