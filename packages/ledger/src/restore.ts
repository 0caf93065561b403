/**
 * A restored backup: recognised by its position, and begun anew so that nothing of the lost time line is taken for something of
 * the new one. The rules are in `functions/restore.sql`.
 */
import { z } from "zod";
import { restoreArguments } from "./arguments/restore.js";
import type { Queryable } from "./database/database.js";
import { parseEntryId } from "./entry-id.js";
import { assert, FencelineError } from "./errors.js";
import type { LedgerIdentity } from "./identity.js";
import { checkedCalls, count, ordinal } from "./input.js";

/** How far a ledger has come. */
export interface LedgerPosition {
  /** The whole of it as text, for keeping outside of the database and for `recognizeRestore`. */
  readonly token: string;
  /** Stands in every entry id of this ledger. */
  readonly mark: string;
  /** Rises with every backup that was recognised as restored. */
  readonly incarnation: number;
  /** Rises with every position that was asked for. */
  readonly number: number;
  /** Position of the newest receipt, 0 before the first. */
  readonly receipt: number;
  /** The highest entry number that was given away, 0 before the first. */
  readonly entry: number;
}

/** What proves, or says, that the database was restored from a backup. */
export type RestoreEvidence =
  /** A position that was seen of it, and that it is behind. */
  | { readonly position: string }
  /** An entry of this ledger in a store, with a number that the ledger has not given away. */
  | { readonly entryId: string }
  /** A revocation that was answered, and that the ledger does not know. */
  | { readonly requestId: string }
  /** The person who restored it. Taken at his word. */
  | { readonly confirmedBy: string };

export type RestoreOutcome =
  | { readonly outcome: "not_restored" }
  | {
      readonly outcome: "restored";
      readonly incarnation: number;
      /** What was accepted before, and is served as unverified until it is read again. */
      readonly subscriptions: number;
      readonly readsLost: number;
    };

/** A restore that was recognised. */
export interface RecognizedRestore {
  readonly incarnation: number;
  readonly recognizedAt: Date;
  readonly evidence: "position" | "entry" | "revocation" | "operator";
}

export interface RestoreLedger {
  /** Where the ledger stands, durably: a database that is behind it later was restored from a backup, or lost commits. */
  position(): Promise<LedgerPosition>;
  /**
   * Begins a new incarnation if the evidence holds: sessions end, reads and claims are lost, every number and id jumps beyond
   * what the lost time line can have used, and everything is unverified until it is read again. One transaction, under
   * the fence of every scope; it rewrites every subscription. Asked twice with the same evidence, it does it once; a person's
   * word counts each time.
   *
   * @throws {FencelineError} `position_invalid`, `witness_of_another_ledger`, `input_invalid`
   */
  recognizeRestore(evidence: RestoreEvidence): Promise<RestoreOutcome>;
  /** Restores that were recognised, newest first. */
  recognizedRestores(): Promise<RecognizedRestore[]>;
  /** Of these requests, those that no revocation of this ledger answers: after a restore, to be asked for again (P1). */
  unknownRevocations(requestIds: readonly string[]): Promise<string[]>;
}

/** See `RestoreLedger`. */
export function restoreLedger(database: Queryable, identity: LedgerIdentity): RestoreLedger {
  return checkedCalls(restoreArguments, {
    async position() {
      const [row] = await database.query<{ position: SeenPosition }>("select fenceline.look_at_position() as position");
      assert(row !== undefined, "look_at_position answers with one row.");
      return positionOf(row.position);
    },

    async recognizeRestore(evidence) {
      const parameters = evidenceParameters(evidence, identity.mark);
      if (parameters === undefined) return { outcome: "not_restored" };
      const [row] = await database.query<IncarnationRow>(
        "select * from fenceline.begin_incarnation($1, $2, $3, $4, $5)",
        parameters,
      );
      assert(row !== undefined, "begin_incarnation answers with one row.");
      switch (row.outcome) {
        case "not_restored":
          return { outcome: "not_restored" };
        case "other_ledger":
          throw new FencelineError(
            "witness_of_another_ledger",
            `This position belongs to another ledger than ${identity.mark}: give each ledger a witness of its own.`,
          );
        case "restored": {
          const { outcome, incarnation, subscriptions, reads_lost: readsLost } = row;
          return { outcome, incarnation, subscriptions, readsLost };
        }
      }
    },

    async recognizedRestores() {
      return database.query<RecognizedRestore>(
        `select incarnation, recognized_at as "recognizedAt", evidence from fenceline.restore order by incarnation desc`,
      );
    },

    async unknownRevocations(requestIds) {
      const rows = await database.query<{ request: string }>(
        "select request from fenceline.unknown_requests($1) request",
        [requestIds],
      );
      const unknown = new Set(rows.map(({ request }) => request));
      return requestIds.filter((requestId) => unknown.delete(requestId));
    },
  });
}

interface IncarnationRow {
  readonly outcome: "restored" | "not_restored" | "other_ledger";
  readonly incarnation: number;
  readonly subscriptions: number;
  readonly reads_lost: number;
}

/** Leaves room for what is beyond it: higher ones a ledger gives away in none of 4,000 years. */
const number = ordinal.max(2 ** 52);

const seenPositionSchema = z.object({
  mark: z.string().regex(/^[0-9a-f]{12}$/),
  incarnation: count.max(2 ** 31 - 2),
  number,
  /** By name, which is an identifier; `null` where none was drawn from it. */
  sequences: z.record(z.string().regex(/^[a-z0-9_]{1,63}$/), number.nullable()),
});

type SeenPosition = z.infer<typeof seenPositionSchema>;

const TOKEN = /^fenceline-position\.v1\.([A-Za-z0-9_-]+)$/;

function positionOf(seen: SeenPosition): LedgerPosition {
  return {
    token: `fenceline-position.v1.${Buffer.from(JSON.stringify(seen)).toString("base64url")}`,
    mark: seen.mark,
    incarnation: seen.incarnation,
    number: seen.number,
    receipt: seen.sequences["receipt_receipt_id_seq"] ?? 0,
    entry: seen.sequences["entry_number"] ?? 0,
  };
}

/** What a position token says. @throws {FencelineError} `position_invalid` */
function seenPosition(token: string): SeenPosition {
  const [, encoded = ""] = TOKEN.exec(token.trim()) ?? [];
  const seen = seenPositionSchema.safeParse(parsedOrUndefined(Buffer.from(encoded, "base64url").toString()));
  if (seen.success) return seen.data;
  throw new FencelineError(
    "position_invalid",
    `${JSON.stringify(token.slice(0, 60))} is no position of a ledger: it begins with "fenceline-position.v1.".`,
  );
}

function parsedOrUndefined(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

/** The incarnation of the ledger that a position was seen in. @throws {FencelineError} `position_invalid` */
export function incarnationSeen(token: string): number {
  return seenPosition(token).incarnation;
}

/** Parameters of `begin_incarnation`; `undefined` for what cannot be evidence about this ledger. */
function evidenceParameters(evidence: RestoreEvidence, mark: string): unknown[] | undefined {
  if ("position" in evidence) return ["position", JSON.stringify(seenPosition(evidence.position)), null, null, null];
  if ("entryId" in evidence) {
    const entry = parseEntryId(evidence.entryId);
    return entry?.mark === mark ? ["entry", null, entry.number, null, null] : undefined;
  }
  if ("requestId" in evidence) return ["revocation", null, null, evidence.requestId, null];
  return ["operator", null, null, null, evidence.confirmedBy];
}
