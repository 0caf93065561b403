/**
 * The parts of PostgreSQL's frontend/backend protocol 3.0 that the embedded server itself reads and writes
 * (https://www.postgresql.org/docs/current/protocol-message-formats.html). Everything else passes through unread.
 */

/** Types of messages a client sends after its startup packet. */
export const FrontendType = {
  query: 0x51, // Q
  parse: 0x50, // P
  bind: 0x42, // B
  describe: 0x44, // D
  execute: 0x45, // E
  close: 0x43, // C
  sync: 0x53, // S
  flush: 0x48, // H
  functionCall: 0x46, // F
  terminate: 0x58, // X
  copyData: 0x64, // d
  copyDone: 0x63, // c
  copyFail: 0x66, // f
  password: 0x70, // p
} as const;

const FRONTEND_TYPES = new Set<number>(Object.values(FrontendType));

/** Types of messages of the server that are looked at on their way to the client. */
export const BackendType = {
  parameterStatus: 0x53, // S
  commandComplete: 0x43, // C
  error: 0x45, // E
  notification: 0x41, // A
  readyForQuery: 0x5a, // Z
} as const;

/** The transaction status in ReadyForQuery. */
export const IDLE_STATUS = 0x49; // I

const SSL_REQUEST = 80877103;
const GSS_ENCRYPTION_REQUEST = 80877104;
const CANCEL_REQUEST = 80877102;
const PROTOCOL_MAJOR = 3;
const STARTUP_MOST_BYTES = 10_000;
const MESSAGE_MOST_BYTES = 256 * 1024 * 1024;

/** The client broke the protocol; its connection ends. */
export class ProtocolViolation extends Error {
  override readonly name = "ProtocolViolation";
}

export type StartupRequest = "encryption" | "cancel" | "startup" | "startup_newer_minor";

/** Says what a startup packet asks for. */
export function readStartupRequest(packet: Buffer): StartupRequest {
  const code = packet.readInt32BE(4);
  switch (code) {
    case SSL_REQUEST:
    case GSS_ENCRYPTION_REQUEST:
      return "encryption";
    case CANCEL_REQUEST:
      return "cancel";
  }
  if (code >>> 16 !== PROTOCOL_MAJOR) throw new ProtocolViolation(`unsupported frontend protocol ${code >>> 16}`);
  return (code & 0xffff) === 0 ? "startup" : "startup_newer_minor";
}

/** Cuts what a client sends into whole messages, however the socket chops it. */
export class FrontendReader {
  #chunks: Buffer[] = [];
  #length = 0;
  #started = false;

  push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#length += chunk.length;
  }

  /** The client is past its startup packet: from now on messages bear a type. */
  start(): void {
    this.#started = true;
  }

  /** Whether a message has begun to arrive. */
  get holdsPart(): boolean {
    return this.#length > 0;
  }

  /**
   * The next whole message, if it has arrived.
   *
   * @throws {ProtocolViolation}
   */
  next(): Buffer | undefined {
    const header = this.#started ? 5 : 4;
    if (this.#length < header) return undefined;
    const length = this.#messageLength(this.#peek(header));
    if (this.#length < length) return undefined;
    const all = this.#joined();
    const rest = all.subarray(length);
    this.#chunks = rest.length > 0 ? [rest] : [];
    this.#length = rest.length;
    return all.subarray(0, length);
  }

  #messageLength(header: Buffer): number {
    if (!this.#started) {
      const length = header.readInt32BE(0);
      if (length < 8 || length > STARTUP_MOST_BYTES) throw new ProtocolViolation("invalid length of startup packet");
      return length;
    }
    const type = header.readUInt8(0);
    const length = header.readInt32BE(1);
    // PGlite ends its only session on a type it does not know, so such a message must never reach it.
    if (!FRONTEND_TYPES.has(type)) throw new ProtocolViolation(`invalid frontend message type ${type}`);
    if (length < 4 || length > MESSAGE_MOST_BYTES) throw new ProtocolViolation("invalid message length");
    return length + 1;
  }

  #peek(bytes: number): Buffer {
    const first = this.#chunks[0];
    return first && first.length >= bytes ? first : this.#joined();
  }

  /** Joins only when a message is complete or its header is split: a large one is copied once, not once per chunk. */
  #joined(): Buffer {
    const [first] = this.#chunks;
    if (first && this.#chunks.length === 1) return first;
    const all = Buffer.concat(this.#chunks);
    this.#chunks = [all];
    return all;
  }
}

/** The messages in a stretch of whole ones, as views. */
export function* messagesIn(bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at + 5 <= bytes.length; ) {
    const end = at + 1 + bytes.readInt32BE(at + 1);
    yield bytes.subarray(at, end);
    at = end;
  }
}

/** The text up to the zero byte at or after `from`. */
export function readText(message: Buffer, from: number): string {
  const end = message.indexOf(0, from);
  return message.toString("utf8", from, end < 0 ? message.length : end);
}

/** A simple Query message. */
export function queryMessage(text: string): Buffer {
  return message(FrontendType.query, Buffer.from(`${text}\0`));
}

export const syncMessage: Buffer = message(FrontendType.sync, Buffer.alloc(0));

/** Ends a COPY FROM STDIN with an error; outside of one the database ignores it. */
export const copyFailMessage: Buffer = message(
  FrontendType.copyFail,
  Buffer.from("COPY FROM STDIN is not offered by the embedded database\0"),
);

/** A startup packet of protocol 3.0 for the embedded database's only user. */
export function startupPacket(): Buffer {
  const parameters = Buffer.from("user\0postgres\0database\0postgres\0\0");
  const head = Buffer.alloc(8);
  head.writeInt32BE(8 + parameters.length, 0);
  head.writeInt32BE(PROTOCOL_MAJOR << 16, 4);
  return Buffer.concat([head, parameters]);
}

/** What a client gets after its startup packet: accepted, the server's parameters, a key, ready. */
export function startupAnswer(parameterStatus: Buffer, processId: number, newerMinor: boolean): Buffer {
  const negotiate = message(0x76 /* v */, Buffer.alloc(8)); // newest minor version 0, no options refused
  const authenticationOk = message(0x52 /* R */, Buffer.alloc(4));
  const key = Buffer.alloc(8);
  key.writeInt32BE(processId, 0);
  return Buffer.concat([
    ...(newerMinor ? [negotiate] : []),
    authenticationOk,
    parameterStatus,
    message(0x4b /* K */, key),
    readyForQuery,
  ]);
}

const readyForQuery: Buffer = message(BackendType.readyForQuery, Buffer.from([IDLE_STATUS]));

/** An ErrorResponse of severity FATAL: the connection ends with it. */
export function fatalError(sqlState: string, text: string): Buffer {
  return message(BackendType.error, Buffer.from(`SFATAL\0VFATAL\0C${sqlState}\0M${text}\0\0`));
}

/** Whether an ErrorResponse says that the session is over. */
export function isFatal(message: Buffer): boolean {
  return message[0] === BackendType.error && message.includes("\0VFATAL\0");
}

function message(type: number, body: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt8(type, 0);
  head.writeInt32BE(4 + body.length, 1);
  return Buffer.concat([head, body]);
}
