import { resourceKey } from "@fenceline/ledger";

/**
 * The URIs a stream was asked to watch, and which of them a notification speaks of (U11). A server may spell a URI in its
 * notification otherwise than in its list; equal resource keys mean one resource (F10).
 *
 * A lookup walks up the notified URI, one map lookup per segment, so it costs the same with ten watched URIs and with
 * a hundred thousand.
 */
export class WatchedUris {
  /** Spellings as they were asked for, by resource key. */
  readonly #byKey = new Map<string, Set<string>>();

  add(uris: Iterable<string>): void {
    for (const uri of uris) {
      const key = resourceKey(uri);
      const spellings = this.#byKey.get(key);
      if (spellings) spellings.add(uri);
      else this.#byKey.set(key, new Set([uri]));
    }
  }

  delete(uris: Iterable<string>): void {
    for (const uri of uris) {
      const key = resourceKey(uri);
      const spellings = this.#byKey.get(key);
      spellings?.delete(uri);
      if (spellings?.size === 0) this.#byKey.delete(key);
    }
  }

  has(uri: string): boolean {
    return this.#byKey.get(resourceKey(uri))?.has(uri) ?? false;
  }

  *[Symbol.iterator](): Generator<string> {
    for (const spellings of this.#byKey.values()) yield* spellings;
  }

  /** The watched URI itself, or else every watched one above it: the protocol lets a server name a sub-resource. */
  concernedBy(notified: string): string[] {
    const key = resourceKey(notified);
    const itself = this.#byKey.get(key);
    if (itself) return [...itself];
    return ancestorsOf(key).flatMap((ancestor) => [...(this.#byKey.get(ancestor) ?? [])]);
  }
}

/** `a:/b/c?d` lies below `a:/b/c`, `a:/b/` and `a:/b`; `a:/bc` does not lie below `a:/b`. */
function ancestorsOf(uri: string): string[] {
  const ancestors: string[] = [];
  for (let end = uri.length - 1; end > 0; end -= 1) {
    const bound = uri[end];
    if (bound !== "/" && bound !== "?" && bound !== "#") continue;
    if (bound === "/" && end < uri.length - 1) ancestors.push(uri.slice(0, end + 1));
    ancestors.push(uri.slice(0, end));
  }
  return ancestors;
}
