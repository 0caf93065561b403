import { createHmac, timingSafeEqual } from "node:crypto";
import type { Queryable } from "./database/database.js";
import { type EntryIdParts, formatEntryId, parseEntryId } from "./entry-id.js";
import { assert, FencelineError } from "./errors.js";
import { call } from "./fenced-call.js";

/** What makes this ledger's ids and digests its own. */
export interface LedgerIdentity {
  /** Stands in every entry id; fixed when its schema was created. */
  readonly mark: string;
  /** Keys the digests that outlive content (P8). Never leaves the process. */
  readonly digestKey: Buffer;
  /**
   * What the database keys the digests of purge receipts with, where the key itself is kept outside: derived from it, so that
   * a server that logs its parameters does not log the key. `null`: the database has the key.
   */
  receiptKey: Buffer | null;
}

/** A digest key as it is given: bytes, or their text in hex or base64. At least 32 bytes. */
export type DigestKey = Uint8Array | string;

const LEAST_KEY_BYTES = 32;

/**
 * The identity of an open ledger.
 *
 * @param given the digest key, where it is kept outside of the ledger. A ledger that keeps its own takes this one instead
 * while nothing was digested yet, and forgets its own when it is the same one
 * @throws {FencelineError} `digest_key_invalid`, `digest_key_missing`, `digest_key_wrong`
 */
export async function readIdentity(database: Queryable, given?: DigestKey): Promise<LedgerIdentity> {
  const row = await identityRow(database);
  if (given === undefined) {
    if (row.digest_key !== null) return { mark: row.mark, digestKey: row.digest_key, receiptKey: null };
    throw new FencelineError(
      "digest_key_missing",
      "The digest key of this ledger is kept outside of it. Pass it as `digestKey`, or set FENCELINE_DIGEST_KEY for the command line.",
    );
  }
  const digestKey = parseDigestKey(given);
  if (row.digest_key !== null) await moveOut(database, digestKey, sameBytes(digestKey, row.digest_key));
  const { digest_key_fingerprint: kept } = await identityRow(database);
  if (kept === null || !sameBytes(kept, fingerprintOf(digestKey))) throw wrongKey();
  return { mark: row.mark, digestKey, receiptKey: receiptKeyOf(digestKey) };
}

/**
 * Takes the key out of the database, which keeps its fingerprint alone from then on, and returns it: keep it safe, for without
 * it the ledger is not opened any more. Other processes that have the ledger open cannot purge until they open it with the key.
 */
export async function takeDigestKeyOut(database: Queryable, identity: LedgerIdentity): Promise<Buffer> {
  await moveOut(database, identity.digestKey, true);
  identity.receiptKey = receiptKeyOf(identity.digestKey);
  return identity.digestKey;
}

async function moveOut(database: Queryable, digestKey: Buffer, isKept: boolean): Promise<void> {
  const parameters = [fingerprintOf(digestKey), isKept];
  const outcome = await call<MoveOutcome>(database, "fenceline.move_digest_key_out($1, $2)", parameters);
  switch (outcome) {
    case "moved":
    case "outside":
      return;
    case "in_use":
      throw wrongKey();
    default:
      outcome satisfies never;
  }
}

type MoveOutcome = "moved" | "outside" | "in_use";

interface IdentityRow {
  readonly mark: string;
  readonly digest_key: Buffer | null;
  readonly digest_key_fingerprint: Buffer | null;
}

async function identityRow(database: Queryable): Promise<IdentityRow> {
  const [row] = await database.query<IdentityRow>(
    "select mark, digest_key, digest_key_fingerprint from fenceline.identity",
  );
  assert(row !== undefined, "A ledger has one identity.");
  return row;
}

function parseDigestKey(given: DigestKey): Buffer {
  const key = typeof given === "string" ? decodeKey(given.trim()) : Buffer.from(given);
  if (key !== undefined && key.length >= LEAST_KEY_BYTES) return key;
  throw new FencelineError(
    "digest_key_invalid",
    `A digest key is ${LEAST_KEY_BYTES} bytes or more, given as bytes, hex or base64; \`openssl rand -hex ${LEAST_KEY_BYTES}\` makes one.`,
  );
}

function decodeKey(text: string): Buffer | undefined {
  if (/^(?:[0-9a-f]{2})+$/i.test(text)) return Buffer.from(text, "hex");
  if (/^[A-Za-z0-9+/_-]+={0,2}$/.test(text)) return Buffer.from(text, "base64");
  return undefined;
}

function wrongKey(): FencelineError {
  return new FencelineError(
    "digest_key_wrong",
    "This is not the key that the ledger's digests were made with. Pass the one it was opened with before, or none where the ledger keeps its own.",
  );
}

/** Tells a wrong key, and nothing about the right one. */
function fingerprintOf(digestKey: Buffer): Buffer {
  return createHmac("sha256", digestKey).update("fenceline digest key fingerprint").digest();
}

function receiptKeyOf(digestKey: Buffer): Buffer {
  return createHmac("sha256", digestKey).update("fenceline purge receipts").digest();
}

function sameBytes(left: Buffer, right: Buffer): boolean {
  return left.length === right.length && timingSafeEqual(left, right);
}

/** Public ids of this ledger's entries, and back. */
export function entryIds({ mark }: LedgerIdentity) {
  /** What the id of an entry of this ledger says; `undefined` for any other text. */
  const partsOf = (id: string): EntryIdParts | undefined => {
    const parts = parseEntryId(id);
    return parts?.mark === mark ? parts : undefined;
  };
  return {
    format: (indexId: number, number: number): string => formatEntryId({ mark, indexId, number }),
    partsOf,
    /** The number of an entry of this ledger; `undefined` for any other text. */
    numberOf: (id: string): number | undefined => partsOf(id)?.number,
  };
}
