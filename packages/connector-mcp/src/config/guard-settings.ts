import { z } from "zod";
import { type ContentDetector, DEFAULT_GUARD_POLICY as DEFAULTS } from "../mcp/content-guard.js";

const action = z.enum(["flag", "strip", "reject"]);

const detector = z.custom<ContentDetector>(
  (value) => {
    const { name, inspect, action = "flag" } = (value ?? {}) as Record<string, unknown>;
    const isNamed = typeof name === "string" && /^[A-Za-z0-9._-]{1,100}$/.test(name);
    return isNamed && typeof inspect === "function" && (action === "flag" || action === "reject");
  },
  { error: "in code, a detector: a name of letters, digits, '.', '_' and '-', inspect(text, part), action" },
);

/**
 * What accepted content must pass before it is cut into chunks (spec §5): `guard`. A change counts for what is indexed from then
 * on; raise an index's `version` to have all of it pass anew.
 */
export const guardSchema = z.strictObject({
  /** MIME types of parts; `*` stands for any run of characters. */
  allowedMimeTypes: z.array(z.string().min(1)).default([...DEFAULTS.allowedMimeTypes]),
  /** Of the text of one part, in UTF-8 bytes. */
  maxTextBytes: z.int().positive().default(DEFAULTS.maxTextBytes),
  /** Lone surrogates and NUL, which no store keeps. `strip` puts U+FFFD for the former. */
  invalidText: z.enum(["strip", "reject"]).default(DEFAULTS.invalidText),
  /** Control characters other than tab, line feed and carriage return. */
  controlCharacters: action.default(DEFAULTS.controlCharacters),
  /** Characters without a shape, where no script and no emoji needs them. */
  invisibleCharacters: action.default(DEFAULTS.invisibleCharacters),
  /** Characters that change the direction in which text is shown. */
  bidiControls: action.default(DEFAULTS.bidiControls),
  /** In code: checks of one's own, for instance for instructions aimed at a model. */
  detectors: z.array(detector).default([]),
});
