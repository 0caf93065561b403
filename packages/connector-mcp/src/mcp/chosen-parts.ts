import { resourceKey } from "@fenceline/ledger";
import { digestParts, type ReadOutcome } from "./fenced-read.js";
import type { ResourceChoice } from "./resource-choice.js";

/**
 * What a read brought, without the parts whose own URI is excluded: a directory is read with everything below it (F5). Its digest is
 * that of what is left, so that a changed choice makes a new version. Nothing left is as good as empty (F7).
 */
export function withoutExcludedParts(uri: string, read: ReadOutcome, choice: ResourceChoice): ReadOutcome {
  if (read.outcome !== "content" || choice.isEverything) return read;
  const key = resourceKey(uri);
  const parts = read.parts.filter((part) => resourceKey(part.uri) === key || !choice.excludes(part.uri));
  if (parts.length === read.parts.length) return read;
  if (parts.length === 0) return { outcome: "empty", message: "every part of it is excluded by the configuration" };
  return { ...read, parts, digest: digestParts(parts) };
}
