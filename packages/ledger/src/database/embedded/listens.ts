/** One LISTEN or UNLISTEN as it stood in a statement; no channel means every channel. */
export interface ListenStatement {
  kind: "LISTEN" | "UNLISTEN";
  channel: string | undefined;
}

/** A statement may stand behind white space and comments: BullMQ's LISTEN does. */
const LISTEN_STATEMENT =
  /(?:^|;)(?:\s|--[^\n]*(?:\n|$)|\/\*[\s\S]*?\*\/)*(un)?listen\s+(?:"((?:[^"]|"")+)"|([\p{L}_][\p{L}\p{N}_$]*)|(\*))/giu;

/**
 * Finds LISTEN and UNLISTEN in the text of a query. It only has to be right for statements that were run, since the
 * caller matches them with the command tags the database answered.
 */
export function listenStatementsIn(text: string): ListenStatement[] {
  return [...text.matchAll(LISTEN_STATEMENT)].map(([, un, quoted, plain]) => ({
    kind: un ? "UNLISTEN" : "LISTEN",
    channel: quoted?.replaceAll('""', '"') ?? plain?.toLowerCase(),
  }));
}

/**
 * The channels one connection listens to. PGlite has one session, so its own LISTEN state is everybody's; this keeps apart
 * who asked for what. Like the database, it lets a LISTEN take effect at commit.
 */
export class Listens {
  #channels = new Set<string>();
  #pending: ListenStatement[] = [];

  has(channel: string): boolean {
    return this.#channels.has(channel);
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
          this.#pending.push(...unused.splice(0, index + 1).slice(-1));
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
        if (channel !== undefined) this.#channels.add(channel);
        continue;
      }
      gaveUp = true;
      if (channel === undefined) this.#channels.clear();
      else this.#channels.delete(channel);
    }
    return gaveUp;
  }
}
