/**
 * URI scopes: what a grant or a revocation covers (G1, P1), and the texts by which SQL finds it.
 *
 * A scope has two texts, a URI two keys (resource-uri.ts), and everything rests on one relation, *text begins key*
 * (for one URI: the key with `WHOLE_KEY_MARK` behind it):
 *
 * 1. A denial covers a URI if either text of it begins either key, so that no re-spelling escapes it (F10).
 * 2. A grant covers a URI only if its text begins the segment key *and* its match text begins the match key, so that
 *    none reaches further than it was written, and `granted/../secret` is not granted.
 * 3. Downward (which resources does this scope cover?) the relation is a range of a B-tree under `collate "C"`.
 * 4. Upward (which scopes cover this resource?) it is equality with one of the key's `segmentPrefixes`.
 *
 * A prefix names a segment and covers it and everything below it: paths, queries, fragments. `p` and `p/` are one scope:
 * `catalog://plans/pro` covers itself, `catalog://plans/pro/x` and `catalog://plans/pro?x`, not `catalog://plans/pro-2`
 * nor `catalog://plans/pro%2Fx` (which is denied by it, but not granted). One URI covers no children; as a grant,
 * `{ uri: "p" }` covers `p` and not `p/`, as a denial both.
 */
import { z } from "zod";
import { FencelineError } from "./errors.js";
import { cutAtSegments, foldedUri, matchKey, resourceKey, segmentKey } from "./resource-uri.js";

/** One URI, everything below a prefix bound at a segment, or everything (P1). */
export const uriScope = z.union([
  z.strictObject({ uri: z.string().min(1) }),
  z.strictObject({ prefix: z.string().min(1) }),
  z.strictObject({ everything: z.literal(true) }),
]);
export type UriScope = z.infer<typeof uriScope>;

/**
 * Ends the text of a scope of one URI, and the last lookup text of that URI. No key contains it, and no storable text
 * lies between a key and that key with it.
 */
export const WHOLE_KEY_MARK = "\u0001";

/**
 * The longest text a prefix may have, in UTF-16 code units. It bounds the lookup texts of a hostile URI (its whole length
 * in slashes), and lets an index hold `left(match_key, 600)` where a B-tree's entries end at 2,704 bytes.
 */
export const MAX_PREFIX_LENGTH = 600;

/** Keys `k` with `from <= k < to`, in the order of `collate "C"`. */
export interface KeyRange {
  readonly from: string;
  readonly to: string;
}

/**
 * The scope's text as it was written: begins the segment key of what it covers. Two scopes with one text are one scope.
 *
 * @throws {FencelineError} `uri_invalid`: the URI or prefix is empty, the prefix ends in `?` or `#`, or it is too long.
 */
export function scopeKey(scope: UriScope): string {
  return scopeText(scope, resourceKey);
}

/**
 * The scope's folded text: begins the match key of what it covers.
 *
 * @throws {FencelineError} `uri_invalid`, as `scopeKey`.
 */
export function scopeMatchKey(scope: UriScope): string {
  return scopeText(scope, foldedUri);
}

/** What scopes are compared with. */
export interface UriKeys {
  readonly segmentKey: string;
  readonly matchKey: string;
}

/**
 * Whether a revocation of this scope covers the URI: either text begins either key.
 *
 * @throws {FencelineError} `uri_invalid`, as `scopeKey`.
 */
export function denialCovers(scope: UriScope, uri: string): boolean {
  return denialTexts(scope).some((text) => begins(text, segmentKey(uri)) || begins(text, matchKey(uri)));
}

/**
 * Whether a grant of this scope covers the URI: as written, and folded.
 *
 * @throws {FencelineError} `uri_invalid`, as `scopeKey`.
 */
export function grantCovers(scope: UriScope, uri: string): boolean {
  return begins(scopeKey(scope), segmentKey(uri)) && begins(scopeMatchKey(scope), matchKey(uri));
}

/**
 * The one or two texts by which a denial is found; hash each (SHA-256) and look for it among `denialLookupTexts`.
 *
 * @throws {FencelineError} `uri_invalid`, as `scopeKey`.
 */
