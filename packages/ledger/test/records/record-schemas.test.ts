import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { parseRecord, type RecordName, recordSchemas } from "#src/records/parse-record.js";
import { recordJsonSchema } from "#src/records/record-json-schema.js";
import { validatorOf } from "./record-validator.js";

const PACKAGE = new URL("../../", import.meta.url);
const KEPT = new URL("kept/", import.meta.url);
const names = Object.keys(recordSchemas) as RecordName[];

function keptRecords(name: RecordName): { record: string }[] {
  return JSON.parse(readFileSync(new URL(`${name}.json`, KEPT), "utf8"));
}

describe("the JSON Schema of a record", () => {
  test.each(names)("%s is what its zod schema says: neither changes unannounced", async (name) => {
    const file = fileURLToPath(new URL(`schemas/${name}.json`, PACKAGE));
    await expect(`${JSON.stringify(recordJsonSchema(name), null, 2)}\n`).toMatchFileSnapshot(file);
  });

  test("is published, and none of a record that is no more is left", () => {
    const { files, exports } = JSON.parse(readFileSync(new URL("package.json", PACKAGE), "utf8"));
    expect(files).toContain("schemas");
    expect(exports["./schemas/*"]).toBe("./schemas/*");
    expect(readdirSync(new URL("schemas/", PACKAGE)).sort()).toEqual(names.map((name) => `${name}.json`).sort());
  });
});

describe("an independent validator of JSON Schema", () => {
  test.each(names)("takes %s as the ledger writes it, and refuses what is not its own or is missing (P8)", (name) => {
    const validate = validatorOf(name);
    for (const record of keptRecords(name)) {
      expect([validate(record), validate.errors]).toEqual([true, null]);
      expect(validate({ ...record, text: "price=100" })).toBe(false);
      for (const field of Object.keys(record)) {
        const without = Object.fromEntries(Object.entries(record).filter(([other]) => other !== field));
        expect(validate(without), field).toBe(false);
      }
    }
  });
});

/** What an earlier version wrote. Files are only ever added here: one that has to be changed breaks somebody's archive. */
describe("a record that was kept", () => {
  test.each(names)("%s can be read for ever: its version is in its name", (name) => {
    const kept = keptRecords(name);
    expect(kept.length).toBeGreaterThan(0);
    for (const record of kept) {
      expect(record.record).toBe(name);
      expect(parseRecord(record)).toEqual(record);
    }
  });

  test("is read by this version whatever its name is", () => {
    expect(
      readdirSync(KEPT)
        .map((file) => file.replace(/\.json$/, ""))
        .sort(),
    ).toEqual([...names].sort());
  });

  test.each(["resourceVersion.v2", "grant.v1", "__proto__", "toString"])("but %s is not known", (record) => {
    expect(() => parseRecord({ record })).toThrowError(
      expect.objectContaining({ code: "record_unknown", message: expect.stringContaining(JSON.stringify(record)) }),
    );
  });

  test.each([null, 1, [], {}, { record: 1 }])("and %j is no record", (value) => {
    expect(() => parseRecord(value)).toThrowError(expect.objectContaining({ code: "record_invalid" }));
  });
});
