import { connectorError } from "../errors.js";
import type { ContentPart } from "./fenced-read.js";

/** A part whose text can be chunked. */
export interface ExtractedText {
  uri: string;
  mimeType: string;
  text: string;
}

/** A part that stays out of the index, with the reason. */
export interface UnextractedPart {
  uri: string;
  mimeType: string;
  reason: "mime_type_not_text" | "invalid_utf8" | "unknown_charset";
}

export interface Extraction {
  texts: ExtractedText[];
  skipped: UnextractedPart[];
}

/** Turns the parts of a resource into texts, in their order. */
export function extractText(_parts: readonly ContentPart[]): Extraction {
  throw connectorError("source_failed", "to be built");
}
