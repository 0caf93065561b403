import {
  RecursiveCharacterTextSplitter,
  type RecursiveCharacterTextSplitterParams,
  type TextSplitter,
} from "@langchain/textsplitters";

/** Cuts a text; any LangChain text splitter does. */
export type Splitter = Pick<TextSplitter, "splitText">;

/** Size of chunks, in UTF-16 units. */
export interface ChunkSize {
  readonly chunkSize: number;
  readonly chunkOverlap: number;
}

export const DEFAULT_CHUNK_SIZE: ChunkSize = { chunkSize: 1_000, chunkOverlap: 100 };

/**
 * The default splitter: at paragraphs, lines, words; in Markdown at headings first. Deterministic.
 *
 * Token-based splitters of LangChain fetch their vocabulary over the network; none is used here.
 */
export function splitterFor(mimeType: string | undefined, size: ChunkSize): Splitter {
  const markdown = /^text\/(?:x-)?markdown\b/i.test(mimeType ?? "");
  return new CodePointSplitter({
    ...size,
    ...(markdown && { separators: RecursiveCharacterTextSplitter.getSeparatorsForLanguage("markdown") }),
  });
}

/** The chunks of a text, none of them blank, each of them valid Unicode. */
export async function chunksOf(text: string, splitter: Splitter): Promise<string[]> {
  const chunks = await splitter.splitText(text);
  return chunks.map(wellFormed).filter((chunk) => chunk.trim() !== "");
}

/** LangChain's splitter cuts between UTF-16 units where no separator is left, and so through a surrogate pair. */
class CodePointSplitter extends RecursiveCharacterTextSplitter {
  constructor(fields: Partial<RecursiveCharacterTextSplitterParams>) {
    super(fields);
  }

  protected override splitOnSeparator(text: string, separator: string): string[] {
    return separator === "" ? Array.from(text) : super.splitOnSeparator(text, separator);
  }
}

/** A splitter of the caller's own may still halve a pair, which no database stores: each half becomes U+FFFD. */
function wellFormed(chunk: string): string {
  return chunk.replace(/\p{Surrogate}/gu, "\ufffd");
}
