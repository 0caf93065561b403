import type { Session } from "./sessions.js";

/** One listed resource, as the server spelled it. */
export interface ScanEntry {
  readonly uri: string;
  readonly name?: string;
  readonly title?: string;
  readonly mimeType?: string;
  /** Without size, annotations and `_meta` (spec §2). */
  readonly descriptorDigest: Uint8Array;
}

export type ScanVerdict = "SNAPSHOT_PROVEN" | "SNAPSHOT_UNPROVEN" | "UNSETTLED" | "INCOMPLETE" | "VOID";

/** How many resources may vanish at once before a removal is held back (S8). */
export interface RemovalFloor {
  readonly count: number;
  /** Share of the known resources, 0 to 1. */
  readonly share: number;
}

export type PublishResult =
  | {
      readonly outcome: "published";
      readonly verdict: "SNAPSHOT_UNPROVEN" | "SNAPSHOT_PROVEN";
      readonly resources: number;
      readonly discovered: number;
      /** Resources known before and absent now; each gets a fenced read before anything is removed (F7). */
      readonly vanished: number;
      readonly held: boolean;
    }
  | {
      /** `differing` and `list_changed`: scan again (S4). `incomplete`: one of them did not end. `session_lost`: stop. */
      readonly outcome: "differing" | "list_changed" | "incomplete" | "session_lost";
    };

export interface ScanLedger {
  beginScan(session: Session): Promise<{ readonly scanId: number } | "session_lost">;
  /** Entries are merged by resource key; a million of them stay in the database, not in memory (S8). */
  recordScanPage(
    session: Session,
    scanId: number,
    page: { readonly cursorDigest: Uint8Array; readonly entries: readonly ScanEntry[] },
  ): Promise<void>;
  finishScan(
    session: Session,
    scanId: number,
    end:
      | { readonly complete: true }
      | { readonly complete: false; readonly verdict: "INCOMPLETE" | "VOID"; readonly reason: string },
  ): Promise<void>;
  /** Publishes what two successive complete scans agree on (S4, S5, S7). */
  publishCatalog(
    session: Session,
    scans: { readonly first: number; readonly second: number; readonly floor?: RemovalFloor; readonly reviewMs?: number },
  ): Promise<PublishResult>;
  /** After too many tries: URIs in both of the last scans are read and served, nothing is removed (S4). */
  publishUnsettled(session: Session, scans: { readonly first: number; readonly second: number }): Promise<{
    readonly resources: number;
    readonly discovered: number;
  }>;
  recordListChanged(session: Session): Promise<void>;
}
