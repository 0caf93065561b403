import type { Ledger } from "@fenceline/ledger";
import type { Logger } from "pino";
import type { FencelineConfig, QueueAddress } from "../config/config-schema.js";
import type { ConfirmedChanges } from "./changed-sources.js";

/**
 * What a pool does.
 *
 * - `serve`: stays; holds sessions and subscriptions, reads what is announced or due, indexes and purges.
 * - `once`: for `ingest`. Scans every source, reads everything that is listed once, indexes it and removes what was
 *   replaced. Opens no subscription: content stays marked as it was (a polled resource ages, a pushed one is unverified
 *   until a `serve` pool opens its stream), and nothing announced meanwhile is waited for.
 * - `purge_only`: for `revoke --wait` beside no worker. Advances revocations and empties stores; connects to no source.
 */
export type PoolMode = "serve" | "once" | "purge_only";

/** Progress of what runs now. `total` grows while more is found. */
export interface PoolProgress {
  readonly phase: "connect" | "scan" | "read" | "index" | "purge";
  readonly source?: string;
  readonly done: number;
  readonly total: number;
}

export interface WorkerPoolOptions {
  readonly ledger: Ledger;
  readonly config: FencelineConfig;
  /** Sources that the configuration rightly leads elsewhere with, or no longer names; for this start. */
  readonly confirm?: ConfirmedChanges;
  /** Instead of the configuration's `queue`. */
  readonly queue?: QueueAddress;
  /** Default `serve`. */
  readonly mode?: PoolMode;
  readonly onProgress?: (progress: PoolProgress) => void;
  /** Default: a pino logger at level `info` on standard error. Neither content nor credentials are logged. */
  readonly logger?: Logger;
}

/** Something that kept one resource, or a whole source (then `uri` is absent), from being read or indexed. */
export interface SourceProblem {
  readonly uri?: string;
  readonly code: string;
  readonly message: string;
}

/** Counts of one (source, reader) since the pool began; the rows of `ingest --json`. */
export interface SourceStats {
  readonly name: string;
  readonly reader: string;
  readonly era: "modern" | "legacy" | undefined;
  readonly pushed: number;
  readonly polled: number;
  /** Of the last catalogue, or of the last failed attempt; `undefined` before there was one. */
  readonly scan: { readonly verdict: string; readonly resources: number } | undefined;
  readonly reads: {
    readonly issued: number;
    readonly accepted: number;
    readonly unchanged: number;
    /** By the fence: stale, revoked, after a close. */
    readonly refused: number;
    /** Without content: not found, failed, lost, too large, empty. */
    readonly failed: number;
  };
  readonly entries: { readonly written: number; readonly reused: number; readonly removed: number };
  /** That changed nothing: of another subscription than the present ones, or for what is not subscribed (U11). */
  readonly notificationsIgnored: number;
  /**
   * What stands: of the source itself, of its last discovery, of the list as it was last walked, of reading, and of each index; at
   * most a hundred of each.
   */
  readonly problems: readonly SourceProblem[];
}

export interface PoolStats {
  readonly sources: readonly SourceStats[];
}

/** A running set of workers. */
export interface WorkerPool {
  /** Name under which this pool holds sessions, unique per process. */
  readonly owner: string;
  stats(): PoolStats;
  /**
   * Waits until nothing is due, waiting to be indexed, or being purged. In mode `once` also until every source was scanned
   * and read, or failed. `timed_out`: something was left; see {@link stats}.
   */
  idle(options: { readonly timeoutMs: number }): Promise<"idle" | "timed_out">;
  /**
   * Finishes what is in flight, ends the sessions and the servers' processes, and leaves nothing open. What is not done
   * by the deadline is given up: its ordinals are settled as lost, its claims run out. Idempotent.
   */
  close(options?: { readonly deadlineMs?: number }): Promise<void>;
}