export function denialTexts(scope: UriScope): string[] {
  return [...new Set([scopeKey(scope), scopeMatchKey(scope)])];
}

/** The texts of every denial that could cover a URI of these keys, distinct. */
export function denialLookupTexts({ segmentKey, matchKey }: UriKeys): string[] {
  return [...new Set([...segmentPrefixes(segmentKey), ...segmentPrefixes(matchKey)])];
}

/** The `scopeKey` of every grant that could cover a URI of this key; on a hit the grant's match text is compared as well. */
export function grantLookupTexts({ segmentKey }: Pick<UriKeys, "segmentKey">): string[] {
  return segmentPrefixes(segmentKey);
}

/**
 * Every text that begins this key: `""` (everything), each prefix bound at a segment up to `MAX_PREFIX_LENGTH`, and the
 * whole key with its mark (one URI).
 *
 * @param key A segment key or a match key.
 */
export function segmentPrefixes(key: string): string[] {
  const prefixes = [""];
  for (let end = key.indexOf("/"); end >= 0 && end < MAX_PREFIX_LENGTH; end = key.indexOf("/", end + 1)) {
    prefixes.push(key.slice(0, end + 1));
  }
  prefixes.push(key + WHOLE_KEY_MARK);
  return prefixes;
}

/**
 * The ranges in which the keys of what a denial covers lie, of its text as written and of the folded one (mostly equal): a
 * resource is covered if its segment key or its match key lies in either.
 *
 * @throws {FencelineError} `uri_invalid`, as `scopeKey`.
 */
export function denialRanges(scope: UriScope): { readonly key: KeyRange; readonly match: KeyRange } {
  return { key: textRange(scopeKey(scope)), match: textRange(scopeMatchKey(scope)) };
}

/**
 * The match keys below a prefix.
 *
 * @throws {FencelineError} `uri_invalid`, as `scopeKey`.
 */
export function prefixRange(prefix: string): KeyRange {
  return textRange(scopeMatchKey({ prefix }));
}

function begins(text: string, key: string): boolean {
  return (key + WHOLE_KEY_MARK).startsWith(text);
}

function textRange(text: string): KeyRange {
  if (text === "") return { from: "", to: "\u{10ffff}" };
  if (text.endsWith(WHOLE_KEY_MARK)) return { from: text.slice(0, -1), to: text };
  // The text ends in `/`, and `0` is the next code point.
  return { from: text, to: `${text.slice(0, -1)}0` };
}

function scopeText(scope: UriScope, spelling: (uri: string) => string): string {
  if ("everything" in scope) return "";
  if ("uri" in scope) {
    if (scope.uri === "")
      throw new FencelineError("uri_invalid", "The scope's URI is empty: name one, or use everything.");
    return cutAtSegments(spelling(scope.uri)) + WHOLE_KEY_MARK;
  }
  assertPrefix(scope.prefix);
  const text = cutAtSegments(withoutTrailingSeparator(spelling(scope.prefix)));
  if (text.length > MAX_PREFIX_LENGTH) {
    throw new FencelineError(
      "uri_invalid",
      `The prefix ${scope.prefix.slice(0, 80)}… has more than ${MAX_PREFIX_LENGTH} characters: use a shorter one, or its URI.`,
    );
  }
  return text;
}

function assertPrefix(prefix: string): void {
  if (prefix === "") throw new FencelineError("uri_invalid", "The prefix is empty: name one, or use everything.");
  if (/[?#]$/.test(prefix)) {
    throw new FencelineError(
      "uri_invalid",
      `The prefix ${prefix} does not end at a segment bound: leave out its last character to cover what is below it.`,
    );
  }
}

/** `p/` and `p` name one segment, and so do `urn:a:` and `urn:a`, `catalog:` and `catalog`. */
function withoutTrailingSeparator(prefix: string): string {
  return /^[^/?#]*:$|\/$/.test(prefix) ? prefix.slice(0, -1) : prefix;
}
