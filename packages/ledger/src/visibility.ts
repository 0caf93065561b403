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
