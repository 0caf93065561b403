import { createServer, type Server, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { ClientConnection } from "./client-connection.js";
import type { Engine } from "./engine.js";
import { Turns } from "./turns.js";

/** A transaction blocks every other client, so one that does nothing for this long is rolled back. */
const IDLE_IN_TRANSACTION_MS = 5_000;

/** How long clients may take to read their last answers when the server ends. */
const READ_REST_MS = 1_000;

/**
 * Serves PGlite over a Unix socket, to any number of ordinary PostgreSQL clients.
 *
 * They share one session, and that shows: settings (`set`), advisory locks of session kind, temporary tables and named
 * prepared statements are everybody's, and two clients that prepare a statement of the same name collide; `search_path` and
 * other options of the startup packet are ignored; `statement_timeout` and cancel requests have no effect; COPY FROM STDIN
 * is refused. LISTEN is kept apart per connection.
 */
export class SocketServer {
  readonly #engine: Engine;
  readonly #server: Server;
  readonly #connections = new Set<ClientConnection>();
  readonly #sockets = new Set<Socket>();
  readonly #turns: Turns;
  #lastProcessId = 0;

  constructor(engine: Engine, idleInTransactionMs = IDLE_IN_TRANSACTION_MS) {
    this.#engine = engine;
    this.#turns = new Turns(engine, this.#connections, idleInTransactionMs);
    this.#server = createServer((socket) => {
      const connection = new ClientConnection(socket, ++this.#lastProcessId, engine.parameterStatus, {
        onTurn: (turn) => this.#turns.submit(turn),
        onActivity: (active) => this.#turns.active(active),
        onClose: (closed) => {
          this.#connections.delete(closed);
          this.#turns.closed(closed);
        },
      });
      this.#connections.add(connection);
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
  }

  async listen(socketPath: string): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen(socketPath, () => {
        this.#server.off("error", reject);
        resolve();
      });
    });
  }

  /** Accepts no more, lets a transaction that is open finish, and closes PGlite. Connections stay open but are refused. */
  async drain(): Promise<void> {
    // Closing removes the socket file, before a successor can have put its own there.
    this.#server.close();
    await this.#turns.drain();
    await this.#engine.close();
  }

  /** Ends the connections, once what was answered has been read: whoever waits for the successor sees it by this. */
  async disconnect(): Promise<void> {
    // A statement that was sent meanwhile is read by nobody, so each client is told.
    for (const connection of [...this.#connections]) connection.refuse();
    for (const left = performance.now() + READ_REST_MS; this.#sockets.size > 0 && performance.now() < left; ) {
      await delay(5);
    }
  }
}
