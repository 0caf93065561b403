import fc from "fast-check";
import { expect, test } from "vitest";
import { hashPrefix } from "#src/resource-rows.js";
import { cutAtSegments, foldedUri, resourceKey } from "#src/resource-uri.js";
import { formatUriScope } from "#src/scope-text.js";
import { denialRanges, scopeKey, scopeMatchKey, type UriScope } from "#src/uri-scope.js";
import { anyUri, hostileText } from "./arbitrary-uri.js";
import { describeLedger } from "./ledger-under-test.js";

/** What PostgreSQL can hold; nobody can ask it for anything else. */
const storable = (text: string) => !/\0|\p{Surrogate}/u.test(text);

/** Authorities of which some only the URL standard understands. */
const authority = fc.constantFrom(
  "example.com",
  "Example.COM",
  "user:secret@example.com",
  "a@b@example.com:80",
  "example.com:443",
  "example.com:0080",
  "example.com:",
  "example.com:99999",
  "example.com:0",
  "example.com:443:443",
  "b\u00fccher.example",
  "B\u00dcCHER.example",
  "xn--bcher-kva.example",
  "xn--a",
  "127.0.0.1",
  "127.1",
  "0x7f.1",
  "1.2.3.256",
  "08.1.1.1",
  "1.2.3.4.",
  "a.0x",
  "a.1b",
  "[::1]",
  "[::0001]:80",
  "[",
  "localhost",
  "LOCALHOST:80",
  "c:",
  "C|",
  "a..b",
  "-a_b-.c",
  "a b",
  "a%20b",
  "a,b",
  "\u0130stanbul",
  "\u039f\u03a3",
  "\u0416\u0435\u043d\u044f",
  "\u65e5\u672c",
  "\u{10400}",
  "",
  "@",
  "%31.2.3.4",
);
const hostUri = fc
  .tuple(
    fc.constantFrom("http", "HTTPS", "ws", "wss", "ftp", "file", "catalog"),
    fc.constantFrom(":", ":/", "://", ":///", ":%2F%2f"),
    authority,
    fc.constantFrom("", "/", "/a/../b", "?x", "%3Fx", "/%2e%2E/c#d"),
  )
  .map((parts) => parts.join(""));
const percentText = fc
  .array(
    fc.oneof(
      fc.integer({ min: 0, max: 255 }).map((byte) => `%${byte.toString(16).padStart(2, "0")}`),
      fc.constantFrom("%", "2", "5", "a"),
    ),
  )
  .map((pieces) => `c://x/${pieces.join("")}`);
const uri = fc
  .oneof(anyUri, hostileText, hostUri, percentText, fc.webUrl(), fc.string({ unit: "grapheme" }))
  .filter(storable);

/** The alphabets, and beyond them whatever has a case, combines, or is spelled in two ways; Hangul composes by rule. */
function isOfInterest(point: number): boolean {
  if (point >= 0xd800 && point <= 0xdfff) return false;
  const character = String.fromCodePoint(point);
  const folds = [character.toLowerCase(), character.normalize("NFD"), character.normalize("NFC")];
  return (
    point < 0x3000 ||
    /\p{M}/u.test(character) ||
    (folds.some((other) => other !== character) && !/\p{Script=Hangul}/u.test(character))
  );
}

const NUM_RUNS = 60;
const BATCH = 50;

