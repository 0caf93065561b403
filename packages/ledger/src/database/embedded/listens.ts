/** One LISTEN or UNLISTEN as it stood in a statement; no channel means every channel (UNLISTEN, or one not understood). */
export interface ListenStatement {
  kind: "LISTEN" | "UNLISTEN";
  channel: string | undefined;
}

const LISTEN_STATEMENT = /(?:^|;)\s*(un)?listen\s+(?:"((?:[^"]|"")+)"|([\p{L}_][\p{L}\p{N}_$]*)|(\*))/giu;

/** Comments (BullMQ puts one before its LISTEN), strings and quoted names, of which only the names matter here. */
const NOT_CODE = /--[^\n]*|\/\*[\s\S]*?\*\/|'(?:[^']|'')*'|\$(\w*)\$[\s\S]*?\$\1\$|"(?:[^"]|"")*"/g;

/**
 * Finds LISTEN and UNLISTEN in the text of a query. It only has to be right for statements that were run, since the
 * caller matches them with the command tags the database answered.
 */
export function listenStatementsIn(text: string): ListenStatement[] {
  const code = text.replace(NOT_CODE, (found) => (found.startsWith('"') ? found : " "));
  return [...code.matchAll(LISTEN_STATEMENT)].map(([, un, quoted, plain]) => ({
    kind: un ? "UNLISTEN" : "LISTEN",
    channel: quoted?.replaceAll('""', '"') ?? plain?.toLowerCase(),
  }));
}

/**
 * The channels one connection listens to. PGlite has one session, so its own LISTEN state is everybody's; this keeps apart
 * who asked for what. Like the database, it lets a LISTEN take effect at commit.
 */
export class Listens {
  readonly #channels = new Set<string>();
  /** Set by a LISTEN whose channel could not be read off its text: better to hear too much than to be deaf. */
  #everyChannel = false;
  #pending: ListenStatement[] = [];

  has(channel: string): boolean {
    return this.#everyChannel || this.#channels.has(channel);
  }

  get channels(): Iterable<string> {
    return this.#channels;
  }

  /**
   * Takes in what one turn did.
   *
   * @param statements as found in the turn's text, in order
   * @param tags the command tags of the turn's answer, in order
   * @param idle whether the turn ended outside a transaction
   * @returns whether a channel was given up, which PGlite did for every connection
   */
  apply(statements: readonly ListenStatement[], tags: readonly string[], idle: boolean): boolean {
    const unused = [...statements];
    let rolledBack = 0;
    for (const tag of tags) {
      switch (tag) {
        case "LISTEN":
        case "UNLISTEN": {
          const index = unused.findIndex(({ kind }) => kind === tag);
          const [statement] = unused.splice(0, index + 1).slice(-1);
          this.#pending.push(statement ?? { kind: tag, channel: undefined });
          break;
        }
        case "DISCARD ALL":
          this.#pending.push({ kind: "UNLISTEN", channel: undefined });
          break;
        case "ERROR":
        case "ROLLBACK":
          // An error, or ROLLBACK TO SAVEPOINT, inside an open transaction decides nothing yet: `idle` is false then.
          rolledBack = this.#pending.length;
          break;
      }
    }
    if (!idle) return false;
    return this.#settle(this.#pending.splice(0).slice(rolledBack));
  }

  #settle(statements: readonly ListenStatement[]): boolean {
    let gaveUp = false;
    for (const { kind, channel } of statements) {
      if (kind === "LISTEN") {
        if (channel === undefined) this.#everyChannel = true;
        else this.#channels.add(channel);
        continue;
      }
      gaveUp = true;
      if (channel === undefined) {
        this.#channels.clear();
        this.#everyChannel = false;
      } else this.#channels.delete(channel);
    }
    return gaveUp;
  }
}
