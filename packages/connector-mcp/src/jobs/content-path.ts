/** From an accepted part to the text that may be chunked: extraction, then the content guard (spec §5). */
import type { GuardText, PartToText } from "../langchain/version-texts.js";
import { guardContent } from "../mcp/content-guard.js";
import type { ContentPart } from "../mcp/fenced-read.js";
import { extractText } from "../mcp/text-extraction.js";

export const partToText: PartToText = async ({ uri, mimeType, text, bytes }) => {
  const named = { uri, ...(mimeType !== undefined && { mimeType }) };
  const part: ContentPart = text === undefined ? { ...named, bytes: bytes ?? new Uint8Array() } : { ...named, text };
  const { texts, skipped } = await extractText([part]);
  const [extracted] = texts;
  return extracted
    ? { text: extracted.text, textType: extracted.textType }
    : { reason: skipped[0]?.reason ?? "no_text" };
};

export const guardText: GuardText = (text, { uri, mimeType }) => {
  const { texts, findings } = guardContent([{ uri, mimeType: mimeType ?? "text/plain", text }]);
  const codes = findings.map(({ code }) => code);
  const [guarded] = texts;
  return guarded ? { text: guarded.text, findings: codes } : { reason: codes.join(", ") || "rejected" };
};