describeLedger("the texts of a URI in SQL", (ledger) => {
  test("are those that the API computes, or none (F10, P2)", async () => {
    let refused = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(uri, { minLength: BATCH, maxLength: BATCH }), async (uris) => {
        const rows = await ledger.sql<{ key: string; folded: string | null; cut: string }>(
          `select fenceline.uri_resource_key(u) as key, fenceline.uri_folded(u) as folded, fenceline.uri_cut_at_segments(u) as cut
           from unnest($1::text[]) with ordinality as i (u, place) order by place`,
          [uris],
        );
        for (const [place, { key, folded, cut }] of rows.entries()) {
          const asked = uris[place] as string;
          expect([asked, key, cut]).toEqual([asked, resourceKey(asked), cutAtSegments(asked)]);
          if (folded === null) refused += 1;
          else expect([asked, folded]).toEqual([asked, foldedUri(asked)]);
        }
      }),
      { numRuns: NUM_RUNS },
    );
    // A refusal is for what the URL standard or Unicode has to say, not a way out.
    expect(refused).toBeLessThan(NUM_RUNS * BATCH * 0.2);
  });

  test("fold every code point that is cased, combined or decomposed as the API does, in path and authority, or not at all (F10)", async () => {
    const points = Array.from({ length: 0x10ffff }, (_, index) => index + 1).filter(isOfInterest);
    let refused = 0;
    for (let start = 0; start < points.length; start += 5_000) {
      const uris = points
        .slice(start, start + 5_000)
        .map((point) => String.fromCodePoint(point))
        .flatMap((character) => [`c:e\u0334${character}\u0345`, `c://${character}`]);
      const rows = await ledger.sql<{ folded: string | null }>(
        "select fenceline.uri_folded(u) as folded from unnest($1::text[]) with ordinality as i (u, place) order by place",
        [uris],
      );
      refused += rows.filter(({ folded }) => folded === null).length;
      const different = uris.filter((asked, place) => ![null, foldedUri(asked)].includes(rows[place]?.folded ?? null));
      expect(different).toEqual([]);
    }
    expect([points.length > 15_000, refused < points.length / 5]).toEqual([true, true]);
  });

  test("cover what the API's texts of a scope cover: texts, ranges and hashes (P1, P2)", async () => {
    const scopes: UriScope[] = fc
      .sample(fc.tuple(uri, fc.boolean()), { numRuns: 2_000, seed: 7 })
      .filter(([text, whole]) => text !== "" && (whole || !/[?#]$/.test(text)))
      .map(([text, whole]) => (whole ? { uri: text } : { prefix: text }));
    const rows = await ledger.sql<Record<"scope" | "key" | "match" | "from" | "to" | "hash", string>>(
      `select t.scope_text as scope, t.key_text as key, t.match_text as match, r.range_from as from, r.range_to as to,
              fenceline.hash_prefix(7, t.match_text)::text as hash
       from unnest($1::text[], $2::text[]) with ordinality as i (uri, prefix, place)
       cross join lateral fenceline.scope_texts(
         case when fenceline.uri_folded(coalesce(i.uri, i.prefix)) is not null then i.uri else 'c:refused' end,
         case when fenceline.uri_folded(coalesce(i.uri, i.prefix)) is not null then i.prefix end) t
       cross join lateral fenceline.scope_range(t.match_text) r
       order by place`,
      [
        scopes.map((scope) => ("uri" in scope ? scope.uri : null)),
        scopes.map((scope) => ("prefix" in scope ? scope.prefix : null)),
      ],
    );
    let compared = 0;
    for (const [place, scope] of scopes.entries()) {
      const row = rows[place];
      if (row?.scope === "uri=c:refused") continue;
      compared += 1;
      const { match } = denialRanges(scope);
      expect(row).toEqual({
        scope: formatUriScope(scope),
        key: scopeKey(scope),
        match: scopeMatchKey(scope),
        from: match.from,
        to: match.to,
        hash: hashPrefix(7, scopeMatchKey(scope)).toString(),
      });
    }
    expect(compared).toBeGreaterThan(scopes.length / 2);
    expect(await ledger.sql("select * from fenceline.scope_texts(null, null)")).toEqual([
      { scope_text: "everything", key_text: "", match_text: "" },
    ]);
  });

  test("take linear time on a long hostile URI (F10)", async () => {
    const long = [
      `c://x/%${"25".repeat(5_000)}41`,
      `c:${"/".repeat(10_000)}x`,
      `c://x/${"a/../".repeat(3_000)}y`,
      `c://${"%C3%A9".repeat(2_000)}`,
    ];
    const rows = await ledger.sql<{ folded: string }>(
      "select fenceline.uri_folded(u) as folded from unnest($1::text[]) with ordinality as i (u, place) order by place",
      [long],
    );
    expect(rows.map(({ folded }) => folded)).toEqual(long.map(foldedUri));
  });
});
