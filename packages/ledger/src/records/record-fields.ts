/**
 * Fields that records share. Ids are numbers of the ledger (positive safe integers), times ISO 8601 with zone, digests
 * lower-case hex. Records are strict: a field that is not theirs is an error, so none can carry content past a purge (P8).
 */
import { z } from "zod";

/** Id of a row of the ledger. */
export const ledgerId = z.int().positive();
/** A counter that only rises: ordinals, generations, epochs, notification numbers. 0: none yet. */
export const counter = z.int().nonnegative();
/** A point in time by the ledger's clock, ISO 8601 with zone. */
export const instant = z.iso.datetime({ offset: true });
const sha256 = () => z.string().regex(/^[0-9a-f]{64}$/, "expected a SHA-256 in lower-case hex");
/** SHA-256 of content. Never in a record that outlives a purge. */
export const contentDigest = sha256();
/** HMAC-SHA-256 under the ledger's key, which proves equality to the ledger and says nothing to anyone else (P8). */
export const keyedDigest = sha256();
/** Name of a source, subject (reader, audience), store or index. */
export const name = z.string().min(1);
/** Public id of an entry: a UUID made by `formatEntryId`. */
export const entryId = z.uuid();
/** The server as it named itself. */
export const serverImplementation = z.strictObject({ name: z.string(), version: z.string() });
