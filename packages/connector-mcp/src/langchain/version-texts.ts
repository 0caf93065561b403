import type { IndexWork } from "@fenceline/ledger";

/** A content of an accepted version. */
export type VersionPart = IndexWork["parts"][number];

/**
 * Text that may be cut into chunks, with its own MIME type where it was got out of another format; or the reason why there is
 * none.
 */
export type PartText = { readonly text: string; readonly textType?: string | undefined } | { readonly reason: string };

/** Gets the text out of a part (its bytes, its MIME type). */
export type PartToText = (part: VersionPart) => PartText | Promise<PartText>;

/**
 * The content guard (spec §5): the text that may be chunked, possibly stripped, and the codes of what was found in it;
 * or the reason why it may not.
 */
export type GuardText = (
  text: string,
  part: { readonly uri: string; readonly mimeType: string | undefined },
) => { readonly text: string; readonly findings?: readonly string[] } | { readonly reason: string };

/** How parts become text. Both have defaults, for plain text without a policy. */
export interface TextPorts {
  readonly partToText?: PartToText;
  readonly guard?: GuardText;
}

/** The text of one part, ready to be chunked or handed out. */
export interface VersionText {
  readonly partId: number;
  /** The part's own URI (F5). */
  readonly uri: string;
  readonly mimeType: string | undefined;
  /** Of `text` itself, where that was got out of another format. */
  readonly textType?: string | undefined;
  readonly text: string;
  /** Codes of the guard's findings, sorted. */
  readonly findings: readonly string[];
}

/** A part of which nothing is indexed. */
export interface LeftOutPart {
  readonly uri: string;
  readonly reason: string;
}

/** The texts of a version's parts, in order, after the guard; and the parts that have none. */
export async function textsOf(
  work: IndexWork,
  { partToText = plainText, guard = acceptAll }: TextPorts,
): Promise<{ texts: VersionText[]; leftOut: LeftOutPart[] }> {
  const texts: VersionText[] = [];
  const leftOut: LeftOutPart[] = [];
  for (const part of work.parts) {
    const { partId, uri, mimeType } = part;
    const extracted = await Promise.resolve(partToText(part));
    const guarded = "reason" in extracted ? extracted : guard(extracted.text, { uri, mimeType });
    if ("reason" in guarded) {
      leftOut.push({ uri, reason: guarded.reason });
      continue;
    }
    const findings = "findings" in guarded ? [...new Set(guarded.findings)].sort() : [];
    const textType = "textType" in extracted ? extracted.textType : undefined;
    texts.push({ partId, uri, mimeType, textType, text: guarded.text, findings });
  }
  return { texts, leftOut };
}

function plainText(part: VersionPart): PartText {
  if (part.text !== undefined) return { text: part.text };
  if (part.mimeType !== undefined && !part.mimeType.startsWith("text/")) return { reason: "mime_type_not_text" };
  try {
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(part.bytes) };
  } catch {
    return { reason: "invalid_utf8" };
  }
}

const acceptAll: GuardText = (text) => ({ text });
