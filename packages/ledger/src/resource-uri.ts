/**
 * The three texts a resource's URI is known by (F10). None of these functions throws, whatever the server sent.
 *
 * | text | decides | how |
 * | --- | --- | --- |
 * | `resourceKey` | which resource it is | scheme and percent-encoding normalised, nothing else |
 * | `segmentKey` | what a scope covers, as written | the resource key, cut at its segments |
 * | `matchKey` | what a denial covers, however it is spelled | every folding a server might do, cut at its segments |
 *
 * The server's own spelling is neither of them, and is what is sent to it.
 */

export type { UriScope } from "./uri-scope.js";

/** `1password:` is no scheme of RFC 3986 (section 3.1: a letter comes first), so such a URI keys as it was written. */
const SCHEME = /^[A-Za-z][A-Za-z0-9+.-]*(?=:)/;
/** What a lenient server may take for a scheme: match keys fold `1Password:` too. */
const LENIENT_SCHEME = /^[A-Za-z0-9+.-]+(?=:)/;
const STRAY_PERCENT = /%(?![0-9A-Fa-f]{2})/;
const PERCENT_TRIPLET = /%[0-9A-Fa-f]{2}/g;
const UNRESERVED = /[A-Za-z0-9\-._~]/;
/**
 * PostgreSQL's text holds neither U+0000 nor a lone surrogate; the other controls keep `WHOLE_KEY_MARK` (uri-scope.ts)
 * out of every key, and U+10FFFF the end of the range of all keys.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it is about
const NEVER_IN_A_KEY = /[\u0000-\u001f\u007f\p{Surrogate}\u{10ffff}]/gu;
/** Candidates for UTF-8 sequences; `decodeURIComponent` rejects the overlong ones and surrogates among them. */
const UTF8_SEQUENCE = /%[CD][0-9A-F]%[89AB][0-9A-F]|%E[0-9A-F](?:%[89AB][0-9A-F]){2}|%F[0-4](?:%[89AB][0-9A-F]){3}/g;

/**
 * The key of a resource (F10): its URI with lower-case scheme and normalised percent-encoding (upper-case hex,
 * unreserved characters decoded; RFC 3986, section 6.2.2). A URI without a scheme of RFC 3986, or with a `%` that begins
 * no triplet, keys as it was written. What PostgreSQL cannot hold (U+0000, lone surrogates) and control characters
 * are percent-encoded in either case.
 *
 * Idempotent. Equal keys mean one resource; two spellings that meet in one key with different contents are
 * `RECONCILIATION_REQUIRED`.
 */
export function resourceKey(uri: string): string {
  const parses = SCHEME.test(uri) && !STRAY_PERCENT.test(uri);
  if (!parses) return percentEncode(uri);
  const normalised = uri
    .replace(SCHEME, (scheme) => scheme.toLowerCase())
    .replace(PERCENT_TRIPLET, (triplet) => {
      const character = String.fromCharCode(Number.parseInt(triplet.slice(1), 16));
      return UNRESERVED.test(character) ? character : triplet.toUpperCase();
    });
  return percentEncode(normalised);
}

/**
 * The resource key, cut at its segments: a scope as it was written covers a URI if its text begins this one
 * (`grantCovers`). Different resource keys have different segment keys.
 */
export function segmentKey(uri: string): string {
  return cutAtSegments(resourceKey(uri));
}

/**
 * The broader key for revocations and checks of confusion (F10), cut at its segments. Spellings meet in it that some
 * server may take for one resource:
 *
 * - percent-encoding is decoded until nothing is left to decode, so `%2F`, `%252F` and `/` meet, and `%2e%2e` is a dot
 *   segment; bytes that are no UTF-8 stay encoded;
 * - control characters and outer white space vanish, `\` is `/` (as in the URL standard);
 * - Unicode is in NFC;
 * - `.` and `..` are resolved within the path, never above the authority (RFC 3986, section 5.2.4); repeated and
 *   trailing slashes of the path vanish, and so does an empty authority: `file:///a//b/` and `file:/a/b` meet;
 * - scheme and authority are lower-case. For the schemes of the URL standard the host is that standard's (IDNA, numeric
 *   addresses), without credentials and default port.
 *
 * The case of the path and the text of query and fragment stay. It depends on the resource key alone.
 */
export function matchKey(uri: string): string {
  return cutAtSegments(foldedUri(uri));
}

/**
 * The match key before it is cut: a URI again. Folding it once more changes nothing, unless it holds white space or had
 * `?` or `#` encoded.
 */
export function foldedUri(uri: string): string {
  return foldKey(resourceKey(uri));
}

/**
 * Ends a key in `/` and inserts `/` before `?`, `#` and the colons of its scheme or URN (those left of the first `/`,
 * `?` or `#`). Then everything below a segment begins with the segment's text, and nothing else does:
 * `urn:a` is `urn/:a/` and begins `urn:a:b`, which is `urn/:a/:b/`.
 *
 * A colon after a `/` gets one as well, so that `a/:b` and `a:b` stay apart: no two texts become one.
 */
