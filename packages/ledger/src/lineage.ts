/** An index registered with the ledger: where entries live and in which embedding space. */
export interface IndexRef {
  readonly indexId: number;
  readonly name: string;
  readonly version: number;
  readonly store: string;
}

/** A version that waits to be indexed, claimed for a while. */
export interface IndexWork {
  readonly claimToken: string;
  readonly subscriptionId: number;
  readonly ordinal: number;
  readonly lineageId: string;
  readonly source: string;
  readonly reader: string;
  readonly uri: string;
  readonly name?: string;
  readonly title?: string;
  readonly mimeType?: string;
  /** `removed`: the newest version is gone (tombstone, close): nothing to write. */
  readonly parts: readonly {
    readonly partId: number;
    readonly uri: string;
    readonly mimeType?: string;
    readonly text?: string;
    readonly bytes?: Uint8Array;
  }[];
  /** What the index already holds of this (source, URI), whoever read it: candidates for reuse (L3, L5). */
  readonly present: readonly {
    readonly entryId: string;
    readonly partId: number;
    /** Hex. */
    readonly chunkDigest: string;
  }[];
}

export interface IntendedGroup {
  readonly groupId: number;
  readonly partId: number;
  /** In the order of the digests given. UUIDs that carry the ledger's mark. */
  readonly entryIds: readonly string[];
}

export type ConfirmOutcome =
  | "confirmed"
  /** A newer version was confirmed in this index meanwhile. */
  | "superseded"
  /** A revocation covers the resource, or its subscription was closed. */
  | "revoked"
  /** Another worker holds the claim. */
  | "claim_lost"
  /** A group it builds on was purged meanwhile: index it again. */
  | "group_gone";

export interface LineageLedger {
  registerStore(store: { readonly name: string; readonly kind: string }): Promise<void>;
  /** Registers an index; versions already accepted become due in it. */
  registerIndex(index: {
    readonly name: string;
    readonly version: number;
    readonly store: string;
    readonly embeddings: string;
    readonly configurationDigest: Uint8Array;
  }): Promise<IndexRef>;
  /** The index of this name with the highest version, or `undefined`. */
  findIndex(name: string): Promise<IndexRef | undefined>;
  /** Keyed digest of a chunk, hex; equal chunks of one ledger have equal digests (L3, P8). */
  digestChunk(text: string): string;
  claimIndexWork(index: IndexRef, page: { readonly limit: number; readonly leaseMs: number }): Promise<IndexWork[]>;
  /** Hands a claim back, with the failure that made it so. It is due again after a backoff. */
  releaseIndexWork(index: IndexRef, work: IndexWork, failure?: string): Promise<void>;
  /** Records entries before they are written anywhere (L2). The write has to end within `writerLeaseMs`. */
  recordIntents(
    index: IndexRef,
    intents: readonly {
      readonly work: IndexWork;
      readonly partId: number;
      /** Hex, from `digestChunk`. */
      readonly chunkDigests: readonly string[];
    }[],
    options: { readonly writerLeaseMs: number },
  ): Promise<IntendedGroup[]>;
  /** Keys that a store assigned by itself. */
  recordStoreKeys(keys: readonly { readonly entryId: string; readonly storeKey: string }[]): Promise<void>;
  /** The atomic swap (L3): new edges CURRENT, old ones SUPERSEDED, all or nothing per version. */
  confirmVersions(
    index: IndexRef,
    versions: readonly {
      readonly work: IndexWork;
      readonly written: readonly IntendedGroup[];
      readonly reused: readonly string[];
    }[],
  ): Promise<{ readonly lineageId: string; readonly outcome: ConfirmOutcome }[]>;
  /** Gives up intents; the purge path removes whatever reached the store. */
  abandonIntents(groupIds: readonly number[]): Promise<void>;
  /** Accepted newest versions of a reader, for a loader; each page is recorded as an export (L6). */
  exportVersions(page: {
    readonly source: string;
    readonly reader: string;
    readonly destination: string;
    readonly limit: number;
    readonly afterId?: number;
  }): Promise<IndexWork[]>;
}
