import { MIMEType, TextDecoder } from "node:util";
import type { ContentPart } from "./fenced-read.js";

/** A part whose text can be chunked. */
export interface ExtractedText {
  uri: string;
  /** Without parameters, in lower case; `text/plain` where the server named none. */
  mimeType: string;
  text: string;
}

/** A part that stays out of the index, with the reason. */
export interface UnextractedPart {
  uri: string;
  /** As the server wrote it; empty where it named none. */
  mimeType: string;
  reason: "mime_type_not_text" | "mime_type_invalid" | "invalid_encoding" | "unknown_charset";
}

/** What {@link extractText} made of the parts: each is in exactly one of the two lists. */
export interface Extraction {
  texts: ExtractedText[];
  skipped: UnextractedPart[];
}

/**
 * Turns the parts of a resource into texts, in their order.
 *
 * What came as text is text, whatever its MIME type (the guard decides whether it is wanted). What came as bytes is text
 * when its MIME type says so, and is decoded strictly: bytes that do not fit the character set are refused, not replaced.
 */
export function extractText(parts: readonly ContentPart[]): Extraction {
  const extraction: Extraction = { texts: [], skipped: [] };
  for (const part of parts) {
    const result = extractPart(part);
    if ("text" in result) extraction.texts.push(result);
    else extraction.skipped.push(result);
  }
  return extraction;
}

function extractPart(part: ContentPart): ExtractedText | UnextractedPart {
  const named = { uri: part.uri, mimeType: part.mimeType ?? "" };
  const type = parseType(part.mimeType ?? ("text" in part ? "text/plain" : "application/octet-stream"));
  if (!type) return { ...named, reason: "mime_type_invalid" };
  if ("text" in part) return { uri: part.uri, mimeType: type.essence, text: part.text };
  if (!isTextual(type)) return { ...named, reason: "mime_type_not_text" };
  const decoder = decoderFor(type.params.get("charset") ?? "utf-8");
  if (!decoder) return { ...named, reason: "unknown_charset" };
  try {
    return { uri: part.uri, mimeType: type.essence, text: decoder.decode(part.bytes) };
  } catch {
    return { ...named, reason: "invalid_encoding" };
  }
}

/** Text that needs no knowledge of a format: everything else waits for its own extractor. */
function isTextual({ type, subtype }: MIMEType): boolean {
  if (type === "text") return true;
  return type === "application" && /^(?:json|xml|markdown|yaml)$|\+(?:json|xml|yaml)$/.test(subtype);
}

function parseType(text: string): MIMEType | undefined {
  try {
    return new MIMEType(text);
  } catch {
    return undefined;
  }
}

function decoderFor(charset: string): TextDecoder | undefined {
  try {
    return new TextDecoder(charset, { fatal: true });
  } catch {
    return undefined;
  }
}
