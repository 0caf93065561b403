import { createHash } from "node:crypto";
import { matchKey, resourceKey, segmentKey } from "./resource-uri.js";
import { denialLookupTexts, grantLookupTexts } from "./uri-scope.js";

/** The source id under which a revocation of every source is hashed; no source has it. */
export const EVERY_SOURCE = 0;

/** What the table `resource` holds about a URI besides its id: computed here, so that SQL never parses a URI. */
export interface ResourceRow {
  readonly resourceKey: string;
  /** SHA-256 of `resourceKey`; the unique key together with the source. */
  readonly keyDigest: Buffer;
  readonly segmentKey: string;
  readonly matchKey: string;
  readonly coverHashes: readonly bigint[];
  readonly denyHashes: readonly bigint[];
}

/** The row of a URI in a source (F10). Equal rows for any two spellings with one resource key. */
export function resourceRow(sourceId: number, uri: string): ResourceRow {
  const key = resourceKey(uri);
  const denialTexts = denialLookupTexts(uri);
  return {
    resourceKey: key,
    keyDigest: keyDigest(key),
    segmentKey: segmentKey(uri),
    matchKey: matchKey(uri),
    coverHashes: grantLookupTexts(uri).map((text) => hashPrefix(sourceId, text)),
    denyHashes: [sourceId, EVERY_SOURCE].flatMap((source) => denialTexts.map((text) => hashPrefix(source, text))),
  };
}

/** SHA-256 of a resource key: what a resource is looked up by. */
export function keyDigest(key: string): Buffer {
  return createHash("sha256").update(key).digest();
}

/**
 * What a scope's text is looked up by: the first 8 bytes of SHA-256 over source and text, as PostgreSQL's `bigint`.
 *
 * @param sourceId `EVERY_SOURCE` for a revocation of every source.
 */
export function hashPrefix(sourceId: number, text: string): bigint {
  return createHash("sha256").update(`${sourceId}\n${text}`).digest().readBigInt64BE(0);
}

/**
 * The parameters of `fenceline.ensure_resources` after the source: six arrays, distinct by key. Arrays of arrays travel
 * as text, because `unnest` flattens them.
 */
export function resourceParameters(rows: readonly ResourceRow[]): unknown[] {
  const distinct = [...new Map(rows.map((row) => [row.resourceKey, row])).values()];
  return [
    distinct.map((row) => row.resourceKey),
    distinct.map((row) => row.keyDigest),
    distinct.map((row) => row.segmentKey),
    distinct.map((row) => row.matchKey),
    distinct.map((row) => `{${row.coverHashes.join(",")}}`),
    distinct.map((row) => `{${row.denyHashes.join(",")}}`),
  ];
}
