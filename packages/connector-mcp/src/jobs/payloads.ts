/**
 * What a job carries: which part of the ledger to look at, never a fact that decides (design §1). The schemas are public:
 * any BullMQ client may add a job, and a job that does not fit is failed at once, never tried again.
 */
import { UnrecoverableError } from "bullmq";
import { z } from "zod";

const version = z.literal(1);
const name = z.string().min(1).max(200);

/** `fenceline-discovery`: scan the source's list as this reader sees it. */
export const discoveryPayload = z.strictObject({ v: version, source: name, reader: name });

/** `fenceline-read`: send the reads that are due. */
export const readPayload = z.strictObject({ v: version, source: name, reader: name });

/** `fenceline-index`: index the versions that wait in this index. */
export const indexPayload = z.strictObject({ v: version, index: name });

/** `fenceline-purge`, jobs named `purge`: advance revocations, or with a store: empty it of what nothing holds any more. */
export const purgePayload = z.strictObject({ v: version, store: name.optional() });

/**
 * `fenceline-purge`, jobs named `revoke`: ask for a revocation (P1). It stands once the job has completed, and the job's
 * result is its status. Without a `requestId` the job's own id serves, so that a job run twice revokes once.
 */
export const revokePayload = z
  .strictObject({
    v: version,
    requestId: z.string().min(1).max(200).optional(),
    source: name.optional(),
    subject: name,
    role: z.enum(["reader", "audience", "both"]).optional(),
    uri: z.string().min(1).optional(),
    prefix: z.string().min(1).optional(),
    reason: z.string().min(1),
    requestedBy: name.optional(),
  })
  .refine((request) => request.uri === undefined || request.prefix === undefined, {
    error: "uri and prefix exclude each other",
    path: ["prefix"],
  });

export type DiscoveryPayload = z.output<typeof discoveryPayload>;
export type ReadPayload = z.output<typeof readPayload>;
export type IndexPayload = z.output<typeof indexPayload>;
export type PurgePayload = z.output<typeof purgePayload>;
export type RevokePayload = z.output<typeof revokePayload>;

/**
 * The job's data, checked.
 *
 * @throws {UnrecoverableError} naming each wrong field, so that BullMQ fails the job without another try
 */
export function parsePayload<Payload>(schema: z.ZodType<Payload>, data: unknown): Payload {
  const parsed = schema.safeParse(data);
  if (parsed.success) return parsed.data;
  const faults = parsed.error.issues.flatMap((issue) => {
    if (issue.code === "unrecognized_keys") return issue.keys.map((key) => `${key}: no such field`);
    return [`${issue.path.join(".") || "payload"}: ${issue.message}`];
  });
  throw new UnrecoverableError(`job_payload_invalid: ${faults.join("; ")}`);
}
