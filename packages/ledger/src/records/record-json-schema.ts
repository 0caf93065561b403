import { z } from "zod";
import { type RecordName, recordSchemas } from "./parse-record.js";

/**
 * The JSON Schema (draft 2020-12) of a record, for readers in other languages: published as
 * `@fenceline/ledger/schemas/<record>.json`. It says everything about single fields; what one field says about another (a
 * complete revocation has a completion time) only `parseRecord` checks.
 */
export function recordJsonSchema(name: RecordName): Record<string, unknown> {
  const { $schema, ...schema } = z.toJSONSchema(recordSchemas[name], { target: "draft-2020-12", io: "input" });
  return { $schema, $id: `urn:fenceline:record:${name}`, title: name, ...schema };
}
