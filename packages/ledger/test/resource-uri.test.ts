import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { foldedUri, matchKey, resourceKey, segmentKey } from "#src/resource-uri.js";
import { anyUri, hostileText } from "./arbitrary-uri.js";

describe("the key of a resource", () => {
  it.each([
    ["CATALOG://Plans/Basic", "catalog://Plans/Basic"],
    ["catalog://plans/%62asic", "catalog://plans/basic"],
    ["catalog://plans/a%2fb%e9", "catalog://plans/a%2Fb%E9"],
    ["catalog://plans/%7Euser%2Dx", "catalog://plans/~user-x"],
    ["sqlite:////host/path/table/a/b?c#d/schema", "sqlite:////host/path/table/a/b?c#d/schema"],
    ["videos://{id}", "videos://{id}"],
    ["URN:isbn:0451450523", "urn:isbn:0451450523"],
    ["catalog://plans/größe", "catalog://plans/größe"],
  ])("normalises scheme and percent-encoding, and nothing else: %s (F10)", (uri, key) => {
    expect(resourceKey(uri)).toBe(key);
  });

  it.each(["1Password://Vaults/%61", "Catalog://plans/100%/%61", "plans/%61", "%", ""])(
    "keeps a URI that does not parse as it was written: %s (F10)",
    (uri) => {
      expect(resourceKey(uri)).toBe(uri);
    },
  );

  it("can be stored: U+0000, controls and lone surrogates are percent-encoded (F10)", () => {
    expect(resourceKey("c://a\0b\u0001\ud800\udc00\ud800x\u{10ffff}")).toBe(
      "c://a%00b%01\ud800\udc00%ED%A0%80x%F4%8F%BF%BF",
    );
  });

  it("is idempotent for any text, and never throws (F10)", () => {
    fc.assert(
      fc.property(fc.oneof(anyUri, hostileText), (uri) => {
        const key = resourceKey(uri);
        expect(resourceKey(key)).toBe(key);
        expect(key).not.toMatch(/\0|\p{Surrogate}/u);
      }),
    );
  });
});

describe("the match key", () => {
  it.each([
    ["catalog://plans/basic", "catalog/://plans/basic/"],
    ["catalog://PLANS/basic/", "catalog/://plans/basic/"],
    ["catalog://plans//x/%2e%2E/basic", "catalog/://plans/basic/"],
    ["catalog://plans/%2562asic", "catalog/://plans/basic/"],
    ["catalog://plans%2Fbasic", "catalog/://plans/basic/"],
    ["catalog://plans\\basic", "catalog/://plans/basic/"],
    [" catalog://pl\tans/ba%0Asic ", "catalog/://plans/basic/"],
    ["catalog://plans/../../basic", "catalog/://plans/basic/"],
    ["catalog://plans/basic?a=1", "catalog/://plans/basic/?a=1/"],
    ["catalog://plans/basic/?a=1", "catalog/://plans/basic/?a=1/"],
    ["catalog://plans?url=http://x/../y", "catalog/://plans/?url=http://x/../y/"],
    ["https://user:secret@B\u00fccher.Example:443/a", "https/://xn--bcher-kva.example/a/"],
    ["https:/bücher.example/a", "https/://xn--bcher-kva.example/a/"],
    ["file:///a//b/", "file/:/a/b/"],
    ["file://LOCALHOST/a/./b", "file/:/a/b/"],
    ["sqlite:////host/path", "sqlite/:/host/path/"],
    ["1Password://Vaults/X", "1password/://vaults/X/"],
    ["urn:isbn:1", "urn/:isbn/:1/"],
    ["catalog://", "catalog/:/"],
    ["file:///srv/a%3F/../b", "file/:/srv/b/"],
    ["c://e\u0301", "c/://\u00e9/"],
    ["c://%65%cc%81", "c/://\u00e9/"],
    ["c://x/%ff%C3", "c/://x/%FF%C3/"],
    ["c://x/%c0%af", "c/://x/%C0%AF/"],
    ["", "/"],
  ])("folds %j (F10)", (uri, key) => {
    expect(matchKey(uri)).toBe(key);
  });

  it("keeps apart what no server takes for one: the case of a path, a sibling, a query (F10)", () => {
    const keys = ["c://a/b", "c://a/B", "c://a/b-2", "c://a/b?c", "c://a/b#c", "c://a"].map(matchKey);
    expect(new Set(keys).size).toBe(keys.length);
  });

  it("depends on the resource key alone, folds once, and never throws (F10)", () => {
    fc.assert(
      fc.property(fc.oneof(anyUri, hostileText), (uri) => {
        expect(matchKey(resourceKey(uri))).toBe(matchKey(uri));
        // biome-ignore lint/suspicious/noControlCharactersInRegex: no key holds one
        expect(matchKey(uri)).toMatch(/^[^\u0000-\u001f\u007f\p{Surrogate}\u{10ffff}]*\/$/u);
      }),
    );
    fc.assert(
      fc.property(
        anyUri.filter((uri) => !/ |%20|3F|23/.test(uri)),
        (uri) => {
          expect(foldedUri(foldedUri(uri))).toBe(foldedUri(uri));
        },
      ),
      { numRuns: 5_000 },
    );
  });

  it("takes linear time on a long hostile URI", () => {
    const nested = `c://x/%${"25".repeat(100_000)}41`;
    expect(matchKey(nested)).toBe("c/://x/A/");
    expect(matchKey(`c:${"/".repeat(200_000)}x`)).toBe("c/:/x/");
    expect(matchKey(`c://x/${"a/../".repeat(50_000)}y${" ".repeat(100_000)}z`)).toMatch(/^c\/:\/\/x\/y +z\/$/);
  });
});

describe("the segment key", () => {
  it("differs for different resource keys, for all texts of up to six delimiters and letters (F10)", () => {
    const texts = [""];
    for (const text of texts) if (text.length < 6) texts.push(..."a:/?".split("").map((next) => text + next));
    expect(texts).toHaveLength(5461);
    expect(new Set(texts.map(resourceKey)).size).toBe(texts.length);
    expect(new Set(texts.map(segmentKey)).size).toBe(texts.length);
  });
});
