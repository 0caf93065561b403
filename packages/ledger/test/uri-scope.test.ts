import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { matchKey, segmentKey } from "#src/resource-uri.js";
import {
  denialCovers,
  denialLookupTexts,
  denialRanges,
  denialTexts,
  grantCovers,
  grantLookupTexts,
  type KeyRange,
  MAX_PREFIX_LENGTH,
  prefixRange,
  scopeKey,
  scopeMatchKey,
  segmentPrefixes,
  uriScope,
  WHOLE_KEY_MARK,
} from "#src/uri-scope.js";
import { hostileText, scopeAndUri } from "./arbitrary-uri.js";

const keysOf = (uri: string) => ({ segmentKey: segmentKey(uri), matchKey: matchKey(uri) });

/** Byte order of UTF-8, which is that of `collate "C"`. */
const inRange = (key: string, { from, to }: KeyRange) =>
  Buffer.compare(Buffer.from(from), Buffer.from(key)) <= 0 && Buffer.compare(Buffer.from(key), Buffer.from(to)) < 0;

describe("a prefix", () => {
  const below = (prefix: string, uri: string) => [grantCovers({ prefix }, uri), denialCovers({ prefix }, uri)];

  it.each([
    ["catalog://plans/pro", "catalog://plans/pro"],
    ["catalog://plans/pro", "catalog://plans/pro/"],
    ["catalog://plans/pro/", "catalog://plans/pro"],
    ["catalog://plans/pro", "catalog://plans/pro/x"],
    ["catalog://plans/pro", "catalog://plans/pro?x"],
    ["catalog://plans/pro", "catalog://plans/pro/?x"],
    ["catalog://plans/pro", "catalog://plans/pro#x"],
    ["catalog://", "catalog://plans/pro"],
    ["catalog:", "catalog://plans/pro"],
    ["file:///srv/", "file:///srv/docs/a.md"],
    ["sqlite:////host", "sqlite:////host/path"],
    ["1password://vaults", "1password://vaults/1/items"],
    ["urn:example:docs", "urn:example:docs:1"],
    ["urn:example:", "urn:example:docs:1"],
    ["catalog://plans/größe", "catalog://plans/größe/x"],
  ])("%s covers %s, granted or denied (P1, G1)", (prefix, uri) => {
    expect(below(prefix, uri)).toEqual([true, true]);
  });

  it.each([
    ["catalog://plans/enterprise", "catalog://plans/enterprise-2"],
    ["catalog://plans/enterprise/", "catalog://plans/enterprise-2"],
    ["catalog://plans/enterprise/x", "catalog://plans/enterprise"],
    ["catalog://plans", "catalog://plan"],
    ["urn:example:docs", "urn:example:docs2"],
    ["http://host", "http://host.evil/x"],
    ["http://host", "http://host:8080/x"],
    ["file:///srv", "file:///srv2"],
  ])("%s does not cover %s: it is bound at a segment (P1)", (prefix, uri) => {
    expect(below(prefix, uri)).toEqual([false, false]);
  });

  it.each([
    ["catalog://plans/pro", "catalog://plans/pro%2Fx"],
    ["catalog://plans/pro", "catalog://plans/pro/../basic"],
    ["catalog://plans/pro", "catalog://plans/basic/../pro/x"],
    ["catalog://plans/pro", "catalog://plans/basic%2F..%2Fpro"],
    ["catalog://plans/pro", "catalog://PLANS/pro"],
    ["catalog://plans/pro", "catalog://plans//pro/x"],
    ["catalog://plans/größe", "catalog://plans/gro\u0308\u00dfe"],
    ["file:///srv/docs", "file://localhost/srv/docs/x"],
    ["http://host/a", "http://host:80/a/x"],
  ])("%s denies %s, which a server may take for what it covers, and does not grant it (F10, P1, G1)", (prefix, uri) => {
    expect(below(prefix, uri)).toEqual([false, true]);
  });

  it.each(["", "catalog://plans?", "catalog://plans#", `catalog://${"x".repeat(MAX_PREFIX_LENGTH)}`])(
    "that is empty, ends within a segment or is too long is refused as uri_invalid (P1)",
    (prefix) => {
      expect(() => scopeKey({ prefix })).toThrowError(expect.objectContaining({ code: "uri_invalid" }));
      expect(() => denialCovers({ prefix }, "catalog://x")).toThrowError(
        expect.objectContaining({ code: "uri_invalid" }),
      );
    },
  );
});

describe("a scope of one URI", () => {
  it("covers that URI and no child of it (P1)", () => {
    const scope = { uri: "catalog://plans" };
    expect(grantCovers(scope, "Catalog://%70lans")).toBe(true);
    for (const child of ["catalog://plans/x", "catalog://plans?x", "catalog://plans2", "catalog://plan"]) {
      expect(grantCovers(scope, child)).toBe(false);
      expect(denialCovers(scope, child)).toBe(false);
    }
  });

  it("tells p from p/ as a grant, and denies both (F10, G1)", () => {
    expect(grantCovers({ uri: "catalog://plans" }, "catalog://plans/")).toBe(false);
    expect(denialCovers({ uri: "catalog://plans" }, "catalog://plans/")).toBe(true);
  });

  it("may be of any length, where a prefix may not (P1)", () => {
    const uri = `catalog://${"x/".repeat(20_000)}`;
    expect(grantCovers({ uri }, uri)).toBe(true);
    expect(grantCovers({ uri }, `${uri}x`)).toBe(false);
    expect(denialLookupTexts(keysOf(uri)).length).toBeLessThanOrEqual(2 * MAX_PREFIX_LENGTH);
  });

  it("that is empty is refused as uri_invalid (P1)", () => {
    expect(() => scopeKey({ uri: "" })).toThrowError(expect.objectContaining({ code: "uri_invalid" }));
  });
});

