export type {
  AuditLedger,
  EntryStanding,
  Invariant,
  LedgerStatus,
  Trace,
  TracedEntry,
  TracedVersion,
} from "./audit.js";
export type { NotPublished, PublishResult, RemovalFloor, UnsettledResult } from "./catalog-publication.js";
export type { CompletenessLedger, CompletenessResult } from "./completeness.js";
export {
  type Database,
  type Listening,
  type ListenOptions,
  type OpenDatabaseOptions,
  openDatabase,
  type Queryable,
} from "./database/database.js";
export type {
  Derivation,
  DerivationLedger,
  DerivationOutcome,
  DerivationProblem,
  DerivedParent,
  ParentRef,
  RecordedDerivation,
} from "./derivations.js";
export { type EntryIdParts, formatEntryId, parseEntryId } from "./entry-id.js";
export { assert, FencelineError, type LedgerErrorCode } from "./errors.js";
export type { ExportLedger, ExportRecord } from "./exports.js";
export type { Grant, GrantLedger, GrantOrigin } from "./grants.js";
export type { DigestKey } from "./identity.js";
export type { IndexWork } from "./index-work.js";
export type { IndexLedger, IndexRef } from "./indexes.js";
export { isStorableUri, MAX_NAME_LENGTH, MAX_URI_LENGTH } from "./input.js";
export { type Ledger, type OpenLedgerOptions, openLedger, type Wake } from "./ledger.js";
// The records are what leaves the ledger for keeping; each is made by the ledger itself (`RecordLedger`).
export type { LedgerReceipt, ReceiptRecordName } from "./ledger-receipts.js";
export type { ConfirmOutcome, IntendedGroup, LineageLedger } from "./lineage.js";
export { lineageIdOf, parseLineageId } from "./lineage-id.js";
export type { ProvenSnapshot } from "./proven-snapshot.js";
export { defaultReadTiming, type ReadTiming } from "./read-timing.js";
export type {
  AcceptedRead,
  AcceptOutcome,
  IssuedRead,
  ReadAnswer,
  ReadLedger,
  ReadPart,
  ReadReason,
  SettledAs,
  SettleOutcome,
} from "./reads.js";
export type { ReceiptPage, RecordLedger } from "./record-ledger.js";
export { type CapabilityReceipt, capabilityReceipt } from "./records/capability-receipt.js";
export { type CloseReceipt, closeReceipt } from "./records/close-receipt.js";
export type { ContentFinding } from "./records/content-finding.js";
export { type DerivedEntry, derivedEntry } from "./records/derived-entry.js";
export {
  type LedgerRecord,
  parseRecord,
  parseRecordAs,
  type RecordName,
  recordSchemas,
} from "./records/parse-record.js";
export { type PermissionRevocation, permissionRevocation } from "./records/permission-revocation.js";
export { type PurgeReceipt, purgeReceipt, purgeReceiptOf } from "./records/purge-receipt.js";
export { recordJsonSchema } from "./records/record-json-schema.js";
export {
  type ProvenSnapshotRecord,
  provenSnapshot,
  type ResourceDiscoveryScan,
  resourceDiscoveryScan,
  type UnprovenSnapshotRecord,
  unprovenSnapshot,
} from "./records/resource-discovery-scan.js";
export { type ResourceSubscription, resourceSubscription } from "./records/resource-subscription.js";
export { type ResourceVersion, resourceVersion } from "./records/resource-version.js";
export { type StaleReceipt, staleReceipt } from "./records/stale-receipt.js";
export { type TombstoneReceipt, tombstoneReceipt } from "./records/tombstone-receipt.js";
export { type VersionReceipt, versionReceipt } from "./records/version-receipt.js";
export { foldedUri, matchKey, resourceKey, segmentKey } from "./resource-uri.js";
export type { LedgerPosition, RecognizedRestore, RestoreEvidence, RestoreLedger, RestoreOutcome } from "./restore.js";
export {
  defaultRetention,
  type PrunedKind,
  type PruneOptions,
  type PruneReport,
  type RetentionAge,
  type RetentionLedger,
  type RetentionPolicy,
} from "./retention.js";
export type {
  PurgeClaim,
  PurgeReceiptRow,
  PurgeWait,
  RevocationLedger,
  RevocationRequest,
  RevocationRole,
  RevocationState,
  RevocationStatus,
} from "./revocations.js";
export {
  type DueScan,
  defaultScanBudgets,
  type FinishedScan,
  type HeldRemoval,
  type ListedFault,
  type ListedTemplate,
  type RecordedPage,
  type ScanBudgets,
  type ScanEntry,
  type ScanLedger,
  type ScanPageRecord,
  type ScanVerdict,
} from "./scans.js";
export { formatUriScope, parseUriScope } from "./scope-text.js";
export type {
  NegotiatedCapabilities,
  OpenSessionResult,
  RegisteredSource,
  Session,
  SessionLedger,
  SourceRegistration,
} from "./sessions.js";
export {
  type LifecycleState,
  type ShownState,
  type SubscriptionCounters,
  shownState,
} from "./subscription-state.js";
export type { NotificationOutcome, SubscriptionLedger, SubscriptionRef, SubscriptionToOpen } from "./subscriptions.js";
export { denialCovers, grantCovers, type UriScope, uriScope } from "./uri-scope.js";
export type { Freshness, VisibilityLedger, VisibleEntry } from "./visibility.js";
export { fileWitness, type Witness, type Witnessed, type WitnessedRevocation } from "./witness.js";
export type { RestoreReport, WitnessOptions } from "./witnessed-ledger.js";
