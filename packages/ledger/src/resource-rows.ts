import { hash } from "node:crypto";
import type { Queryable } from "./database/database.js";
import { fenceOf } from "./fenced-call.js";
import { matchKey, resourceKey, segmentKey } from "./resource-uri.js";
import type { Session } from "./sessions.js";
import { denialLookupTexts, grantLookupTexts } from "./uri-scope.js";

/** The source id under which a revocation of every source is hashed; no source has it. */
export const EVERY_SOURCE = 0;

/** What the table `resource` holds about a URI besides its id: computed here, so that SQL never parses a URI. */
interface ResourceRow {
  readonly resourceKey: string;
  /** SHA-256 of `resourceKey`; the unique key together with the source. */
  readonly keyDigest: Buffer;
  readonly segmentKey: string;
  readonly matchKey: string;
  /** Decimal, as `hashPrefix`. */
  readonly coverHashes: readonly string[];
  readonly denyHashes: readonly string[];
}

/** What one text is looked up by in a source, and among the revocations of every source. */
interface TextHashes {
  readonly inSource: string;
  readonly everywhere: string;
}

/**
 * The rows of URIs in a source (F10). Equal rows for any two spellings with one resource key. What lies together shares nearly
 * all of its prefixes, so each text is hashed once.
 */
function resourceRows(sourceId: number, uris: readonly string[]): ResourceRow[] {
  const hashes = new Map<string, TextHashes>();
  const hashesOf = (text: string): TextHashes => {
    const known = hashes.get(text);
    if (known !== undefined) return known;
    const found = { inSource: `${hashPrefix(sourceId, text)}`, everywhere: `${hashPrefix(EVERY_SOURCE, text)}` };
    hashes.set(text, found);
    return found;
  };
  return uris.map((uri) => {
    const key = resourceKey(uri);
    const keys = { segmentKey: segmentKey(uri), matchKey: matchKey(uri) };
    const denials = denialLookupTexts(keys).map(hashesOf);
    return {
      resourceKey: key,
      keyDigest: keyDigest(key),
      ...keys,
      coverHashes: grantLookupTexts(keys).map((text) => hashesOf(text).inSource),
      denyHashes: [...denials.map(({ inSource }) => inSource), ...denials.map(({ everywhere }) => everywhere)],
    };
  });
}

/** SHA-256 of a resource key: what a resource is looked up by. */
export function keyDigest(key: string): Buffer {
  return hash("sha256", key, "buffer");
}

/**
 * What a scope's text is looked up by: the first 8 bytes of SHA-256 over source and text, as PostgreSQL's `bigint`.
 *
 * @param sourceId `EVERY_SOURCE` for a revocation of every source.
 */
export function hashPrefix(sourceId: number, text: string): bigint {
  return hash("sha256", `${sourceId}\n${text}`, "buffer").readBigInt64BE(0);
}

/**
 * Creates the resources of these URIs where they are new, as the holder of a session that stands. Nearly all are known, and a
 * row costs some forty digests, so only the missing ones are computed.
 */
export async function ensureResources(database: Queryable, session: Session, uris: readonly string[]): Promise<void> {
  const { sourceId } = session;
  const uriOf = new Map(uris.map((uri) => [keyDigest(resourceKey(uri)).toString("hex"), uri]));
  const unknown = await database.query<{ key_digest: Buffer }>(
    "select key_digest from fenceline.unknown_resources($1, $2) as u (key_digest)",
    [sourceId, [...uriOf.keys()].map((digest) => Buffer.from(digest, "hex"))],
  );
  if (unknown.length === 0) return;
  const rows = resourceRows(
    sourceId,
    unknown.map(({ key_digest }) => uriOf.get(key_digest.toString("hex")) as string),
  );
  await database.query("select fenceline.ensure_resources($1, $2, $3, $4, $5, $6, $7, $8, $9)", [
    ...fenceOf(session),
    sourceId,
    rows.map((row) => row.resourceKey),
    rows.map((row) => row.keyDigest),
    rows.map((row) => row.segmentKey),
    rows.map((row) => row.matchKey),
    // Arrays of arrays travel as text, because `unnest` flattens them.
    rows.map((row) => `{${row.coverHashes.join(",")}}`),
    rows.map((row) => `{${row.denyHashes.join(",")}}`),
  ]);
}
