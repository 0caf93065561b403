import { matchesWildcard } from "../wildcard.js";
import type { ExtractedText } from "./text-extraction.js";

/** What a policy does with a finding: keep the text and say so, remove the offending characters, or refuse the part. */
export type GuardAction = "flag" | "strip" | "reject";

/** One thing the guard noticed. It holds counts and never the content itself, so it may outlive a purge (P8). */
export interface GuardFinding {
  code:
    | "mime_type_not_allowed"
    | "text_too_large"
    | "lone_surrogate"
    | "null_character"
    | "control_character"
    | "invisible_character"
    | "bidi_control"
    | "detector"
    | "detector_failed";
  action: GuardAction;
  /** URI of the part. */
  uri: string;
  message: string;
  /** How often it occurs, where that is counted. */
  count?: number;
  /** Name of the detector that reported it. */
  detector?: string;
}

/** What a detector found. */
export interface DetectorReport {
  readonly message: string;
  readonly count?: number;
}

/** A check of one's own, for instance for instructions aimed at a model. Its messages must not repeat the text. */
export interface ContentDetector {
  readonly name: string;
  /** What to do with its findings. Default `flag`. One that throws rejects the part. */
  readonly action?: "flag" | "reject";
  inspect(
    text: string,
    part: { readonly uri: string; readonly mimeType: string },
  ): readonly DetectorReport[] | Promise<readonly DetectorReport[]>;
}

/** What {@link guardContent} lets through (spec §5). */
export interface GuardPolicy {
  /** Of the parts; `*` stands for any run of characters. Default: text, JSON, XML, YAML, Markdown, CSV, PDF. */
  readonly allowedMimeTypes: readonly string[];
  /** Per part, in UTF-8 bytes. Default 4 MiB. */
  readonly maxTextBytes: number;
  /** Lone surrogates and NUL, which no store keeps. `strip` puts U+FFFD for the former. Default `reject`. */
  readonly invalidText: "strip" | "reject";
  /** Control characters other than tab, line feed and carriage return. Default `flag`. */
  readonly controlCharacters: GuardAction;
  /** Characters without a shape, where no script and no emoji needs them. Default `flag`. */
  readonly invisibleCharacters: GuardAction;
  /** Characters that change the direction in which text is shown. Default `flag`. */
  readonly bidiControls: GuardAction;
  readonly detectors: readonly ContentDetector[];
}

/** What is left, and what was noticed. A part that was rejected has no text and at least one finding. */
export interface GuardedContent {
  texts: ExtractedText[];
  findings: GuardFinding[];
}

/** The policy where none is given. */
export const DEFAULT_GUARD_POLICY: GuardPolicy = {
  allowedMimeTypes: [
    "text/*",
    "application/json",
    "application/xml",
    "application/yaml",
    "application/markdown",
    "application/csv",
    "application/pdf",
  ].concat(["json", "xml", "yaml"].map((suffix) => `application/*+${suffix}`)),
  maxTextBytes: 4 * 1024 * 1024,
  invalidText: "reject",
  controlCharacters: "flag",
  invisibleCharacters: "flag",
  bidiControls: "flag",
  detectors: [],
};

/** Characters that the policy has an opinion on. All patterns are global and Unicode-aware. */
interface CharacterRule {
  code: GuardFinding["code"];
  pattern: RegExp;
  name: string;
  replacement: string;
  action(policy: GuardPolicy): GuardAction;
}

/** Scripts that join letters with U+200C and U+200D. */
const JOINING_SCRIPTS = ["Arabic", "Syriac", "Mongolian", "Devanagari", "Bengali", "Gujarati", "Gurmukhi", "Kannada"]
  .concat(["Khmer", "Malayalam", "Myanmar", "Oriya", "Sinhala", "Tamil", "Telugu", "Tibetan"])
  .map((script) => `\\p{Script=${script}}`)
  .join("");

const INVISIBLE = [
  // Soft hyphen, separators, zero-width spaces, word joiners, byte-order mark, interlinear marks.
  "[\\u00AD\\u180E\\u200B\\u2060-\\u2064\\uFEFF\\uFFF9-\\uFFFB]",
  `(?<![${JOINING_SCRIPTS}\\p{Extended_Pictographic}\\p{Emoji_Modifier}\\uFE0F])[\\u200C\\u200D]`,
  "(?<![\\p{Emoji}\\p{Script=Han}])[\\uFE00-\\uFE0F\\u{E0100}-\\u{E01EF}]",
  // Tags repeat ASCII without showing it. A flag needs up to six of them and an end mark; more is a message.
  "(?<!\\u{1F3F4}[\\u{E0020}-\\u{E007E}]{0,6})[\\u{E0000}-\\u{E007F}]",
].join("|");

