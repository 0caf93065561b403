import { scanArguments } from "./arguments/scans.js";
import type { Queryable } from "./database/database.js";
import { assert } from "./errors.js";
import { call, fenceOf } from "./fenced-call.js";
import { checkedCalls } from "./input.js";
import { defaultReadTiming, type ReadTiming } from "./read-timing.js";
import { ensureResources, keyDigest } from "./resource-rows.js";
import { resourceKey } from "./resource-uri.js";
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
      | {
          readonly complete: true;
          /** Of the id that every page bound, where the snapshot extension was negotiated (S3). */
          readonly snapshotIdDigest?: Uint8Array;
        }
      | { readonly complete: false; readonly verdict: "INCOMPLETE" | "VOID"; readonly reason: string },
  ): Promise<FinishedScan>;
  /**
   * Publishes what two successive complete scans agree on (S4, S5, S7), or one proven snapshot, given as both (S3). What
   * vanished above the floor is held back and reported; the first settled scan after a person confirmed it that
   * still agrees carries it out (S8).
   */
  publishCatalog(
    session: Session,
    scans: {
      readonly first: number;
      readonly second: number;
      readonly floor?: RemovalFloor;
      readonly reviewMs?: number;
    },
  ): Promise<PublishResult>;
  /** After too many tries: URIs in both of the last scans are read and served, nothing is removed (S4). */
  publishUnsettled(
    session: Session,
    scans: { readonly first: number; readonly second: number },
  ): Promise<{
    readonly resources: number;
    readonly discovered: number;
  }>;
  recordListChanged(session: Session): Promise<void>;
  /** Removals the floor holds back, newest first. */
  heldRemovals(): Promise<HeldRemoval[]>;
  /** A person confirms a held removal (S8). `unknown`: there is none of that id, or it has ended. */
  confirmRemoval(heldRemovalId: number, confirmedBy: string): Promise<"confirmed" | "unknown">;
}

/**
 * How a scan ended. `proven`: its snapshot id proves it (S3). `void`: its snapshot id is known with another content, so the
 * extension is distrusted for this session. `scan_ended`: it was ended before.
 */
export type FinishedScan = "complete" | "proven" | "void" | "incomplete" | "session_lost" | "scan_ended";

/** A removal above the floor (S8). */
export interface HeldRemoval {
  readonly heldRemovalId: number;
  readonly source: string;
  readonly reader: string;
  /** Resources known when it was found. */
  readonly known: number;
  readonly vanished: number;
  readonly heldAt: Date;
  /** A second settled scan found the same. */
  readonly agreed: boolean;
  readonly confirmedAt: Date | undefined;
}

/** Held under the fence at a time: a revocation waits for one batch at most (P2). */
const PUBLISH_BATCH = 500;
const FORGET_BATCH = 10_000;

