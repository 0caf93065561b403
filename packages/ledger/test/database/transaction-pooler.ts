import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import {
  FrontendReader,
  FrontendType,
  IDLE_STATUS,
  messagesIn,
  readStartupRequest,
  startupAnswer,
} from "#src/database/embedded/wire-protocol.js";

/**
 * A pooler in transaction mode, as hard as one may be: each transaction goes to the server connection that was used longest
 * ago, nothing of a session is carried over or reset, and notifications are dropped. For servers that ask for no password.
 */
export class TransactionPooler {
  readonly #server: Server;
  readonly #backends: Backend[];
  readonly #free: Backend[];
  readonly #waiting: ((backend: Backend) => void)[] = [];
  readonly #clients = new Set<Socket>();
  /** How many transactions each server connection carried. */
  get transactions(): number[] {
    return this.#backends.map(({ transactions }) => transactions);
  }

  private constructor(backends: Backend[]) {
    this.#backends = backends;
    this.#free = [...backends];
    this.#server = createServer((socket) => this.#serve(socket));
  }

  /** @param url of the server; `size` connections to it are made */
  static async start(url: string, size: number): Promise<{ pooler: TransactionPooler; url: string }> {
    const target = new URL(url);
    const backends = await Promise.all(Array.from({ length: size }, () => Backend.connect(target)));
    const pooler = new TransactionPooler(backends);
    pooler.#server.listen(0, "127.0.0.1");
    await once(pooler.#server, "listening");
    target.hostname = "127.0.0.1";
    target.port = String((pooler.#server.address() as { port: number }).port);
    return { pooler, url: target.href };
  }

  async stop(): Promise<void> {
    for (const socket of this.#clients) socket.destroy();
    for (const backend of this.#backends) backend.end();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #serve(socket: Socket): void {
    this.#clients.add(socket);
    const reader = new FrontendReader();
    let ready = false;
    let backend: Backend | undefined;
    let pending: Buffer[] = [];
    let turns: Promise<void> = Promise.resolve();
    const give = () => {
      if (backend) this.#release(backend);
      backend = undefined;
    };
    const turn = async (messages: Buffer) => {
      backend ??= await this.#take();
      if ((await backend.run(messages, socket)) === IDLE_STATUS) give();
    };
    socket.on("error", () => {});
    socket.on("close", () => {
      this.#clients.delete(socket);
      void turns.then(async () => {
        if (backend) await backend.run(rollback, undefined);
        give();
      });
    });
    socket.on("data", (chunk) => {
      reader.push(chunk);
      for (let message = reader.next(); message; message = reader.next()) {
        if (!ready) {
          if (readStartupRequest(message) === "encryption") {
            socket.write("N");
            continue;
          }
          reader.start();
          ready = true;
          socket.write(startupAnswer(this.#backends[0]?.parameters ?? Buffer.alloc(0), 1, false));
        } else if (message[0] === FrontendType.terminate) {
          socket.end();
        } else {
          pending.push(Buffer.from(message));
          if (message[0] !== FrontendType.sync && message[0] !== FrontendType.query) continue;
          const messages = Buffer.concat(pending);
          pending = [];
          turns = turns.then(() => turn(messages)).catch(() => void socket.destroy());
        }
      }
    });
  }

  async #take(): Promise<Backend> {
    const free = this.#free.shift();
    return free ?? new Promise((resolve) => this.#waiting.push(resolve));
  }

  #release(backend: Backend): void {
    backend.transactions += 1;
    const next = this.#waiting.shift();
    if (next) next(backend);
    else this.#free.push(backend);
  }
}

const rollback = Buffer.concat([Buffer.from("Q"), Buffer.from([0, 0, 0, 13]), Buffer.from("rollback\0")]);
const READY = 0x5a;
const PARAMETER_STATUS = 0x53;
const NOTIFICATION = 0x41;

/** One connection to the server. */
class Backend {
  transactions = 0;
  parameters = Buffer.alloc(0);
  readonly #socket: Socket;
  #buffered = Buffer.alloc(0);
  #client: Socket | undefined;
  #done: (status: number) => void = () => {};

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("error", () => {});
    socket.on("data", (chunk) => this.#receive(chunk));
  }

  static async connect({ hostname, port, username, pathname }: URL): Promise<Backend> {
    const socket = connect(Number(port || 5432), hostname);
    await once(socket, "connect");
    const backend = new Backend(socket);
    const parameters = Buffer.from(`user\0${username}\0database\0${pathname.slice(1)}\0\0`);
    const head = Buffer.alloc(8);
    head.writeInt32BE(8 + parameters.length, 0);
    head.writeInt32BE(3 << 16, 4);
    await backend.run(Buffer.concat([head, parameters]), undefined);
    return backend;
  }

  /** Sends whole messages; what comes back goes to the client. Resolves with the transaction's status. */
  run(messages: Buffer, client: Socket | undefined): Promise<number> {
    this.#client = client;
    return new Promise((resolve) => {
      this.#done = resolve;
      this.#socket.write(messages);
    });
  }

  end(): void {
    this.#socket.destroy();
  }

  #receive(chunk: Buffer): void {
    this.#buffered = Buffer.concat([this.#buffered, chunk]);
    let length = 0;
    let status: number | undefined;
    const forClient: Buffer[] = [];
    for (const message of messagesIn(this.#buffered)) {
      if (message.length < 1 + message.readInt32BE(1)) break;
      length += message.length;
      if (this.#client === undefined && message[0] === PARAMETER_STATUS) {
        this.parameters = Buffer.concat([this.parameters, message]);
      }
      if (message[0] !== NOTIFICATION) forClient.push(message);
      if (message[0] === READY) status = message[5];
    }
    const answer = Buffer.concat(forClient);
    this.#buffered = Buffer.from(this.#buffered.subarray(length));
    this.#client?.write(answer);
    if (status !== undefined) this.#done(status);
  }
}
