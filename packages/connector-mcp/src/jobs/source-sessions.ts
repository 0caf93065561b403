import type { SourceCounts } from "./source-counts.js";
import { SourceSession, type SourceSessionOptions } from "./source-session.js";

/** What names one (source, reader) in jobs and logs. */
export function sourceKey(source: string, reader: string): string {
  return `${source} ${reader}`;
}

/** The sessions of one pool: for every configured (source, reader) one that holds it or waits for its turn. */
export class SourceSessions {
  readonly #sessions = new Map<string, SourceSession>();

  /** Begins to compete for the session of a source. */
  start(options: SourceSessionOptions): void {
    const { name, reader } = options.source;
    this.#sessions.set(sourceKey(name, reader), new SourceSession(options));
  }

  get(source: string, reader: string): SourceSession | undefined {
    return this.#sessions.get(sourceKey(source, reader));
  }

  get all(): readonly SourceSession[] {
    return [...this.#sessions.values()];
  }

  get counts(): readonly SourceCounts[] {
    return this.all.map(({ counts }) => counts);
  }

  countsOf(source: string, reader: string): SourceCounts | undefined {
    return this.get(source, reader)?.counts;
  }

  /** Resolves when every session has ended for good: in mode `once`, when everything was tried. */
  async finished(): Promise<void> {
    await Promise.all(this.all.map(({ finished }) => finished));
  }

  /** Resolves when every source was scanned and read once, or that failed, or another process has it. */
  async triedOnce(): Promise<void> {
    await Promise.all(this.all.map(({ triedOnce }) => triedOnce));
  }

  get busy(): boolean {
    return this.all.some((session) => session.busy);
  }

  async stop(): Promise<void> {
    await Promise.all(this.all.map((session) => session.stop()));
  }
}
