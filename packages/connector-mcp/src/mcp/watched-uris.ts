/**
 * The URIs a stream was asked to watch, and which of them a notification speaks of (U11).
 *
 * A lookup walks up the notified URI, one set lookup per segment, so it costs the same with ten watched URIs and with
 * a hundred thousand.
 */
export class WatchedUris {
  readonly #uris = new Set<string>();

  add(uris: Iterable<string>): void {
    for (const uri of uris) this.#uris.add(uri);
  }

  delete(uris: Iterable<string>): void {
    for (const uri of uris) this.#uris.delete(uri);
  }

  has(uri: string): boolean {
    return this.#uris.has(uri);
  }

  get size(): number {
    return this.#uris.size;
  }

  [Symbol.iterator](): IterableIterator<string> {
    return this.#uris.values();
  }

  /** The watched URI itself, or else every watched one above it: the protocol lets a server name a sub-resource. */
  concernedBy(notified: string): string[] {
    if (this.#uris.has(notified)) return [notified];
    return ancestorsOf(notified).filter((uri) => this.#uris.has(uri));
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
