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

/**
 * Where no separator is left LangChain's splitter cuts between UTF-16 units, and so through a surrogate pair; and it takes such a
 * text apart unit by unit, which holds up everything else in the process for a second for each few megabytes (a log of
 * one line, base64). Pieces of which chunk and overlap are whole numbers, or nearly, are merged to the same chunks.
 */
class CodePointSplitter extends RecursiveCharacterTextSplitter {
  readonly #pieceLength: number;

  constructor(fields: Partial<RecursiveCharacterTextSplitterParams> & ChunkSize) {
    super(fields);
    const common = greatestCommonDivisor(fields.chunkSize, fields.chunkOverlap);
    this.#pieceLength = Math.max(1, common, Math.floor((fields.chunkOverlap || fields.chunkSize) / 4));
  }

  protected override splitOnSeparator(text: string, separator: string): string[] {
    return separator === "" ? piecesOf(text, this.#pieceLength) : super.splitOnSeparator(text, separator);
  }
}

/** Pieces of at most `length` UTF-16 units (2 if a pair needs them), no pair halved. */
function piecesOf(text: string, length: number): string[] {
  const pieces: string[] = [];
  for (let start = 0, end: number; start < text.length; start = end) {
    end = start + length;
    if (halvesPair(text, end)) end -= end - 1 > start ? 1 : -1;
    pieces.push(text.slice(start, end));
  }
  return pieces;
}

function halvesPair(text: string, at: number): boolean {
  return /^[\ud800-\udbff][\udc00-\udfff]$/.test(text.slice(at - 1, at + 1));
}

function greatestCommonDivisor(left: number, right: number): number {
  return right === 0 ? left : greatestCommonDivisor(right, left % right);
}

/** A splitter of the caller's own may still halve a pair, which no database stores: each half becomes U+FFFD. */
function wellFormed(chunk: string): string {
  return chunk.replace(/\p{Surrogate}/gu, "\ufffd");
}
