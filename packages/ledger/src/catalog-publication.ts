import type { Queryable } from "./database/database.js";
import { assert } from "./errors.js";
import { call, fenceOf } from "./fenced-call.js";
import { mintProvenSnapshot, type ProvenSnapshot } from "./proven-snapshot.js";
import type { ReadTiming } from "./read-timing.js";
import type { Session } from "./sessions.js";

/** How many resources may vanish at once before a removal is held back (S8). */
export interface RemovalFloor {
  readonly count: number;
  /** Share of the known resources, 0 to 1. */
  readonly share: number;
}

/** The floor where a caller names none. */
export function floorOf({ removalFloorCount: count, removalFloorShare: share }: ReadTiming): RemovalFloor {
  return { count, share };
}

interface PublishedCatalog {
  readonly outcome: "published";
  readonly resources: number;
  readonly discovered: number;
  /** Resources known before and absent now; each gets a fenced read before anything is removed (F7). */
  readonly vanished: number;
  readonly held: boolean;
  readonly measuredAt: Date;
  /** How long what is read from the source may be relied on, in milliseconds (S5). */
  readonly stalenessMs: number;
  readonly nextReviewAt: Date;
}

export type PublishResult =
  | (PublishedCatalog & { readonly verdict: "SNAPSHOT_UNPROVEN" })
  | (PublishedCatalog & {
      readonly verdict: "SNAPSHOT_PROVEN";
      /** For tasks that need completeness (S6); `undefined`: it was superseded while it was published. */
      readonly snapshot: ProvenSnapshot | undefined;
    })
  | { readonly outcome: NotPublished };

/**
 * `differing` and `list_changed`: scan again (S4). `incomplete`: they are not two complete scans of this session in
 * succession, nor one that is proven; or they are older than the last two, or than the catalogue. `session_lost`: stop.
 */
export type NotPublished = "differing" | "list_changed" | "incomplete" | "session_lost";

export interface UnsettledResult {
  readonly outcome: "published" | NotPublished;
  readonly resources: number;
  readonly discovered: number;
}

interface ScanPair {
  readonly first: number;
  readonly second: number;
}

/** Held under the fence at a time: a revocation waits for one batch at most (P2). */
const PUBLISH_BATCH = 100;

/** See `ScanLedger.publishCatalog`. */
export async function publishCatalog(
  database: Queryable,
  session: Session,
  scans: ScanPair,
  { floor, reviewMs }: { readonly floor: RemovalFloor; readonly reviewMs: number },
): Promise<PublishResult> {
  const entries = await publishEntries(database, session, scans, true);
  if (entries.outcome !== "agreed") return { outcome: entries.outcome };
  const [end] = await database.query<FinishedPublication>(
    "select * from fenceline.finish_publication($1, $2, $3, $4, $5, $6, $7)",
    [...fenceOf(session), scans.first, scans.second, floor.count, floor.share, reviewMs],
  );
  assert(end !== undefined, "finish_publication answers with one row.");
  if (end.outcome !== "published") return { outcome: end.outcome };
  if (!end.held) await makeVanishedDue(database, session, scans.second);
  const published = {
    outcome: "published",
    resources: end.resources,
    discovered: entries.discovered,
    vanished: end.vanished,
    held: end.held,
    measuredAt: end.measured_at,
    stalenessMs: end.staleness_ms,
    nextReviewAt: end.next_review_at,
  } as const;
  if (scans.first !== scans.second) return { ...published, verdict: "SNAPSHOT_UNPROVEN" };
  return { ...published, verdict: "SNAPSHOT_PROVEN", snapshot: await provenSnapshot(database, session) };
}

/** See `ScanLedger.publishUnsettled`. */
export async function publishUnsettled(
  database: Queryable,
  session: Session,
  scans: ScanPair & { readonly attempts?: number },
  timing: ReadTiming,
): Promise<UnsettledResult> {
  const entries = await publishEntries(database, session, scans, false);
  if (entries.outcome !== "agreed") return { outcome: entries.outcome, resources: 0, discovered: 0 };
  const outcome = await call<UnsettledResult["outcome"]>(
    database,
    "fenceline.finish_unsettled($1, $2, $3, $4, $5, $6)",
    [...fenceOf(session), scans.first, scans.second, scans.attempts ?? 1, timing.catalogReviewMs],
  );
  return { outcome, resources: entries.published, discovered: entries.discovered };
}

/** See `CompletenessLedger.provenSnapshot`. */
export async function provenSnapshot(database: Queryable, session: Session): Promise<ProvenSnapshot | undefined> {
  const [row] = await database.query<SnapshotRow>("select * from fenceline.proven_snapshot($1, $2)", fenceOf(session));
  if (row === undefined) return undefined;
  const { scan_id: scanId, set_digest: setDigest, mark, resources, measured_at: measuredAt } = row;
  const { scopeId, generation } = session;
  return mintProvenSnapshot({ scopeId, generation, scanId, setDigest, mark, resources, measuredAt });
}

interface SnapshotRow {
  readonly scan_id: number;
  readonly set_digest: Buffer;
  readonly mark: string;
  readonly resources: number;
  readonly measured_at: Date;
}

interface FinishedPublication {
  readonly outcome: "published" | NotPublished;
  readonly resources: number;
  readonly vanished: number;
  readonly held: boolean;
  readonly measured_at: Date;
  readonly staleness_ms: number;
  readonly next_review_at: Date;
}

interface PublishedBatch {
  readonly outcome: "agreed" | NotPublished;
  readonly published: number;
  readonly discovered: number;
  readonly last_id: number | null;
}

/** Batch by batch, so that neither this process nor a transaction ever holds more than a batch (S8). */
async function publishEntries(
  database: Queryable,
  session: Session,
  { first, second }: ScanPair,
  settled: boolean,
): Promise<{ outcome: PublishedBatch["outcome"]; published: number; discovered: number }> {
  const total = { outcome: "agreed" as PublishedBatch["outcome"], published: 0, discovered: 0 };
  for (let after: number | null = 0; after !== null; ) {
    const [batch]: PublishedBatch[] = await database.query(
      "select * from fenceline.publish_entries($1, $2, $3, $4, $5, $6, $7)",
      [...fenceOf(session), first, second, settled, after, PUBLISH_BATCH],
    );
    assert(batch !== undefined, "publish_entries answers with one row.");
    total.outcome = batch.outcome;
    total.published += batch.published;
    total.discovered += batch.discovered;
    after = batch.last_id;
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
