import type { z } from "zod";
import { FencelineError } from "../errors.js";

/**
 * The value as the record it claims to be.
 *
 * @throws {FencelineError} `record_invalid`, naming every field that does not fit.
 */
export function parseRecord<Schema extends z.ZodType>(schema: Schema, value: unknown): z.infer<Schema> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const fields = parsed.error.issues.map((issue) => `${issue.path.join(".") || "record"}: ${issue.message}`);
  throw new FencelineError("record_invalid", `The record does not fit its schema: ${fields.join("; ")}.`, {
    cause: parsed.error,
  });
}
