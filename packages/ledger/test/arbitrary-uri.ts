import fc from "fast-check";

/** Little of everything that folding treats in a special way, so that collisions are frequent. */
const piece = fc.constantFrom(
  "a",
  "b",
  "B",
  "e",
  "plans",
  "/",
  "//",
  "/./",
  "/../",
  "..",
  ".",
  ":",
  "?",
  "#",
  "@",
  "\\",
  "%",
  "%2F",
  "%2f",
  "%252F",
  "%2e",
  "%25",
  "2E",
  "41",
  "%3F",
  "%23",
  "%00",
  "%01",
  "%C3%A9",
  "%C3",
  "\u0301",
  "é",
  "😀",
  "\u0001",
  "\0",
  "\t",
  " ",
  "\ud800",
  "\u{10ffff}",
);
const scheme = fc.constantFrom("catalog", "CATALOG", "http", "file", "urn", "sqlite", "1password");

/** A URI with a scheme, ordinary or hostile. */
export const anyUri: fc.Arbitrary<string> = fc
  .tuple(scheme, fc.constantFrom(":", "://", ":///"), fc.array(piece, { maxLength: 8 }))
  .map(([name, separator, pieces]) => name + separator + pieces.join(""));

/** Text that need not be a URI at all. */
export const hostileText: fc.Arbitrary<string> = fc.oneof(
  fc.string({ unit: "binary" }),
  fc.array(piece, { maxLength: 8 }).map((pieces) => pieces.join("")),
);
