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
  readonly entries: readonly { readonly index: string; readonly store: string; readonly id: string; readonly state: string }[];
}

export interface Trace {
  readonly uri?: string;
  readonly entry?: string;
  readonly versions: readonly TracedVersion[];
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
    readonly scan: string | undefined;
    readonly oldestVerifiedAt: Date | undefined;
    readonly due: number;
    /** Owner of the live session, or `undefined`. */
    readonly holder: string | undefined;
  }[];
  readonly revocations: { readonly open: number; readonly complete: number };
  readonly stores: readonly { readonly store: string; readonly reachable: boolean; readonly failure?: string }[];
  /** Work that waits, by kind. */
  readonly waiting: { readonly reads: number; readonly indexing: number; readonly purging: number };
}

export interface AuditLedger {
  /** From a URI (of any source) or an entry id, both ways (L4). */
  trace(of: { readonly uri: string } | { readonly entry: string }): Promise<Trace>;
  /** Recomputes what a database can see of the invariants in `reliability`. */
  verify(): Promise<Invariant[]>;
  status(): Promise<LedgerStatus>;
  /** Ids the ledger records as PRESENT in an index's store, paged by id, for the comparison of store and ledger. */
  recordedEntries(index: string, page: { readonly limit: number; readonly afterId?: string }): Promise<string[]>;
}
