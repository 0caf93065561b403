import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { type EntryIdParts, formatEntryId, parseEntryId } from "#src/entry-id.js";

const anyParts: fc.Arbitrary<EntryIdParts> = fc.record({
  mark: fc.string({ unit: fc.constantFrom(..."0123456789abcdef"), minLength: 12, maxLength: 12 }),
  indexId: fc.integer({ min: 0, max: 4095 }),
  number: fc.maxSafeNat(),
});

describe("an entry id", () => {
  it("places mark, index and number in a UUID of version 8 (RFC 9562)", () => {
    expect(formatEntryId({ mark: "0123456789ab", indexId: 0xcde, number: 1 })).toBe(
      "01234567-89ab-8cde-8000-000000000001",
    );
    expect(formatEntryId({ mark: "ffffffffffff", indexId: 0, number: Number.MAX_SAFE_INTEGER })).toBe(
      "ffffffff-ffff-8000-801f-ffffffffffff",
    );
  });

  it("is a UUID for any parts, and gives them back in either case (L1)", () => {
    fc.assert(
      fc.property(anyParts, (parts) => {
        const id = formatEntryId(parts);
        expect(z.uuid({ version: "v8" }).parse(id)).toBe(id);
        expect(parseEntryId(id)).toEqual(parts);
        expect(parseEntryId(id.toUpperCase())).toEqual(parts);
      }),
    );
  });

  it("sorts by number within an index", () => {
    fc.assert(
      fc.property(anyParts, fc.maxSafeNat(), (parts, other) => {
        const [one, two] = [formatEntryId(parts), formatEntryId({ ...parts, number: other })];
        expect(Math.sign(parts.number - other)).toBe(one < two ? -1 : one > two ? 1 : 0);
      }),
    );
  });

  it.each([
    "",
    "not an id",
    "01234567-89ab-4cde-8000-000000000001",
    "01234567-89ab-8cde-c000-000000000001",
    "01234567-89ab-8cde-8000-0000000000011",
    "{01234567-89ab-8cde-8000-000000000001}",
    "0123456789ab8cde8000000000000001",
    "01234567-89ab-8cde-8020-000000000000",
  ])("is not read from foreign text: %j", (text) => {
    expect(parseEntryId(text)).toBeUndefined();
  });

  it.each([
    { mark: "0123456789AB" },
    { mark: "0123" },
    { indexId: 4096 },
    { indexId: -1 },
    { indexId: 0.5 },
    { number: -1 },
    { number: 2 ** 53 },
    { number: Number.NaN },
  ])("is not made of parts out of range: %j", (wrong) => {
    expect(() => formatEntryId({ mark: "0123456789ab", indexId: 1, number: 1, ...wrong })).toThrowError(
      expect.objectContaining({ code: "assertion_failed" }),
    );
  });
});