it("a scope of everything covers any text (P1)", () => {
  fc.assert(
    fc.property(hostileText, (uri) => {
      expect(grantCovers({ everything: true }, uri)).toBe(true);
      expect(denialCovers({ everything: true }, uri)).toBe(true);
    }),
  );
});

it("a scope has exactly one form (P1)", () => {
  expect(uriScope.safeParse({ uri: "a:b", prefix: "a:" }).success).toBe(false);
  expect(uriScope.safeParse({}).success).toBe(false);
  expect(uriScope.safeParse({ everything: false }).success).toBe(false);
  expect(uriScope.parse({ prefix: "a:" })).toEqual({ prefix: "a:" });
});

describe("three ways to find coverage", () => {
  it("definition, range of the B-tree and lookup by equality agree for denials (P1, P2)", () => {
    let covered = 0;
    fc.assert(
      fc.property(scopeAndUri, ([scope, uri]) => {
        const expected = denialCovers(scope, uri);
        if (expected) covered++;
        const keys = [segmentKey(uri), matchKey(uri)];
        expect(Object.values(denialRanges(scope)).some((range) => keys.some((key) => inRange(key, range)))).toBe(
          expected,
        );
        const lookup = new Set(denialLookupTexts(keysOf(uri)));
        expect(denialTexts(scope).some((text) => lookup.has(text))).toBe(expected);
      }),
      { numRuns: 5_000 },
    );
    expect(covered).toBeGreaterThan(500);
  });

  it("definition and lookup by equality, with the match text compared on a hit, agree for grants (G1)", () => {
    let covered = 0;
    fc.assert(
      fc.property(scopeAndUri, ([scope, uri]) => {
        const hit = grantLookupTexts(keysOf(uri)).includes(scopeKey(scope));
        const found = hit && (matchKey(uri) + WHOLE_KEY_MARK).startsWith(scopeMatchKey(scope));
        expect(found).toBe(grantCovers(scope, uri));
        if (found) covered++;
      }),
      { numRuns: 5_000 },
    );
    expect(covered).toBeGreaterThan(500);
  });

  it("whatever a scope would grant, the same scope denies (F10, P2)", () => {
    fc.assert(
      fc.property(scopeAndUri, ([scope, uri]) => {
        expect(denialCovers(scope, uri) || !grantCovers(scope, uri)).toBe(true);
      }),
      { numRuns: 5_000 },
    );
  });

  it("the range of a prefix is that of its match text", () => {
    expect(prefixRange("catalog://plans/pro/")).toEqual({ from: "catalog/://plans/pro/", to: "catalog/://plans/pro0" });
    expect(denialRanges({ everything: true }).key).toEqual({ from: "", to: "\u{10ffff}" });
    expect(denialRanges({ uri: "C://A//b" })).toEqual({
      key: { from: "c/://A//b/", to: `c/://A//b/${WHOLE_KEY_MARK}` },
      match: { from: "c/://a/b/", to: `c/://a/b/${WHOLE_KEY_MARK}` },
    });
  });

  it("segment prefixes hold everything, each segment and the whole key with its mark", () => {
    expect(segmentPrefixes(segmentKey("c://a/b?q"))).toEqual([
      "",
      "c/",
      "c/:/",
      "c/://",
      "c/://a/",
      "c/://a/b/",
      "c/://a/b/?q/",
      `c/://a/b/?q/${WHOLE_KEY_MARK}`,
    ]);
  });
});

describe("no re-spelling escapes a revoked prefix", () => {
  const percent = (character: string) =>
    [...new TextEncoder().encode(character)].map((byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");
  /** Rewrites of a path, each of which some server undoes. */
  const rewrites: Record<string, (character: string) => string> = {
    plain: (character) => character,
    encoded: percent,
    encodedTwice: (character) => percent(character).replaceAll("%", "%25"),
    encodedUpper: (character) => percent(character).toUpperCase(),
    decomposed: (character) => character.normalize("NFD"),
    dotted: (character) => (character === "/" ? "/./" : character),
    climbing: (character) => (character === "/" ? "/x/%2e./" : character),
    doubled: (character) => (character === "/" ? "//" : character),
    backslash: (character) => (character === "/" ? "\\" : character),
    tabbed: (character) => `${character}\t`,
  };
  const spelling = fc.constantFrom(...Object.keys(rewrites));

  it("by encoding, case of scheme and host, dot segments, slashes, normal form or control characters (F10)", () => {
    const segment = fc.string({
      unit: fc.constantFrom("a", "B", "7", "é", "-", "~", "😀"),
      minLength: 1,
      maxLength: 4,
    });
    fc.assert(
      fc.property(
        fc.constantFrom("catalog", "http", "x-custom"),
        fc.array(segment, { minLength: 1, maxLength: 3 }),
        fc.array(segment, { maxLength: 3 }),
        fc.infiniteStream(spelling),
        (scheme, above, below, spellings) => {
          const prefix = `${scheme}://host/${above.join("/")}`;
          const path = [...`/${[...above, ...below].join("/")}`];
          const respelled = path.map((character) => rewrites[spellings.next().value as string]?.(character)).join("");
          expect(denialCovers({ prefix }, `${scheme.toUpperCase()}://HOST${respelled}`)).toBe(true);
          expect(denialCovers({ prefix: `${scheme}://HOST${respelled}` }, prefix)).toBe(below.length === 0);
        },
      ),
      { numRuns: 2_000 },
    );
  });
});
