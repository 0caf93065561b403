import { completenessArguments } from "./arguments/completeness.js";
import { floorOf, provenSnapshot, type RemovalFloor } from "./catalog-publication.js";
import type { Queryable } from "./database/database.js";
import { assert, FencelineError } from "./errors.js";
import { call } from "./fenced-call.js";
import { checkedCalls } from "./input.js";
import { type ProvenSnapshot, proofOf, type SnapshotProof } from "./proven-snapshot.js";
import { defaultReadTiming, type ReadTiming } from "./read-timing.js";
import { requestIdReused, revocationParameters } from "./revocation-parameters.js";
import type { RevocationRole } from "./revocations.js";
import type { Session } from "./sessions.js";

/** How a task on a proven snapshot ended. `held`: the floor holds it back, and nothing was done (S8). */
export type CompletenessResult<Done> =
  | Done
  | { readonly outcome: "held"; readonly known: number; readonly absent: number }
  | { readonly outcome: "session_lost" };

/**
 * Tasks that need completeness (S6). *Absent* is what this reader was once listed, what is not deleted, and what the snapshot
 * does not list; what was never listed is none of it (F7).
 *
 * Every batch asks again whether the snapshot still is proven: whether its session stands and trusts the extension, whether it
 * is the published catalogue, no later scan began, and no `list_changed` came since its first request.
 */
export interface CompletenessLedger {
  /** The session's published catalogue, where it is a proven snapshot that may be used now. */
  provenSnapshot(session: Session): Promise<ProvenSnapshot | undefined>;
  /**
   * Removes all that is absent at once, without the fenced read that an unproven catalogue needs (F7): a tombstone each. The
   * floor holds (S8); a removal that was confirmed for this snapshot's publication needs no second confirmation.
   *
   * @throws {FencelineError} `snapshot_not_proven`; what was removed before stays removed
   */
  removeAbsent(
    session: Session,
    snapshot: ProvenSnapshot,
    options?: { readonly floor?: RemovalFloor },
  ): Promise<CompletenessResult<{ readonly outcome: "removed"; readonly removed: number }>>;
  /**
   * Revokes by enumeration: each absent resource by its URI, so that what a server stopped listing for this reader is hidden,
   * purged and not accepted again until it is lifted. Idempotent: each revocation's `requestId` is the given one, `/`, and the
   * hexadecimal SHA-256 of the resource key. The floor holds (S8).
   *
   * @param request `subject`: whom to revoke; default the reader. `role`: default `reader` for the reader, else `audience`.
   * @throws {FencelineError} `snapshot_not_proven`, `request_id_reused`; what was revoked before stays revoked
   */
  revokeByEnumeration(
    session: Session,
    snapshot: ProvenSnapshot,
    request: {
      readonly requestId: string;
      readonly reason: string;
      readonly requestedBy?: string;
      readonly subject?: string;
      readonly role?: RevocationRole;
      readonly floor?: RemovalFloor;
    },
  ): Promise<
    CompletenessResult<{
      readonly outcome: "revoked";
      readonly revoked: number;
      /** Revoked by this `requestId` before. */
      readonly known: number;
    }>
  >;
}

/** Held under the fence at a time: a revocation waits for one batch at most (P2). */
const BATCH = 100;

/** See `CompletenessLedger`. The rules are in `functions/completeness.sql`. */
export function completenessLedger(database: Queryable, timing: ReadTiming = defaultReadTiming): CompletenessLedger {
  return checkedCalls(completenessArguments, {
    provenSnapshot: (session) => provenSnapshot(database, session),

    async removeAbsent(session, snapshot, { floor } = {}) {
      const proof = proofFor(session, snapshot);
      const weighed = await weighAbsence(database, proof, floor ?? floorOf(timing));
      if (weighed) return weighed;
      let removed = 0;
      for (let after: number | null = 0; after !== null; ) {
        const [batch]: RemovedBatch[] = await database.query(
          "select * from fenceline.remove_absent($1, $2, $3, $4, $5, $6, $7)",
          [...proofParameters(proof), after, BATCH],
        );
        assert(batch !== undefined, "remove_absent answers with one row.");
        if (objects(batch.objection)) return { outcome: "session_lost" };
        removed += batch.removed;
        after = batch.last_id;
      }
      return { outcome: "removed", removed };
    },

    async revokeByEnumeration(session, snapshot, { floor, ...request }) {
      const proof = proofFor(session, snapshot);
      const revocation = enumeratedRevocation(session, request);
      const weighed = await weighAbsence(database, proof, floor ?? floorOf(timing));
      if (weighed) return weighed;
      const counts = { revoked: 0, known: 0 };
      for (let after = 0; ; ) {
        const page = await database.query<AbsentResource>("select * from fenceline.absent_resources($1, $2, $3, $4)", [
          proof.scopeId,
          proof.scanId,
          after,
          BATCH,
        ]);
        // One transaction each, as `revoke` takes: a batch would hold the exclusive fence for all of them.
        for (const resource of page) {
          const outcome = await call<RevokedAbsent>(database, REVOKE_ABSENT, [
            ...proofParameters(proof),
            ...revocation(resource),
          ]);
          if (outcome === "revoked" || outcome === "known") counts[outcome] += 1;
          else if (outcome === "request_id_reused") throw requestIdReused(request.requestId);
          else if (outcome !== "listed" && objects(outcome)) return { outcome: "session_lost" };
        }
        const last = page.at(-1);
        if (last === undefined || page.length < BATCH) return { outcome: "revoked", ...counts };
        after = last.subscription_id;
      }
    },
  });
}

