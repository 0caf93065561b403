import { createServer, type Server } from "node:net";
import { ClientConnection } from "./client-connection.js";
import type { Engine } from "./engine.js";
import { Turns } from "./turns.js";

/** A transaction blocks every other client, so one that does nothing for this long is rolled back. */
export const IDLE_IN_TRANSACTION_MS = 5_000;

/** Serves PGlite over a Unix socket, to any number of ordinary PostgreSQL clients. */
export class SocketServer {
  readonly #engine: Engine;
  readonly #server: Server;
  readonly #connections = new Set<ClientConnection>();
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

  /** Ends the connections: whoever waits for the successor sees it by this. */
  disconnect(): void {
    for (const connection of [...this.#connections]) connection.destroy();
  }
}
