import type { AuditLedger } from "./audit.js";
import type { Database } from "./database/database.js";
import type { GrantLedger } from "./grants.js";
import type { LineageLedger } from "./lineage.js";
import type { ReadLedger } from "./reads.js";
import type { RevocationLedger } from "./revocations.js";
import type { ScanLedger } from "./scans.js";
import type { SessionLedger } from "./sessions.js";
import type { SubscriptionLedger } from "./subscriptions.js";
import type { VisibilityLedger } from "./visibility.js";

/** What users hold: every rule of discovery, subscription, fenced reads, lineage and revocation over one database. */
export interface Ledger
  extends SessionLedger,
    ScanLedger,
    SubscriptionLedger,
    ReadLedger,
    LineageLedger,
    VisibilityLedger,
    GrantLedger,
    RevocationLedger,
    AuditLedger {
  readonly address: string;
  readonly schema: string;
  /** For stores that live in the ledger's own database. */
  readonly database: Database;
  /**
   * Runs `onWake` for whatever another process announced: a revocation, or work handed to the holder of a session.
   * A hint only: after a lost connection some are missed, so look at the ledger on a timer too.
   */
  onWake(onWake: (wake: Wake) => void): Promise<{ close(): Promise<void> }>;
  announce(wake: Wake): Promise<void>;
  close(): Promise<void>;
}

export type Wake =
  | { readonly kind: "revocation"; readonly revocationId: number }
  | { readonly kind: "read"; readonly source: string; readonly reader: string }
  | { readonly kind: "discovery"; readonly source: string; readonly reader: string }
  | { readonly kind: "index"; readonly index: string };