const REVOKE_ABSENT =
  "fenceline.revoke_absent($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)";

type Objection =
  | "another_ledger"
  | "session_lost"
  | "not_proven"
  | "distrusted"
  | "superseded"
  | "list_changed"
  | "held";
type RevokedAbsent = "revoked" | "known" | "request_id_reused" | "listed" | Objection;

interface RemovedBatch {
  readonly objection: Objection | null;
  readonly removed: number;
  readonly last_id: number | null;
}

interface AbsentResource {
  readonly subscription_id: number;
  readonly resource_id: number;
  readonly uri: string;
  readonly key_digest: Buffer;
}

const BECAUSE: Record<Exclude<Objection, "session_lost">, string> = {
  another_ledger: "another ledger made it",
  not_proven: "no scan of this session proves it",
  distrusted: "the snapshot extension contradicted itself in this session since",
  superseded: "a later scan began or another catalogue was published",
  list_changed: "the list changed since its first request",
  held: "its removals are held back",
};

/** Whether the session is lost. @throws {FencelineError} `snapshot_not_proven` for every other objection */
function objects(objection: Objection | null): boolean {
  if (objection === null) return false;
  if (objection === "session_lost") return true;
  throw notProven(BECAUSE[objection]);
}

/** @throws {FencelineError} `snapshot_not_proven`: the ledger did not make it, or made it for another source, reader or session */
function proofFor(session: Session, snapshot: ProvenSnapshot): SnapshotProof {
  const proof = proofOf(snapshot);
  if (proof === undefined) throw notProven("the ledger did not make this object");
  if (proof.scopeId !== session.scopeId || proof.generation !== session.generation) {
    throw notProven(`it is not of this session of ${session.source} as ${session.reader}`);
  }
  return proof;
}

async function weighAbsence(database: Queryable, proof: SnapshotProof, floor: RemovalFloor) {
  const [weighed] = await database.query<{
    objection: Objection | null;
    held: boolean;
    known: number;
    absent: number;
  }>("select * from fenceline.weigh_absence($1, $2, $3, $4, $5, $6, $7)", [
    ...proofParameters(proof),
    floor.count,
    floor.share,
  ]);
  assert(weighed !== undefined, "weigh_absence answers with one row.");
  if (objects(weighed.objection)) return { outcome: "session_lost" } as const;
  return weighed.held ? ({ outcome: "held", known: weighed.known, absent: weighed.absent } as const) : undefined;
}

/** The parameters of a revocation of one absent resource. */
function enumeratedRevocation(
  session: Session,
  request: Omit<Parameters<CompletenessLedger["revokeByEnumeration"]>[2], "floor">,
) {
  const { requestId, reason, requestedBy = "unknown", subject = session.reader } = request;
  const role = request.role ?? (subject === session.reader ? "reader" : "audience");
  return ({ resource_id, uri, key_digest }: AbsentResource): unknown[] => [
    resource_id,
    `${requestId}/${key_digest.toString("hex")}`,
    ...revocationParameters({ subject, role, scope: { uri }, reason, requestedBy })(session.sourceId),
  ];
}

function proofParameters({ scopeId, generation, scanId, setDigest, mark }: SnapshotProof): unknown[] {
  return [scopeId, generation, scanId, setDigest, mark];
}

function notProven(because: string): FencelineError {
  return new FencelineError(
    "snapshot_not_proven",
    `This snapshot is not proven now: ${because}. Scan again, publish, and use the snapshot that comes of it (S6).`,
  );
}
