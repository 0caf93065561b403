import { createHash } from "node:crypto";

/** SHA-256 of a text's UTF-8 bytes, kept apart from other uses of digests by `purpose`. */
export function digestText(purpose: string, text: string): Uint8Array {
  return digestFields(purpose, [text]);
}

/** SHA-256 of a JSON value, independent of the order of keys; an undefined property counts as absent. */
export function digestJson(purpose: string, value: unknown): Uint8Array {
  return digestFields(purpose, [JSON.stringify(sortKeys(value))]);
}

/**
 * SHA-256 of a list of fields. Each is preceded by a mark (absent or present) and its length, so that no two lists meet
 * in one digest, whatever the fields hold. A text and its UTF-8 bytes are the same field.
 */
export function digestFields(purpose: string, fields: readonly (string | Uint8Array | undefined)[]): Uint8Array {
  const hash = createHash("sha256");
  for (const field of [purpose, ...fields]) {
    if (field === undefined) {
      hash.update("-");
      continue;
    }
    const bytes = typeof field === "string" ? Buffer.from(field, "utf8") : field;
    hash.update(`+${bytes.byteLength}:`);
    hash.update(bytes);
  }
  return new Uint8Array(hash.digest());
}

function sortKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortKeys);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  entries.sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(entries.map(([key, item]) => [key, sortKeys(item)]));
}
