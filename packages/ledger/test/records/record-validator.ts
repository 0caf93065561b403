import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { expect } from "vitest";
import { type LedgerRecord, type RecordName, recordSchemas } from "#src/records/parse-record.js";
import { recordJsonSchema } from "#src/records/record-json-schema.js";

const ajv = new Ajv2020({ strict: true, allErrors: true });
addFormats.default(ajv);
for (const name of Object.keys(recordSchemas) as RecordName[]) ajv.addSchema(recordJsonSchema(name));

/** The JSON Schema of a record as somebody else's validator understands it. */
export function validatorOf(name: RecordName): ValidateFunction {
  return ajv.getSchema(`urn:fenceline:record:${name}`) ?? expect.fail(`${name} has no schema under its id`);
}

/** The record, as JSON, fits the JSON Schema that is published for it. */
export function expectToFitItsJsonSchema(record: LedgerRecord | undefined): void {
  if (record === undefined) expect.fail("there is no such record");
  const validate = validatorOf(record.record);
  expect([validate(JSON.parse(JSON.stringify(record))), validate.errors]).toEqual([true, null]);
}
