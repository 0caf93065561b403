import fc from "fast-check";
import type { UriScope } from "#src/uri-scope.js";

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

const isPrefix = (text: string) => text !== "" && !/[?#]$/.test(text);
const anyScope: fc.Arbitrary<UriScope> = fc.oneof(
  anyUri.map((uri) => ({ uri })),
  anyUri.filter(isPrefix).map((prefix) => ({ prefix })),
  hostileText.filter(isPrefix).map((prefix) => ({ prefix })),
  fc.constant({ everything: true as const }),
);
/** Scopes and URIs of one another's neighbourhood, so that about half of them cover. */
export const scopeAndUri: fc.Arbitrary<[UriScope, string]> = fc.oneof(
  fc.tuple(anyScope, fc.oneof(anyUri, hostileText)),
  fc
    .tuple(anyUri.filter(isPrefix), fc.constantFrom("", "/", "/x", "?x", "#x", ":x", "-2", "/../x", "%2Fx", "x", "//x"))
    .chain(([prefix, rest]) => fc.tuple(fc.constantFrom({ prefix }, { uri: prefix }), fc.constant(prefix + rest))),
);