const CHARACTER_RULES: readonly CharacterRule[] = [
  {
    code: "lone_surrogate",
    pattern: /\p{Surrogate}/gu,
    name: "lone surrogates",
    replacement: "\uFFFD",
    action: (policy) => policy.invalidText,
  },
  {
    code: "null_character",
    // biome-ignore lint/suspicious/noControlCharactersInRegex: it is what is looked for
    pattern: /\u0000/gu,
    name: "NUL characters",
    replacement: "",
    action: (policy) => policy.invalidText,
  },
  {
    code: "control_character",
    // biome-ignore lint/suspicious/noControlCharactersInRegex: it is what is looked for
    pattern: /[\u0001-\u0008\u000B\u000C\u000E-\u001F\u007F-\u009F]/gu,
    name: "control characters",
    replacement: "",
    action: (policy) => policy.controlCharacters,
  },
  {
    code: "invisible_character",
    pattern: new RegExp(INVISIBLE, "gu"),
    name: "invisible characters",
    replacement: "",
    action: (policy) => policy.invisibleCharacters,
  },
  {
    code: "bidi_control",
    pattern: /[\u061C\u200E\u200F\u202A-\u202E\u2066-\u2069]/gu,
    name: "bidirectional controls",
    replacement: "",
    action: (policy) => policy.bidiControls,
  },
];

/** Passes texts through the policy before any chunk is made. */
export async function guardContent(
  texts: readonly ExtractedText[],
  policy: Partial<GuardPolicy> = {},
): Promise<GuardedContent> {
  const full = { ...DEFAULT_GUARD_POLICY, ...policy };
  const guarded: GuardedContent = { texts: [], findings: [] };
  for (const part of texts) {
    const { text, findings } = await guardPart(part, full);
    guarded.findings.push(...findings);
    if (text !== undefined) guarded.texts.push({ ...part, text });
  }
  return guarded;
}

async function guardPart(
  part: ExtractedText,
  policy: GuardPolicy,
): Promise<{ text: string | undefined; findings: GuardFinding[] }> {
  const refusal = refuseUnread(part, policy);
  if (refusal) return { text: undefined, findings: [refusal] };
  const findings: GuardFinding[] = [];
  let { text } = part;
  for (const rule of CHARACTER_RULES) {
    const count = text.match(rule.pattern)?.length ?? 0;
    if (count === 0) continue;
    const action = rule.action(policy);
    findings.push({ code: rule.code, action, uri: part.uri, message: `${count} ${rule.name}`, count });
    if (action === "strip") text = text.replace(rule.pattern, rule.replacement);
  }
  for (const detector of policy.detectors) findings.push(...(await detect({ ...part, text }, detector)));
  const rejected = findings.some((finding) => finding.action === "reject");
  return { text: rejected ? undefined : text, findings };
}

/** What is refused by its label or size, before its characters are looked at. */
function refuseUnread(part: ExtractedText, policy: GuardPolicy): GuardFinding | undefined {
  const found = { action: "reject" as const, uri: part.uri };
  if (!policy.allowedMimeTypes.some((pattern) => matchesWildcard(pattern.toLowerCase(), part.mimeType))) {
    return { ...found, code: "mime_type_not_allowed", message: `${part.mimeType} is not in allowedMimeTypes` };
  }
  const bytes = Buffer.byteLength(part.text);
  if (bytes <= policy.maxTextBytes) return undefined;
  return { ...found, code: "text_too_large", message: `${bytes} bytes, maxTextBytes is ${policy.maxTextBytes}` };
}

async function detect(part: ExtractedText, detector: ContentDetector): Promise<GuardFinding[]> {
  const found = { uri: part.uri, detector: detector.name };
  try {
    const action = detector.action ?? "flag";
    const reports = await detector.inspect(part.text, part);
    return reports.map(({ message, count }) => ({
      ...found,
      code: "detector",
      action,
      message,
      ...(Number.isSafeInteger(count) && Number(count) >= 0 && { count: Number(count) }),
    }));
  } catch {
    // A check that cannot run has not passed.
    return [{ ...found, code: "detector_failed", action: "reject", message: `detector ${detector.name} failed` }];
  }
}
