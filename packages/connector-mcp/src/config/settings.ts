import { defaultScanBudgets } from "@fenceline/ledger";
import { z } from "zod";

/** Node's timers hold 31 bits: after a longer wait than this they fire at once. */
const MAX_MS = 2 ** 31 - 1;
const ms = () => z.int().positive().max(MAX_MS);
const count = () => z.int().positive();

/** Of one walk: a list that exceeds one of them never ends, and nothing is concluded from it (S2). */
const budgets = {
  pages: count(),
  /** As listed, also those that are left out. */
  entries: count(),
  /** Of the entries, as JSON or as they are kept, whichever is more. */
  bytes: count(),
};

const fields = {
  /** Content last confirmed longer ago is *expired*. */
  stalenessMs: ms(),
  /**
   * Interval, ± 20 %, at which a resource without a subscription is read again (U3); a server's `ttlMs` stretches it, to half of
   * `stalenessMs` at most.
   */
  pollMs: ms(),
  /** Interval at which a subscribed resource is read again although nothing was announced (U6). */
  rereadMs: ms(),
  /** Pairs of scans tried before the catalogue counts as `UNSETTLED` (S4). */
  scanAttempts: count(),
  /** Age at which an unproven catalogue is scanned again (S5). */
  reviewMs: ms(),
  /** Largest content of one resource, in bytes. A larger one is not kept. */
  maxBodyBytes: count(),
  /** Notifications of one URI within this window from the first cause one read (U5). */
  coalesceMs: z.int().min(0).max(MAX_MS),
  /** Lease of a session and of the reads it issues. A holder that died is replaced after this long. */
  leaseMs: z
    .int()
    .min(1_000)
    .max(MAX_MS - 60_000),
  /** Longest wait for one answer of the server. */
  requestTimeoutMs: ms(),
  /** Reads in flight at once, per reader. */
  readConcurrency: count().max(256),
  /** Reads sent per second at most, per reader. Absent: no limit. */
  readsPerSecond: z.number().positive().optional(),
  /** A 403 to a read hides the resource; with this it is revoked for the reader too, and purged, until that is lifted (P7). */
  revokeForbidden: z.boolean(),
  /** Removals at once above which a removal is held back and reported (S8): more than the larger of the two. */
  removalFloor: z.strictObject({ count: z.int().min(0), share: z.number().min(0).max(1) }),
};

/** How often, how much and how long (spec §9), for all sources: `settings`. */
export const settingsSchema = z.strictObject({
  ...fields,
  scanBudgets: z
    .strictObject({
      pages: budgets.pages.default(defaultScanBudgets.pages),
      entries: budgets.entries.default(defaultScanBudgets.entries),
      bytes: budgets.bytes.default(defaultScanBudgets.bytes),
    })
    .prefault({}),
  stalenessMs: fields.stalenessMs.default(15 * 60_000),
  pollMs: fields.pollMs.default(60_000),
  rereadMs: fields.rereadMs.default(10 * 60_000),
  scanAttempts: fields.scanAttempts.default(5),
  reviewMs: fields.reviewMs.default(10 * 60_000),
  maxBodyBytes: fields.maxBodyBytes.default(8 * 1024 * 1024),
  coalesceMs: fields.coalesceMs.default(100),
  leaseMs: fields.leaseMs.default(30_000),
  requestTimeoutMs: fields.requestTimeoutMs.default(60_000),
  readConcurrency: fields.readConcurrency.default(8),
  revokeForbidden: fields.revokeForbidden.default(false),
  removalFloor: fields.removalFloor.default({ count: 25, share: 0.25 }),
});

/**
 * Settings one source restates. There are no defaults here: what is left out is taken from the general ones. The intervals
 * of reading belong to the ledger, which serves all sources alike.
 */
export const ownSettingsSchema = z
  .strictObject({ ...fields, scanBudgets: z.strictObject(budgets).partial() })
  .omit({ pollMs: true, rereadMs: true })
  .partial();

/** All settings, with their defaults filled in. */
export type Settings = z.output<typeof settingsSchema>;
