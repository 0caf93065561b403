import type { IndexWork, LineageLedger } from "@fenceline/ledger";
import { type ChunkSize, chunksOf, type Splitter, splitterFor } from "./chunks.js";
import type { EntryMetadata } from "./store-adapter.js";
import { type LeftOutPart, type TextPorts, textsOf, type VersionText, type VersionTexts } from "./version-texts.js";

/** A chunk that no entry holds yet. */
export interface NewChunk {
  readonly partId: number;
  readonly digest: string;
  readonly text: string;
  readonly metadata: EntryMetadata;
}

/** What indexing one version takes: the entries it keeps, the chunks it adds. What it names in neither goes (L3). */
export interface IndexPlan {
  readonly work: IndexWork;
  readonly reused: readonly string[];
  /** Chunks of one part stand together, in order. */
  readonly added: readonly NewChunk[];
  readonly leftOut: readonly LeftOutPart[];
  readonly findings: VersionTexts["findings"];
}

export interface PlanOptions extends TextPorts {
  readonly digestChunk: LineageLedger["digestChunk"];
  /** Default: by MIME type, with `chunkSize`. */
  readonly splitter?: Splitter | undefined;
  readonly chunkSize: ChunkSize;
}

/** Cuts a version into chunks and compares them with what the index holds, as multisets per part. */
export async function planVersion(work: IndexWork, options: PlanOptions): Promise<IndexPlan> {
  const { texts, leftOut, findings } = await textsOf(work, options);
  const held = heldEntries(work);
  const reused: string[] = [];
  const added: NewChunk[] = [];
  for (const versionText of texts) {
    const splitter = options.splitter ?? splitterFor(versionText.textType ?? versionText.mimeType, options.chunkSize);
    for (const text of await chunksOf(versionText.text, splitter)) {
      const digest = options.digestChunk(digestedText(text, versionText.findings));
      const entryId = held.get(`${versionText.partId} ${digest}`)?.pop();
      if (entryId !== undefined) reused.push(entryId);
      else added.push({ partId: versionText.partId, digest, text, metadata: metadataOf(work, versionText) });
    }
  }
  return { work, reused, added, leftOut, findings };
}

function heldEntries(work: IndexWork): Map<string, string[]> {
  const held = new Map<string, string[]>();
  for (const { partId, chunkDigest, entryId } of work.present) {
    const key = `${partId} ${chunkDigest}`;
    held.set(key, [...(held.get(key) ?? []), entryId]);
  }
  return held;
}

/** Findings are stored with the entry, so an entry whose findings differ is another one. */
function digestedText(text: string, findings: readonly string[]): string {
  return findings.length === 0 ? text : `${findings.join(" ")}\u0000${text}`;
}

/**
 * Nothing here may differ between two readers of equal content (L5) or between two versions that share the chunk (L3):
 * so no reader, no lineage id, no position. The guard adds those of the version it shows.
 */
function metadataOf(work: IndexWork, { uri, mimeType, findings }: VersionText): EntryMetadata {
  const type = mimeType ?? work.mimeType;
  const title = work.title ?? work.name;
  return {
    source: work.source,
    uri,
    resourceUri: work.uri,
    ...(type !== undefined && { mimeType: type }),
    ...(title !== undefined && { title }),
    ...(findings.length > 0 && { guardFindings: findings.join(" ") }),
  };
}
