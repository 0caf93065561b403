import { PGlite } from "@electric-sql/pglite";
import { vector } from "@electric-sql/pglite-pgvector";
import { BackendType, isFatal, messagesIn, queryMessage, readText, startupPacket } from "./wire-protocol.js";

/**
 * Plans as for our own pool on PostgreSQL (see `pooled-database.ts`); here the one session is given them once, and every
 * client has them.
 */
const SESSION_SETTINGS = "set plan_cache_mode = force_generic_plan; set jit = off";

/** Exit code of the worker thread when PGlite's session ended by itself. */
const SESSION_LOST_EXIT_CODE = 70;

/** PGlite as what it is: one session that answers protocol messages, one stretch at a time. */
export class Engine {
  readonly #pglite: PGlite;
  /** The ParameterStatus messages a client gets when it connects. */
  readonly parameterStatus: Buffer;

  private constructor(pglite: PGlite) {
    this.#pglite = pglite;
    const greeting = [...messagesIn(this.run(startupPacket()))];
    this.parameterStatus = Buffer.concat(greeting.filter((message) => message[0] === BackendType.parameterStatus));
    this.run(queryMessage(SESSION_SETTINGS));
  }

  /** Opens the data directory, creating the database when there is none. */
  static async open(dataDirectory: string): Promise<Engine> {
    return new Engine(await PGlite.create({ dataDir: dataDirectory, extensions: { vector } }));
  }

  /** Runs whole messages to the end, without giving way to anything else, and returns the whole answer. */
  run(messages: Uint8Array): Buffer {
    const answer: Buffer[] = [];
    // The call does its work before it returns; only syncing a file system (ours needs none) would be left to await. The
    // bytes it hands out are views of PGlite's memory, so they are copied.
    void this.#pglite.execProtocolRawStream(messages, {
      syncToFs: false,
      onRawData: (bytes) => {
        answer.push(Buffer.from(bytes));
        if (answer.at(-1)?.includes("VFATAL")) this.#endIfFatal(Buffer.concat(answer));
      },
    });
    return Buffer.concat(answer);
  }

  /**
   * After a FATAL error (a client terminated "its" backend) PGlite's session is gone and its message loop spins for ever,
   * so the thread ends here; the holder then opens the database anew.
   */
  #endIfFatal(answer: Buffer): void {
    for (const message of messagesIn(answer)) if (isFatal(message)) process.exit(SESSION_LOST_EXIT_CODE);
  }

  async close(): Promise<void> {
    // PGlite's own close() reads the answer through the callback of the last stream, unless an ordinary call resets it.
    await this.#pglite.exec("");
    await this.#pglite.close();
  }
}

/** What an answer says about the session, and the notifications it carries. */
export interface AnswerFacts {
  /** Command tags without counts, and `ERROR` for each error, in order. */
  tags: string[];
  notifications: Buffer[];
  /** Status byte of the last ReadyForQuery; undefined when there was none (after a Flush). */
  status: number | undefined;
}

export function factsOf(answer: Buffer): AnswerFacts {
  const facts: AnswerFacts = { tags: [], notifications: [], status: undefined };
  for (const message of messagesIn(answer)) {
    switch (message[0]) {
      case BackendType.commandComplete:
        facts.tags.push(readText(message, 5).replace(/( \d+)+$/, ""));
        break;
      case BackendType.error:
        facts.tags.push("ERROR");
        break;
      case BackendType.notification:
        facts.notifications.push(message);
        break;
      case BackendType.readyForQuery:
        facts.status = message[5];
        break;
    }
  }
  return facts;
}
