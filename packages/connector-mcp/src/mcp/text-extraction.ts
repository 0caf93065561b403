import { MIMEType, TextDecoder } from "node:util";
import type { ContentPart } from "./fenced-read.js";
import { formatOf } from "./text-formats.js";

/** A part whose text can be chunked. */
export interface ExtractedText {
  uri: string;
  /** Of the part, without parameters, in lower case; `text/plain` where the server named none. */
  mimeType: string;
  text: string;
  /** MIME type of `text` itself, where it was got out of another format: a page of HTML, a PDF, a table. */
  textType?: string;
}

/** A part that stays out of the index, with the reason. */
export interface UnextractedPart {
  uri: string;
  /** As the server wrote it; empty where it named none. */
  mimeType: string;
  /**
   * `no_text`: the format holds text, and this one has none (a scanned PDF). `format_unreadable`: it is broken, or locked by a
   * password.
   */
  reason:
    | "mime_type_not_text"
    | "mime_type_invalid"
    | "invalid_encoding"
    | "unknown_charset"
    | "format_unreadable"
    | "no_text";
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
 * Of HTML, CSV and PDF the text is what a reader sees.
 */
export async function extractText(parts: readonly ContentPart[]): Promise<Extraction> {
  const extraction: Extraction = { texts: [], skipped: [] };
  for (const part of parts) {
    const result = await extractPart(part);
    if ("text" in result) extraction.texts.push(result);
    else extraction.skipped.push(result);
  }
  return extraction;
}

async function extractPart(part: ContentPart): Promise<ExtractedText | UnextractedPart> {
  const named = { uri: part.uri, mimeType: part.mimeType ?? "" };
  const type = parseType(part.mimeType ?? ("text" in part ? "text/plain" : "application/octet-stream"));
  if (!type) return { ...named, reason: "mime_type_invalid" };
  const found = { uri: part.uri, mimeType: type.essence };
  const format = formatOf(type.essence);
  if (format?.of === "bytes") {
    const bytes = "bytes" in part ? part.bytes : bytesInText(part.text, format.begins);
    if (bytes) return textOrReason(() => format.textOf(bytes));
  }
  const decoded = "text" in part ? { text: part.text } : decode(part.bytes, type);
  if ("reason" in decoded) return { ...named, reason: decoded.reason };
  return format?.of === "text" ? textOrReason(() => format.textOf(decoded.text)) : { ...found, text: decoded.text };

  async function textOrReason(read: () => string | Promise<string>): Promise<ExtractedText | UnextractedPart> {
    try {
      const text = await read();
      return text.trim() === "" ? { ...named, reason: "no_text" } : { ...found, text, textType: "text/plain" };
    } catch {
      return { ...named, reason: "format_unreadable" };
    }
  }
}

/** Some servers put base64 where text belongs. Certain only where what it decodes to begins as the format does. */
function bytesInText(text: string, begins: string): Uint8Array | undefined {
  if (!/^[A-Za-z0-9+/\s]+={0,2}\s*$/.test(text.slice(0, 100)) && text.length > 100) return undefined;
  const bytes = Buffer.from(text, "base64");
  return bytes.subarray(0, begins.length).toString("latin1") === begins ? bytes : undefined;
}

function decode(
  bytes: Uint8Array,
  type: MIMEType,
): { text: string } | { reason: "mime_type_not_text" | "unknown_charset" | "invalid_encoding" } {
  if (!isTextual(type)) return { reason: "mime_type_not_text" };
  const decoder = decoderFor(type.params.get("charset") ?? "utf-8");
  if (!decoder) return { reason: "unknown_charset" };
  try {
    return { text: decoder.decode(bytes) };
  } catch {
    return { reason: "invalid_encoding" };
  }
}

/** Text that needs no knowledge of a format but {@link formatOf}'s. */
function isTextual({ type, subtype }: MIMEType): boolean {
  if (type === "text") return true;
  return type === "application" && /^(?:json|xml|markdown|yaml|csv)$|\+(?:json|xml|yaml)$/.test(subtype);
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
