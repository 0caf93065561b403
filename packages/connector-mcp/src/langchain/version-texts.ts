import type { ContentFinding, IndexWork } from "@fenceline/ledger";

/** A content of an accepted version. */
export type VersionPart = IndexWork["parts"][number];

/**
 * Text that may be cut into chunks, with its own MIME type where it was got out of another format; or the reason why there is
 * none.
 */
export type PartText = { readonly text: string; readonly textType?: string | undefined } | { readonly reason: string };

/** Gets the text out of a part (its bytes, its MIME type). */
export type PartToText = (part: VersionPart) => PartText | Promise<PartText>;

/** What the guard found in one text. */
export type TextFinding = Omit<ContentFinding, "uri">;

/**
 * The content guard (spec §5): the text that may be chunked, possibly stripped, or the reason why it may not; with what was
 * found in it.
 */
export type GuardText = (
  text: string,
  part: { readonly uri: string; readonly mimeType: string | undefined },
) => GuardedText | Promise<GuardedText>;
export type GuardedText = ({ readonly text: string } | { readonly reason: string }) & {
  readonly findings?: readonly TextFinding[];
};

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
  /** What the guard found, as metadata shows it: {@link labelOf} each, sorted. */
  readonly findings: readonly string[];
}

/** A part of which nothing is indexed. */
export interface LeftOutPart {
  readonly uri: string;
  readonly reason: string;
}

/** What became of a version's parts: each is in exactly one of the first two lists. */
export interface VersionTexts {
  readonly texts: readonly VersionText[];
  readonly leftOut: readonly LeftOutPart[];
  /** What the version keeps of it (spec §5). */
  readonly findings: readonly ContentFinding[];
}

/** A version keeps no more; a directory of thousands of files says the same of each. */
const MAX_FINDINGS = 1_000;

/** The texts of a version's parts, in order, after the guard; and the parts that have none. */
export async function textsOf(
  work: IndexWork,
  { partToText = plainText, guard = acceptAll }: TextPorts,
): Promise<VersionTexts> {
  const texts: VersionText[] = [];
  const leftOut: LeftOutPart[] = [];
  const found: ContentFinding[] = [];
  for (const part of work.parts) {
    const { partId, uri, mimeType } = part;
    const extracted = await Promise.resolve(partToText(part));
    if ("reason" in extracted) {
      leftOut.push({ uri, reason: extracted.reason });
      found.push({ uri, code: isCode(extracted.reason) ? extracted.reason : "no_text", action: "left_out" });
      continue;
    }
    const guarded = await Promise.resolve(guard(extracted.text, { uri, mimeType }));
    const findings = guarded.findings ?? [];
    found.push(...findings.map((finding) => ({ uri, ...finding })));
    if ("reason" in guarded) {
      leftOut.push({ uri, reason: guarded.reason });
      if (findings.length === 0) found.push({ uri, code: "refused", action: "reject" });
      continue;
    }
    const { text } = guarded;
    const { textType } = extracted;
    texts.push({ partId, uri, mimeType, textType, text, findings: [...new Set(findings.map(labelOf))].sort() });
  }
  return { texts, leftOut, findings: found.slice(0, MAX_FINDINGS) };
}

/** A reason in free words could repeat content, which a version's findings may not (P8). */
function isCode(reason: string): boolean {
  return /^[a-z0-9_]+$/.test(reason);
}

/** Its code, and which detector's. */
export function labelOf({ code, detector }: TextFinding): string {
  return detector === undefined ? code : `${code}:${detector}`;
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
