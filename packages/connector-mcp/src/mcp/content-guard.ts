import { connectorError } from "../errors.js";
import type { ExtractedText } from "./text-extraction.js";

/** What a policy does with a finding: keep the text and say so, remove the offending characters, or refuse the part. */
export type GuardAction = "flag" | "strip" | "reject";

/** One thing the guard noticed. Holds positions and counts, never the content itself. */
export interface GuardFinding {
  code:
    | "mime_type_not_allowed"
    | "text_too_large"
    | "lone_surrogate"
    | "null_character"
    | "control_character"
    | "invisible_character"
    | "bidi_control"
    | "detector";
  action: GuardAction;
  /** URI of the part. */
  uri: string;
  message: string;
  /** How often it occurs, where that is counted. */
  count?: number;
  /** Name of the detector that reported it. */
  detector?: string;
}

/** A check of one's own, for instance for instructions aimed at a model. Must not keep the text. */
export interface ContentDetector {
  name: string;
  /** What to do with its findings. Default `flag`; `strip` is not possible. */
  action?: "flag" | "reject";
  inspect(text: string, part: { uri: string; mimeType: string }): readonly { message: string; count?: number }[];
}

export interface GuardPolicy {
  /** MIME types, exact or `text/*`. */
  allowedMimeTypes: readonly string[];
  /** Per part, in UTF-8 bytes. */
  maxTextBytes: number;
  invisibleCharacters: GuardAction;
  bidiControls: GuardAction;
  detectors: readonly ContentDetector[];
}

export interface GuardedContent {
  texts: ExtractedText[];
  findings: GuardFinding[];
}

/** Passes texts through the policy (spec §5) before any chunk is made. Rejected parts are left out and have a finding. */
export function guardContent(_texts: readonly ExtractedText[], _policy?: Partial<GuardPolicy>): GuardedContent {
  throw connectorError("source_failed", "to be built");
}
