import type { ClientConnection, Turn } from "./client-connection.js";
import { type AnswerFacts, type Engine, factsOf } from "./engine.js";
import { BackendType, IDLE_STATUS, messagesIn, queryMessage, readText, syncMessage } from "./wire-protocol.js";

const CHANNEL_OFFSET = 9; // type, length, process id

/**
 * Shares PGlite's one session among connections.
 *
 * 1. PGlite gets whole turns, one at a time; an answer goes to the connection whose turn it was.
 * 2. A connection whose turn ended inside a transaction, or inside an extended query (after Flush), *holds* the session:
 *    only its turns run until it is outside both.
 * 3. A holder that closes, or sends nothing for `idleInTransactionMs`, is rolled back before any other turn runs.
 * 4. A notification reaches every connection that listens to its channel, and no other.
 */
export class Turns {
  readonly #engine: Engine;
  readonly #connections: ReadonlySet<ClientConnection>;
  readonly #idleInTransactionMs: number;
  readonly #waiting: Turn[] = [];
  #holder: ClientConnection | undefined;
  #holderInsideQuery = false;
  #idleTimer: NodeJS.Timeout | undefined;
  #scheduled = false;
  #draining: (() => void) | undefined;

  constructor(engine: Engine, connections: ReadonlySet<ClientConnection>, idleInTransactionMs: number) {
    this.#engine = engine;
    this.#connections = connections;
    this.#idleInTransactionMs = idleInTransactionMs;
  }

  submit(turn: Turn): void {
    if (this.#draining && turn.connection !== this.#holder) {
      turn.connection.refuse();
      return;
    }
    this.#waiting.push(turn);
    if (!this.#scheduled) this.#runNext();
  }

  /** The holder is sending something, so it is not idle. */
  active(connection: ClientConnection): void {
    if (connection === this.#holder) this.#idleTimer?.refresh();
  }

  closed(connection: ClientConnection): void {
    for (let index = this.#waiting.length - 1; index >= 0; index--) {
      if (this.#waiting[index]?.connection === connection) this.#waiting.splice(index, 1);
    }
    if (connection !== this.#holder) return;
    if (this.#holderInsideQuery) this.#deliver(this.#engine.run(syncMessage));
    this.#deliver(this.#engine.run(queryMessage("rollback")));
    this.#hold(undefined, false);
    this.#schedule();
  }

  /** Lets the holder finish, refuses everything else, and resolves when the session is free for good. */
  async drain(): Promise<void> {
    const drained = new Promise<void>((resolve) => {
      this.#draining = resolve;
    });
    for (const { connection } of this.#waiting.splice(0)) if (connection !== this.#holder) connection.refuse();
    if (!this.#holder) this.#draining?.();
    await drained;
  }

  /** One turn per round of the event loop, so that closing and new connections are seen between two of them. */
  #schedule(): void {
    if (this.#scheduled || this.#waiting.length === 0) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#runNext();
    });
  }

  #runNext(): void {
    const index = this.#holder ? this.#waiting.findIndex(({ connection }) => connection === this.#holder) : 0;
    const [turn] = index < 0 ? [] : this.#waiting.splice(index, 1);
    if (!turn) return;
    this.#run(turn);
    this.#schedule();
  }

  #run({ connection, messages, endsInFlush, listenStatements }: Turn): void {
    const answer = this.#engine.run(messages);
    const facts = factsOf(answer);
    const idle = !endsInFlush && facts.status === IDLE_STATUS;
    if (connection.listens.apply(listenStatements, facts.tags, idle)) this.#listenAgain();
    connection.write(ownAnswer(answer, facts, connection));
    this.#notify(facts, connection);
    this.#hold(idle ? undefined : connection, endsInFlush);
  }

  #hold(connection: ClientConnection | undefined, insideQuery: boolean): void {
    clearTimeout(this.#idleTimer);
    this.#holder = connection;
    this.#holderInsideQuery = insideQuery;
    if (connection) {
      this.#idleTimer = setTimeout(() => this.#closeIdle(connection), this.#idleInTransactionMs);
    } else {
      this.#draining?.();
    }
  }

  #closeIdle(connection: ClientConnection): void {
    connection.end("25P03", `terminating connection: idle in transaction for ${this.#idleInTransactionMs} ms`);
  }

  /** PGlite gave up a channel for its one session, that is for everybody: ask again for what is still wanted. */
  #listenAgain(): void {
    const wanted = new Set([...this.#connections].flatMap(({ listens }) => [...listens.channels]));
    if (wanted.size === 0) return;
    const statements = [...wanted].map((channel) => `listen "${channel.replaceAll('"', '""')}"`);
    this.#deliver(this.#engine.run(queryMessage(statements.join("; "))));
  }

  /** Sends on the notifications in an answer that belongs to no connection. */
  #deliver(answer: Buffer): void {
    this.#notify(factsOf(answer), undefined);
  }

  #notify({ notifications }: AnswerFacts, except: ClientConnection | undefined): void {
    for (const notification of notifications) {
      const channel = channelOf(notification);
      for (const connection of this.#connections) {
        if (connection !== except && connection.listens.has(channel)) connection.notify(notification);
      }
    }
  }
}

/** The answer without notifications the connection did not listen for: its own are in place, as PostgreSQL has them. */
function ownAnswer(answer: Buffer, { notifications }: AnswerFacts, { listens }: ClientConnection): Buffer {
  if (notifications.every((notification) => listens.has(channelOf(notification)))) return answer;
  return Buffer.concat(
    [...messagesIn(answer)].filter(
      (message) => message[0] !== BackendType.notification || listens.has(channelOf(message)),
    ),
  );
}

function channelOf(notification: Buffer): string {
  return readText(notification, CHANNEL_OFFSET);
}
