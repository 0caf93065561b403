import { z } from "zod";
import { FencelineError } from "../errors.js";
import { capabilityReceipt } from "./capability-receipt.js";
import { closeReceipt } from "./close-receipt.js";
import { derivedEntry } from "./derived-entry.js";
import { permissionRevocation } from "./permission-revocation.js";
import { purgeReceipt } from "./purge-receipt.js";
import { resourceDiscoveryScan } from "./resource-discovery-scan.js";
import { resourceSubscription } from "./resource-subscription.js";
import { resourceVersion } from "./resource-version.js";
import { staleReceipt } from "./stale-receipt.js";
import { tombstoneReceipt } from "./tombstone-receipt.js";
import { versionReceipt } from "./version-receipt.js";

/**
 * Every record by its name. The version is in the name: a record that changes gets another name and a schema of its own, and
 * the older one stays here, so that what was kept once can be read for ever.
 */
export const recordSchemas = {
  "capabilityReceipt.v1": capabilityReceipt,
  "closeReceipt.v1": closeReceipt,
  "derivedEntry.v1": derivedEntry,
  "permissionRevocation.v1": permissionRevocation,
  "purgeReceipt.v1": purgeReceipt,
  "resourceDiscoveryScan.v1": resourceDiscoveryScan,
  "resourceSubscription.v1": resourceSubscription,
  "resourceVersion.v1": resourceVersion,
  "staleReceipt.v1": staleReceipt,
  "tombstoneReceipt.v1": tombstoneReceipt,
  "versionReceipt.v1": versionReceipt,
} as const;

export type RecordName = keyof typeof recordSchemas;
export type LedgerRecord<Name extends RecordName = RecordName> = z.infer<(typeof recordSchemas)[Name]>;

const named = z.object({ record: z.string() });

/**
 * The value as the record that its field `record` says it is.
 *
 * @throws {FencelineError} `record_unknown`: no record of that name and version. `record_invalid`: it does not fit its schema.
 */
export function parseRecord(value: unknown): LedgerRecord {
  const { record } = parseRecordAs(named, value);
  if (!isRecordName(record)) {
    throw new FencelineError(
      "record_unknown",
      `There is no record ${JSON.stringify(record.slice(0, 60))}: it was written by a newer Fenceline, which reads it, or is none of its records.`,
    );
  }
  return parseRecordAs<z.ZodType<LedgerRecord>>(recordSchemas[record], value);
}

/**
 * The value as one record and no other.
 *
 * @throws {FencelineError} `record_invalid`, naming every field that does not fit.
 */
export function parseRecordAs<Schema extends z.ZodType>(schema: Schema, value: unknown): z.infer<Schema> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const fields = parsed.error.issues.map((issue) => `${issue.path.join(".") || "record"}: ${issue.message}`);
  throw new FencelineError("record_invalid", `The record does not fit its schema: ${fields.join("; ")}.`, {
    cause: parsed.error,
  });
}

function isRecordName(text: string): text is RecordName {
  return Object.hasOwn(recordSchemas, text);
}
