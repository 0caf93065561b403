import type { LifecycleState } from "#src/subscription-state.js";
import type { Contents } from "./contents.js";

export type Published = "session_lost" | { resources: number; discovered: number; vanished: number };
export type Refused = "not_issued" | "stale_after_close" | "stale";

export interface ModelScope {
  readonly reader: string;
  generation: number;
  session?: { expiresAt: number; leaseMs: number };
  /** Of its one stream; 0: none was opened. */
  epoch: number;
  suspendedAt?: number;
  readonly subscriptions: Map<string, ModelSubscription>;
}

export interface ModelRead {
  readonly ordinal: number;
  readonly generation: number;
  readonly session: number;
  readonly notifications: number;
  readonly issuedAt: number;
  /** Of the stream through which its URI was acknowledged before it was issued. */
  readonly epoch?: number;
  settled: boolean;
}

export interface ModelAnswer {
  readonly uri: string;
  readonly ordinal: number;
  /** Whether it names the request that was sent. */
  readonly known: boolean;
  readonly contents: Contents;
}

export interface ModelVersion {
  readonly ordinal: number;
  readonly generation: number;
  /** As kept: without those a revocation covers. */
  parts: Contents["parts"];
}

export interface ModelSubscription {
  readonly reader: string;
  readonly uri: string;
  state: LifecycleState;
  generation: number;
  pushed: boolean;
  /** Session in which it was last made pushed or polled. */
  openedIn?: number;
  acknowledgedEpoch?: number;
  notifications: number;
  issued: number;
  settled: number;
  accepted: number;
  readonly reads: Map<number, ModelRead>;
  version?: ModelVersion;
  /** The content with which a read counts as unchanged (F6). */
  unchanged?: string;
  acceptedGeneration?: number;
  seenNotifications: number;
  seenEpoch?: number | undefined;
  verifiedAt?: number;
  hidden?: "forbidden" | "tombstone_pending" | "tombstoned";
  notFoundAt?: number;
  failures: number;
  dueAt?: number;
  /** Of the read in flight. */
  leaseEnd?: number;
  listed: boolean;
  vanished: boolean;
  /** The number of the revocation that closed it. */
  closedBy?: number;
}

export function isClosing(state: LifecycleState): boolean {
  return state === "UNSUBSCRIBING" || state === "UNSUBSCRIBE_UNKNOWN" || state === "CLOSED";
}

/** What was accepted of it may be indexed: an unsubscription leaves it where it is, a revocation does not (U10). */
export function mayBeIndexed({ state, hidden, closedBy, generation, acceptedGeneration }: ModelSubscription): boolean {
  if (hidden !== undefined) return false;
  return state === "ACTIVE" || (isClosing(state) && closedBy === undefined && acceptedGeneration === generation);
}

export function newSubscription(reader: string, uri: string): ModelSubscription {
  return {
    reader,
    uri,
    state: "DISCOVERED",
    generation: 1,
    pushed: false,
    notifications: 0,
    issued: 0,
    settled: 0,
    accepted: 0,
    reads: new Map(),
    seenNotifications: -1,
    failures: 0,
    listed: true,
    vanished: false,
  };
}
