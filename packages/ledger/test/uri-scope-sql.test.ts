import fc from "fast-check";
import { expect, test } from "vitest";
import { matchKey, segmentKey } from "#src/resource-uri.js";
import { denialCovers, denialRanges, grantCovers, scopeKey, scopeMatchKey, WHOLE_KEY_MARK } from "#src/uri-scope.js";
import { scopeAndUri } from "./arbitrary-uri.js";
import { describeLedger } from "./ledger-under-test.js";

describeLedger("URI coverage in SQL", (ledger) => {
  test("ranges under collate C and starts_with agree with the definition, for any storable key (P1, G1)", async () => {
    const pairs = fc.sample(scopeAndUri, { numRuns: 5_000, seed: 11 });
    const rows = pairs.map(([scope, uri], position) => {
      const { key, match } = denialRanges(scope);
      return {
        position,
        key_from: key.from,
        key_to: key.to,
        match_from: match.from,
        match_to: match.to,
        scope_key: scopeKey(scope),
        scope_match_key: scopeMatchKey(scope),
        segment_key: segmentKey(uri),
        match_key: matchKey(uri),
      };
    });
    const found = await ledger.sql<{ denied: boolean; granted: boolean }>(
      `select exists (select 1
                          from (values (key_from, key_to), (match_from, match_to)) as range (low, high),
                               (values (segment_key), (match_key)) as keys (k)
                         where k collate "C" >= low and k collate "C" < high) as denied,
                starts_with(segment_key || $2, scope_key) and starts_with(match_key || $2, scope_match_key) as granted
           from jsonb_to_recordset($1) as pair (position int, key_from text, key_to text, match_from text, match_to text,
                  scope_key text, scope_match_key text, segment_key text, match_key text)
          order by position`,
      [JSON.stringify(rows), WHOLE_KEY_MARK],
    );
    expect(found).toEqual(
      pairs.map(([scope, uri]) => ({ denied: denialCovers(scope, uri), granted: grantCovers(scope, uri) })),
    );
    expect(found.filter(({ denied }) => denied).length).toBeGreaterThan(500);
    expect(found.filter(({ granted }) => granted).length).toBeGreaterThan(500);
  });
});
