import { z } from "zod";
import { contentFinding } from "./content-finding.js";
import { contentDigest, counter, instant, ledgerId, name, serverImplementation } from "./record-fields.js";

/** Where a version came from, carried by everything derived from it (F2). */
const lineageTag = z.strictObject({
  /** Names the version in metadata, answers and `trace`. */
  lineageId: z.string().min(1),
  readId: z.string().min(1),
  /** The scan that listed the URI; `null` if it was read without having been listed. */
  scanId: ledgerId.nullable(),
  /** The newest revocation or lift that covered this URI when it was read. */
  policyEpoch: counter,
});

/**
 * Content that the ledger accepted (F2, F3). It says what was read, when and by whom; whether it is current is derived
 * when asked and stands in no record.
 */
export const resourceVersion = z.strictObject({
  record: z.literal("resourceVersion.v1"),
  ...lineageTag.shape,
  source: name,
  /** The subject whose authorization read it (F11). */
  subject: name,
  subscriptionId: ledgerId,
  /** The resource key (F10). */
  uri: z.string().min(1),
  mimeType: z.string().min(1).nullable(),
  /** Over all its parts; `null` once a revocation, a purge or a newer version took its content (P8). */
  contentDigest: contentDigest.nullable(),
  readOrdinal: z.int().positive(),
  /** Of the subscription. */
  generation: z.int().positive(),
  server: serverImplementation.nullable(),
  acceptedAt: instant,
  /** What the last one who cut it into chunks found in it; empty also where nobody has looked yet. */
  findings: z.array(contentFinding).optional(),
});
export type ResourceVersion = z.infer<typeof resourceVersion>;
