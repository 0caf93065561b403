import fc from "fast-check";
import { expect, test } from "vitest";
import { jsonFaultAt } from "#src/config/json-fault.js";

test.each([
  ['{ "a": abc }', 1, 8],
  ['{"a":1,}', 1, 8],
  ['{\n  "a": 1,\n  // a comment\n  "b": 2\n}', 3, 3],
  ["{'a': 1}", 1, 2],
  ['{"a": "two\nlines"}', 1, 11],
  ["[1, 2]]", 1, 7],
  ['{"a": tru }', 1, 10],
  ["", 1, 1],
  ['{\n  "a": 1', 2, 9],
])("%j is no JSON from line %i, column %i", (text, line, column) => {
  expect(jsonFaultAt(text)).toEqual({ line, column });
});

test("a character that fits nowhere is found wherever it stands between the tokens of a document", () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.nat(), (value, place) => {
      const lines = JSON.stringify({ value }, null, 1).split("\n");
      const at = place % lines.length;
      lines.splice(at, 0, "?");
      expect(jsonFaultAt(lines.join("\n"))).toEqual({ line: at + 1, column: 1 });
    }),
  );
});
