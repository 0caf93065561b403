/**
 * Public ids of entries: UUIDs of version 8 (RFC 9562, section 5.8), so that every store takes them (a `uuid` column
 * included), and with the ledger's mark in them, so that repair knows the entries of this ledger and index from foreign ones.
 *
 * ```
 * 48 bits mark | 4 bits version (8) | 12 bits index | 2 bits variant (10) | 62 bits number
 * ```
 * The number comes from the ledger and is never reused; ids of one index sort by it.
 */
import { assert } from "./errors.js";

/** What an entry id says. */
export interface EntryIdParts {
  /** The ledger's mark: 48 random bits fixed when it was created, as 12 lower-case hex digits. */
  readonly mark: string;
  /** Id of the index within the ledger, 0 to 4095. */
  readonly indexId: number;
  /** Sequence number of the entry in the ledger, a safe integer from 0. */
  readonly number: number;
}

const MARK = /^[0-9a-f]{12}$/;
const MAX_INDEX_ID = 0xfff;
const ENTRY_ID = /^([0-9a-f]{8})-([0-9a-f]{4})-8([0-9a-f]{3})-([89ab][0-9a-f]{3})-([0-9a-f]{12})$/;
const VARIANT = 0b10n << 62n;

/**
 * The entry's public id, in lower case.
 *
 * @throws {FencelineError} `assertion_failed`: a part is out of its range.
 */
export function formatEntryId({ mark, indexId, number }: EntryIdParts): string {
  assert(MARK.test(mark), `The ledger's mark ${mark} is not 12 lower-case hex digits.`);
  assert(
    Number.isInteger(indexId) && indexId >= 0 && indexId <= MAX_INDEX_ID,
    `The index id ${indexId} is not an integer from 0 to ${MAX_INDEX_ID}.`,
  );
  assert(Number.isSafeInteger(number) && number >= 0, `The entry number ${number} is not a safe integer from 0.`);
  const tail = (VARIANT | BigInt(number)).toString(16);
  const index = indexId.toString(16).padStart(3, "0");
  return `${mark.slice(0, 8)}-${mark.slice(8)}-8${index}-${tail.slice(0, 4)}-${tail.slice(4)}`;
}

/**
 * The parts of an entry id, in either case of hex; `undefined` for any other text, also for a UUID of another version or
 * with a number beyond the safe integers. Whether the entry is this ledger's is for the caller to compare by `mark`.
 */
export function parseEntryId(text: string): EntryIdParts | undefined {
  const [, head, middle, index, high, low] = ENTRY_ID.exec(text.toLowerCase()) ?? [];
  if (head === undefined || middle === undefined || index === undefined || high === undefined || low === undefined) {
    return undefined;
  }
  const number = Number(BigInt(`0x${high}${low}`) ^ VARIANT);
  if (!Number.isSafeInteger(number)) return undefined;
  return { mark: head + middle, indexId: Number.parseInt(index, 16), number };
}
