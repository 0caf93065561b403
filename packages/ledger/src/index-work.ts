import { lineageIdOf } from "./lineage-id.js";

/** A version that waits to be indexed, claimed for a while. */
export interface IndexWork {
  readonly claimToken: string;
  readonly subscriptionId: number;
  readonly ordinal: number;
  readonly lineageId: string;
  readonly source: string;
  readonly reader: string;
  readonly uri: string;
  readonly name?: string;
  readonly title?: string;
  readonly mimeType?: string;
  /** What was kept of it; none for a version without content, which is confirmed with nothing written. */
  readonly parts: readonly {
    readonly partId: number;
    readonly uri: string;
    readonly mimeType?: string;
    readonly text?: string;
    readonly bytes?: Uint8Array;
  }[];
  /** What the index already holds of this (source, URI), whoever read it: candidates for reuse (L3, L5). */
  readonly present: readonly {
    readonly entryId: string;
    readonly partId: number;
    /** Hex. */
    readonly chunkDigest: string;
  }[];
}

export interface WorkRow {
  readonly claim_token: string;
  readonly subscription_id: number;
  readonly ordinal: number;
  readonly source: string;
  readonly reader: string;
  readonly uri: string;
  readonly name: string | null;
  readonly title: string | null;
  readonly mime_type: string | null;
  readonly parts:
    | readonly { partId: number; uri: string; mimeType: string | null; text: string | null; bytes: string | null }[]
    | null;
  readonly present: readonly { number: number; partId: number; chunkDigest: string }[] | null;
}

/** What a row says of a version. */
export function workOf(row: WorkRow): Omit<IndexWork, "claimToken" | "present"> {
  return {
    subscriptionId: row.subscription_id,
    ordinal: row.ordinal,
    lineageId: lineageIdOf(row.subscription_id, row.ordinal),
    source: row.source,
    reader: row.reader,
    uri: row.uri,
    ...(row.name !== null && { name: row.name }),
    ...(row.title !== null && { title: row.title }),
    ...(row.mime_type !== null && { mimeType: row.mime_type }),
    parts: (row.parts ?? []).map(({ partId, uri, mimeType, text, bytes }) => ({
      partId,
      uri,
      ...(mimeType !== null && { mimeType }),
      ...(text !== null && { text }),
      ...(bytes !== null && { bytes: Buffer.from(bytes, "base64") }),
    })),
  };
}
