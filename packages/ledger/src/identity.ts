import type { Queryable } from "./database/database.js";
import { formatEntryId, parseEntryId } from "./entry-id.js";
import { assert } from "./errors.js";

/** What makes this ledger's ids and digests its own; fixed when its schema was created. */
export interface LedgerIdentity {
  /** Stands in every entry id. */
  readonly mark: string;
  /** Keys the digests that outlive content (P8). Never leaves the process. */
  readonly digestKey: Buffer;
}

export async function readIdentity(database: Queryable): Promise<LedgerIdentity> {
  const [row] = await database.query<{ mark: string; digest_key: Buffer }>(
    "select mark, digest_key from fenceline.identity",
  );
  assert(row !== undefined, "A ledger has one identity.");
  return { mark: row.mark, digestKey: row.digest_key };
}

/** Public ids of this ledger's entries, and back. */
export function entryIds({ mark }: LedgerIdentity) {
  return {
    format: (indexId: number, number: number): string => formatEntryId({ mark, indexId, number }),
    /** The number of an entry of this ledger; `undefined` for any other text. */
    numberOf: (id: string): number | undefined => {
      const parts = parseEntryId(id);
      return parts?.mark === mark ? parts.number : undefined;
    },
  };
}
