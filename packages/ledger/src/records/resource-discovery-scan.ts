import { z } from "zod";
import { contentDigest, counter, instant, ledgerId, name } from "./record-fields.js";

const scanOfOneSession = z.strictObject({
  record: z.literal("resourceDiscoveryScan.v1"),
  scanId: ledgerId,
  source: name,
  /** The reader whose authorization listed. */
  subject: name,
  sessionId: ledgerId,
  sessionGeneration: counter,
  /** Time of the first request. */
  startedAt: instant,
  endedAt: instant,
  pages: counter,
  /**
   * Digest of the cursor each page was asked with, or of its absence; the cursors are not kept (S1). Empty once the pages of
   * an older scan were forgotten.
   */
  cursorDigests: z.array(contentDigest),
  resources: counter,
  /** The list of templates belongs to it as well. */
  templates: z.boolean(),
  /** `list_changed` notifications between the first request and the end. */
  notificationsObserved: counter,
});

/** What a finished list holds, which only a complete scan can say. */
const complete = {
  /** Digest of the set of (URI, descriptor); descriptors leave out size, annotations and `_meta`. */
  setDigest: contentDigest,
};

const published = {
  ...complete,
  /** Of the publication (S5). `null`, with the two below: not published, or by a version that did not note it. */
  measuredAt: instant.nullable(),
  /** How long it may be relied on, in milliseconds from `measuredAt`. */
  stalenessBoundMs: z.int().positive().nullable(),
  nextReviewAt: instant.nullable(),
};

/**
 * A catalogue whose every page bound one snapshot id (S3). A record of it proves nothing to anybody: a task that
 * needs completeness takes the `ProvenSnapshot` that the ledger makes (S6).
 */
export const provenSnapshot = scanOfOneSession.extend({
  verdict: z.literal("SNAPSHOT_PROVEN"),
  ...published,
  snapshotIdDigest: contentDigest,
});
export type ProvenSnapshotRecord = z.infer<typeof provenSnapshot>;

/** Two complete scans in succession that agreed, with no `list_changed` between: probable, not proven (S4, S5). */
export const unprovenSnapshot = scanOfOneSession.extend({
  verdict: z.literal("SNAPSHOT_UNPROVEN"),
  ...published,
  /** The scan it agreed with; `null`: by a version that did not note it. */
  agreedWithScanId: ledgerId.nullable(),
});
export type UnprovenSnapshotRecord = z.infer<typeof unprovenSnapshot>;

/**
 * One walk through the pages of a source's lists (spec section 2), and what may be concluded from it.
 *
 * | verdict | means |
 * | --- | --- |
 * | `SNAPSHOT_PROVEN` | every page bound the same snapshot id (S3) |
 * | `SNAPSHOT_UNPROVEN` | two complete scans agreed (S5) |
 * | `UNSETTLED` | complete, but after all attempts no two agreed: nothing is removed (S4) |
 * | `INCOMPLETE` | it did not reach the end, for a reason: removes nothing (S2) |
 * | `null` | it reached the end, and no other scan has agreed with it: proves nothing (S7) |
 * | `VOID` | the snapshot extension contradicted itself and is distrusted for the session (S3) |
 */
export const resourceDiscoveryScan = z.discriminatedUnion("verdict", [
  provenSnapshot,
  unprovenSnapshot,
  scanOfOneSession.extend({ verdict: z.null(), ...complete }),
  scanOfOneSession.extend({ verdict: z.literal("UNSETTLED"), ...complete, attempts: z.int().positive().nullable() }),
  scanOfOneSession.extend({ verdict: z.literal("INCOMPLETE"), reason: z.string().min(1) }),
  scanOfOneSession.extend({ verdict: z.literal("VOID"), reason: z.string().min(1) }),
]);
export type ResourceDiscoveryScan = z.infer<typeof resourceDiscoveryScan>;