export function cutAtSegments(key: string): string {
  const path = key.search(/[/?#]/);
  const head = path < 0 ? key : key.slice(0, path);
  const tail = path < 0 ? "" : key.slice(path);
  return `${head.replaceAll(":", "/:")}${tail.replace(/(?<=\/):|[?#]/g, "/$&")}/`;
}

function percentEncode(text: string): string {
  return text.replace(NEVER_IN_A_KEY, (character) =>
    // Three bytes of generalised UTF-8 for a lone surrogate, which `encodeURIComponent` refuses.
    /\p{Surrogate}/u.test(character) ? encodeSurrogate(character.charCodeAt(0)) : encodeURIComponent(character),
  );
}

function encodeSurrogate(codeUnit: number): string {
  const bytes = [0xe0 | (codeUnit >> 12), 0x80 | ((codeUnit >> 6) & 0x3f), 0x80 | (codeUnit & 0x3f)];
  return bytes.map((byte) => `%${byte.toString(16).toUpperCase()}`).join("");
}

/**
 * Stand in for a delimiter that was written as itself: controls, which decoding removes from everywhere else. An encoded
 * `?` ends no path (`/a%3F/../b` is `/b` to the URL standard).
 */
const QUERY_MARK = "\u0001";
const FRAGMENT_MARK = "\u0002";

function foldKey(key: string): string {
  const decoded = decodeUntilStable(key).trim();
  const scheme = LENIENT_SCHEME.exec(decoded)?.[0];
  const lowerScheme = scheme?.toLowerCase();
  const afterScheme = scheme === undefined ? decoded : decoded.slice(scheme.length + 1);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the two marks
  const query = afterScheme.search(/[\u0001\u0002]/);
  const hierarchy = query < 0 ? afterScheme : afterScheme.slice(0, query);
  const folded = foldHierarchy(lowerScheme ?? "", hierarchy);
  const rest = (query < 0 ? "" : afterScheme.slice(query)).replaceAll(QUERY_MARK, "?").replaceAll(FRAGMENT_MARK, "#");
  return percentEncode(`${lowerScheme === undefined ? "" : `${lowerScheme}:`}${folded}${rest}`);
}

/**
 * One pass with a stack reaches what repeated decoding would (no triplet overlaps another), in linear time: a server
 * can send 20 kB of `%2525…`.
 */
function decodeUntilStable(key: string): string {
  const stack: string[] = [];
  for (const character of key) {
    let next: string | undefined = character === "?" ? QUERY_MARK : character === "#" ? FRAGMENT_MARK : character;
    while (next !== undefined) {
      stack.push(next === "\\" ? "/" : next);
      next = takeDecoded(stack);
    }
  }
  return stack
    .join("")
    .replace(UTF8_SEQUENCE, (sequence) => {
      try {
        return decodeURIComponent(sequence);
      } catch {
        return sequence;
      }
    })
    .normalize("NFC");
}

/**
 * Takes a triplet off the end of the stack and returns its character, or none for a control. Bytes above ASCII stay until
 * their sequence is decoded as a whole.
 */
function takeDecoded(stack: string[]): string | undefined {
  if (stack.at(-3) !== "%") return undefined;
  const triplet = stack.slice(-3).join("");
  if (!/^%[0-9A-Fa-f]{2}$/.test(triplet)) return undefined;
  const code = Number.parseInt(triplet.slice(1), 16);
  stack.length -= 3;
  if (code >= 0x80) {
    stack.push(...triplet.toUpperCase());
    return undefined;
  }
  return code < 0x20 || code === 0x7f ? undefined : String.fromCharCode(code);
}

/** Schemes of the URL standard whose authority follows whatever number of slashes. */
const WEB_SCHEMES = new Set(["http", "https", "ws", "wss", "ftp"]);

function foldHierarchy(scheme: string, hierarchy: string): string {
  const web = WEB_SCHEMES.has(scheme);
  const slashes = web ? (/^\/*/.exec(hierarchy)?.[0].length ?? 0) : hierarchy.startsWith("//") ? 2 : 0;
  const hasAuthority = web || slashes === 2;
  if (!hasAuthority) return foldPath(hierarchy);
  const rest = hierarchy.slice(slashes);
  const end = rest.indexOf("/");
  const authority = foldAuthority(scheme, end < 0 ? rest : rest.slice(0, end));
  const path = foldPath(end < 0 ? "" : rest.slice(end));
  return authority === "" ? path : `//${authority}${path === "/" ? "" : path}`;
}

/** Characters that end or reshape a host in the URL standard; an authority that holds one is only put in lower case. */
const PLAIN_AUTHORITY = /^[^/?#\\\s%]+$/;

function foldAuthority(scheme: string, authority: string): string {
  const lower = authority.toLowerCase().normalize("NFC");
  if (!(WEB_SCHEMES.has(scheme) || scheme === "file") || !PLAIN_AUTHORITY.test(lower)) return lower;
  const url = `${scheme}://${lower}/`;
  return URL.canParse(url) ? new URL(url).host : lower;
}

function foldPath(path: string): string {
  const segments: string[] = [];
  for (const segment of path.split("/")) {
    if (segment === "..") segments.pop();
    else if (segment !== "" && segment !== ".") segments.push(segment);
  }
  return `${path.startsWith("/") ? "/" : ""}${segments.join("/")}`;
}
