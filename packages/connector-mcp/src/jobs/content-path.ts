/** From an accepted part to the text that may be chunked: extraction, then the content guard (spec §5). */
import { type GuardText, labelOf, type PartToText } from "../langchain/version-texts.js";
import { type GuardPolicy, guardContent } from "../mcp/content-guard.js";
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

/** The guard of a configuration, for an index. */
export function guardTextBy(policy: GuardPolicy): GuardText {
  return async (text, { uri, mimeType }) => {
    const guarded = await guardContent([{ uri, mimeType: mimeType ?? "text/plain", text }], policy);
    // Without the messages: a detector's may say more than a version may keep (P8).
    const findings = guarded.findings.map(({ message: _message, uri: _uri, ...finding }) => finding);
    const [passed] = guarded.texts;
    const rejected = findings.filter(({ action }) => action === "reject");
    return passed
      ? { text: passed.text, findings }
      : { reason: rejected.map(labelOf).join(", ") || "rejected", findings };
  };
}