/** Discovery; see `ScanLedger`. The rules are in `functions/scans.sql` and `functions/catalog.sql`. */
export function scanLedger(database: Queryable, timing: ReadTiming = defaultReadTiming): ScanLedger {
  return checkedCalls(scanArguments, {
    async beginScan(session) {
      // Not fenced, and no more than one batch short of a whole scan behind.
      while (
        (await call<number>(database, "fenceline.forget_scan_entries($1, $2)", [session.scopeId, FORGET_BATCH])) > 0
      );
      const scanId = await call<number | null>(database, "fenceline.begin_scan($1, $2)", fenceOf(session));
      return scanId === null ? "session_lost" : { scanId };
    },

    async recordScanPage(session, scanId, { cursorDigest, entries }) {
      await ensureResources(
        database,
        session.sourceId,
        entries.map((entry) => entry.uri),
      );
      await call(database, "fenceline.record_scan_page($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)", [
        ...fenceOf(session),
        session.sourceId,
        scanId,
        Buffer.from(cursorDigest),
        entries.map((entry) => entry.uri),
        entries.map((entry) => keyDigest(resourceKey(entry.uri))),
        entries.map((entry) => entry.name ?? null),
        entries.map((entry) => entry.title ?? null),
        entries.map((entry) => entry.mimeType ?? null),
        entries.map((entry) => Buffer.from(entry.descriptorDigest)),
      ]);
    },

    async finishScan(session, scanId, end) {
      const digest = end.complete && end.snapshotIdDigest ? Buffer.from(end.snapshotIdDigest) : null;
      return call<FinishedScan>(database, "fenceline.finish_scan($1, $2, $3, $4, $5, $6)", [
        ...fenceOf(session),
        scanId,
        end.complete ? null : end.verdict,
        end.complete ? null : end.reason,
        digest,
      ]);
    },

    async publishCatalog(session, { first, second, floor, reviewMs = timing.catalogReviewMs }) {
      const compared = await compareScans(database, session, first, second, true);
      if (compared !== "agreed") return { outcome: compared };
      const { discovered } = await publishEntries(database, session, second, undefined);
      const [end] = await database.query<FinishedPublication>(
        "select * from fenceline.finish_publication($1, $2, $3, $4, $5, $6, $7)",
        [
          ...fenceOf(session),
          first,
          second,
          floor?.count ?? timing.removalFloorCount,
          floor?.share ?? timing.removalFloorShare,
          reviewMs,
        ],
      );
      assert(end !== undefined, "finish_publication answers with one row.");
      if (end.outcome !== "published") return { outcome: end.outcome };
      if (!end.held) await makeVanishedDue(database, session, second);
      const verdict = first === second ? "SNAPSHOT_PROVEN" : "SNAPSHOT_UNPROVEN";
      const { resources, vanished, held } = end;
      return { outcome: "published", verdict, resources, discovered, vanished, held };
    },

    async publishUnsettled(session, { first, second }) {
      const compared = await compareScans(database, session, first, second, false);
      if (compared !== "agreed") return { resources: 0, discovered: 0 };
      const { published, discovered } = await publishEntries(database, session, second, first);
      const parameters = [...fenceOf(session), first, second, timing.catalogReviewMs];
      await call(database, "fenceline.finish_unsettled($1, $2, $3, $4, $5)", parameters);
      return { resources: published, discovered };
    },

    async recordListChanged(session) {
      await call(database, "fenceline.record_list_changed($1, $2)", fenceOf(session));
    },

    async heldRemovals() {
      const rows = await database.query<HeldRemovalRow>(
        `select h.held_removal_id, o.name as source, u.name as reader, h.known, h.vanished, h.held_at,
           h.agreed_scan_id is not null as agreed, h.confirmed_at
         from fenceline.held_removal h
         join fenceline.policy_scope c on c.scope_id = h.scope_id
         join fenceline.source o on o.source_id = c.source_id
         join fenceline.subject u on u.subject_id = c.subject_id
         where h.ended_at is null order by h.held_removal_id desc`,
      );
      return rows.map(({ held_removal_id: heldRemovalId, held_at: heldAt, confirmed_at, ...rest }) => ({
        ...rest,
        heldRemovalId,
        heldAt,
        confirmedAt: confirmed_at ?? undefined,
      }));
    },

    async confirmRemoval(heldRemovalId, confirmedBy) {
      return call(database, "fenceline.confirm_removal($1, $2)", [heldRemovalId, confirmedBy]);
    },
  });
}

type ComparedScans = "agreed" | Exclude<PublishResult["outcome"], "published">;

interface FinishedPublication {
  readonly outcome: PublishResult["outcome"];
  readonly resources: number;
  readonly vanished: number;
  readonly held: boolean;
}

interface HeldRemovalRow {
  readonly held_removal_id: number;
  readonly source: string;
  readonly reader: string;
  readonly known: number;
  readonly vanished: number;
  readonly held_at: Date;
  readonly agreed: boolean;
  readonly confirmed_at: Date | null;
}

function compareScans(
  database: Queryable,
  session: Session,
  first: number,
  second: number,
  agreeing: boolean,
): Promise<ComparedScans> {
  const parameters = [...fenceOf(session), first, second, agreeing];
  return call(database, "fenceline.compare_scans($1, $2, $3, $4, $5)", parameters);
}

async function publishEntries(
  database: Queryable,
  session: Session,
  scanId: number,
  alsoListedIn: number | undefined,
): Promise<{ published: number; discovered: number }> {
  const total = { published: 0, discovered: 0 };
  for (let after: number | null = 0; after !== null; ) {
    const [batch]: { published: number; discovered: number; last_id: number | null }[] = await database.query(
      "select * from fenceline.publish_entries($1, $2, $3, $4, $5, $6)",
      [...fenceOf(session), scanId, alsoListedIn ?? null, after, PUBLISH_BATCH],
    );
    total.published += batch?.published ?? 0;
    total.discovered += batch?.discovered ?? 0;
    after = batch?.last_id ?? null;
  }
  return total;
}

async function makeVanishedDue(database: Queryable, session: Session, scanId: number): Promise<void> {
  for (let after: number | null = 0; after !== null; ) {
    after = await call<number | null>(database, "fenceline.make_vanished_due($1, $2, $3, $4, $5)", [
      ...fenceOf(session),
      scanId,
      after,
      PUBLISH_BATCH,
    ]);
  }
}
