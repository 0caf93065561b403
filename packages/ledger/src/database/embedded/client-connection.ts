import type { Socket } from "node:net";
import { type ListenStatement, Listens, listenStatementsIn } from "./listens.js";
import {
  copyFailMessage,
  FrontendReader,
  FrontendType,
  fatalError,
  ProtocolViolation,
  readStartupRequest,
  readText,
  startupAnswer,
} from "./wire-protocol.js";

/** Everything one connection sends up to Sync, Flush or a simple Query: what PGlite is given in one piece. */
export interface Turn {
  connection: ClientConnection;
  messages: Buffer;
  /** Whether it ends with Flush: the extended query it belongs to goes on in the next turn. */
  endsInFlush: boolean;
  listenStatements: ListenStatement[];
}

export interface ConnectionEvents {
  onTurn(turn: Turn): void;
  /** Something arrived: the client is not idle. */
  onActivity(connection: ClientConnection): void;
  onClose(connection: ClientConnection): void;
}

/** Undelivered output beyond this makes the connection wait: nothing more is read from it until it has read its answers. */
const OUTPUT_HIGH_WATER_BYTES = 1024 * 1024;
/** A client that does not read its notifications is dropped here, before they fill the memory. */
const OUTPUT_MOST_BYTES = 64 * 1024 * 1024;

/** One client: cuts its stream into turns, and writes answers back. */
export class ClientConnection {
  readonly listens = new Listens();
  readonly #socket: Socket;
  readonly #processId: number;
  readonly #parameterStatus: Buffer;
  readonly #events: ConnectionEvents;
  readonly #reader = new FrontendReader();
  #state: "starting" | "ready" | "closed" = "starting";
  #messages: Buffer[] = [];
  #listenStatements: ListenStatement[] = [];
  /** Set once this client sent a text that may start a COPY FROM STDIN. */
  #mayCopyIn = false;

  constructor(socket: Socket, processId: number, parameterStatus: Buffer, events: ConnectionEvents) {
    this.#socket = socket;
    this.#processId = processId;
    this.#parameterStatus = parameterStatus;
    this.#events = events;
    socket.on("data", (chunk) => this.#receive(chunk));
    socket.on("error", () => {});
    socket.on("close", () => this.#closed());
    socket.on("drain", () => socket.resume());
  }

  get isOpen(): boolean {
    return this.#state !== "closed";
  }

  /** Writes an answer. A client that does not read it is not read from either, so one answer at most waits per client. */
  write(answer: Buffer): void {
    if (this.#state === "closed") return;
    this.#socket.write(answer);
    if (this.#socket.writableLength > OUTPUT_HIGH_WATER_BYTES) this.#socket.pause();
  }

  notify(notification: Buffer): void {
    if (this.#state !== "ready") return;
    if (this.#socket.writableLength > OUTPUT_MOST_BYTES) this.#socket.destroy();
    else this.#socket.write(notification);
  }

  /** Says why, then ends the connection; nothing more of it is read. */
  end(sqlState: string, reason: string): void {
    if (this.#state === "closed") return;
    this.#socket.end(fatalError(sqlState, reason));
    this.#closed();
  }

  /** Ends the connection behind the last answer: what it sent since was not run, and its client is told so. */
  refuse(): void {
    this.end("57P03", "the embedded database is being handed over; the statement was not run");
  }

  /** Ends the connection behind the last answer. */
  finish(): void {
    if (this.#state === "closed") return;
    this.#socket.end();
    this.#closed();
  }

  #closed(): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#messages = [];
    // What still arrives must be read away, or the socket never sees the other side's end.
    this.#socket.removeAllListeners("data").resume();
    this.#events.onClose(this);
  }

  #receive(chunk: Buffer): void {
    this.#events.onActivity(this);
    this.#reader.push(chunk);
    try {
      for (;;) {
        if (this.#state === "closed") return;
        const message = this.#reader.next();
        if (!message) return;
        if (this.#state === "starting") this.#start(message);
        else this.#take(message);
      }
    } catch (error) {
      if (!(error instanceof ProtocolViolation)) throw error;
      this.end("08P01", error.message);
    }
  }

  #start(packet: Buffer): void {
    const request = readStartupRequest(packet);
    switch (request) {
      case "encryption":
        this.#socket.write("N");
        return;
      case "cancel":
        // A turn runs to its end before anything else is looked at, so there is never a statement left to cancel.
        this.#socket.end();
        return;
      case "startup":
      case "startup_newer_minor":
        this.#reader.start();
        this.#state = "ready";
        this.write(startupAnswer(this.#parameterStatus, this.#processId, request === "startup_newer_minor"));
        return;
    }
  }

  #take(message: Buffer): void {
    const type = message[0];
    switch (type) {
      case FrontendType.terminate:
        this.finish();
        return;
      case FrontendType.copyData:
      case FrontendType.copyDone:
      case FrontendType.copyFail:
      case FrontendType.password:
        return; // of a COPY that already failed, or an answer nobody asked for: the protocol lets a server ignore them
      case FrontendType.query:
        this.#readStatement(readText(message, 5));
        this.#messages.push(message);
        if (this.#mayCopyIn) this.#messages.push(copyFailMessage);
        this.#completeTurn(false);
        return;
      case FrontendType.parse:
        this.#readStatement(readText(message, message.indexOf(0, 5) + 1));
        this.#messages.push(message);
        return;
      case FrontendType.sync:
      case FrontendType.flush:
        if (this.#mayCopyIn) this.#messages.push(copyFailMessage);
        this.#messages.push(message);
        this.#completeTurn(type === FrontendType.flush);
        return;
      case FrontendType.functionCall:
        this.#messages.push(message);
        this.#completeTurn(false);
        return;
      default:
        this.#messages.push(message);
    }
  }

  #readStatement(text: string): void {
    // PGlite cannot wait for copy data in the middle of a turn: it would end its session. A CopyFail right behind the
    // statement turns that into an ordinary error.
    if (/\bstdin\b/i.test(text)) this.#mayCopyIn = true;
    if (/listen/i.test(text)) this.#listenStatements.push(...listenStatementsIn(text));
  }

  #completeTurn(endsInFlush: boolean): void {
    const [first] = this.#messages;
    const messages = first && this.#messages.length === 1 ? first : Buffer.concat(this.#messages);
    const listenStatements = this.#listenStatements;
    this.#messages = [];
    this.#listenStatements = [];
    this.#events.onTurn({ connection: this, messages, endsInFlush, listenStatements });
  }
}
