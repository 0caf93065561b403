/**
 * Cuts a server's standard output into messages, for the SDK's transport in place of its own buffer, which ends the connection
 * on a message that is too large and copies all it holds with every chunk (64 MB took 10 s).
 *
 * 1. At most `maxMessageBytes` and one chunk are held.
 * 2. A larger line is dropped as it comes, whatever its length. The request it answers fails with `response_too_large`; the
 *    others go on.
 */
import { deserializeMessage, type JSONRPCMessage, type RequestId } from "@modelcontextprotocol/client";
import { connectorError } from "../errors.js";

const NEWLINE = 0x0a;
/** Kept of either end of a line that is dropped: the id of what it answers stands in one of them. */
const KEPT_BYTES = 1_024;
const INTERNAL_ERROR = -32603;

export class StdioMessages {
  #held: Buffer[] = [];
  #heldBytes = 0;
  /** Of a line that is being dropped: its beginning and the end of what came of it. */
  #dropped: { readonly head: Buffer; tail: Buffer } | undefined;
  readonly #ready: JSONRPCMessage[] = [];

  constructor(private readonly maxMessageBytes: number) {}

  append(chunk: Buffer): void {
    let from = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
      this.#hold(chunk.subarray(from, end));
      this.#endLine();
      from = end + 1;
    }
    this.#hold(chunk.subarray(from));
  }

  /** The next whole message, or null. */
  readMessage(): JSONRPCMessage | null {
    return this.#ready.shift() ?? null;
  }

  clear(): void {
    this.#held = [];
    this.#heldBytes = 0;
    this.#dropped = undefined;
    this.#ready.length = 0;
  }

  #hold(bytes: Buffer): void {
    if (this.#dropped) {
      this.#dropped.tail = lastOf(Buffer.concat([this.#dropped.tail, lastOf(bytes)]));
      return;
    }
    this.#held.push(bytes);
    this.#heldBytes += bytes.length;
    if (this.#heldBytes <= this.maxMessageBytes) return;
    const line = this.#take();
    this.#dropped = { head: Buffer.from(line.subarray(0, KEPT_BYTES)), tail: Buffer.from(lastOf(line)) };
  }

  #take(): Buffer {
    const line = this.#held.length === 1 ? (this.#held[0] as Buffer) : Buffer.concat(this.#held);
    this.#held = [];
    this.#heldBytes = 0;
    return line;
  }

  #endLine(): void {
    const dropped = this.#dropped;
    this.#dropped = undefined;
    const message = dropped ? this.#refusal(dropped) : messageIn(this.#take());
    if (message) this.#ready.push(message);
  }

  /** What the request is answered with instead. A notification, or an answer whose id cannot be read, is gone. */
  #refusal({ head, tail }: { head: Buffer; tail: Buffer }): JSONRPCMessage | undefined {
    const id = answeredId(head.toString("utf8"), tail.toString("utf8"));
    if (id === undefined) return undefined;
    const message = `an answer exceeds ${this.maxMessageBytes} bytes (maxMessageBytes)`;
    // As an instance, which no server can send.
    const data = connectorError("response_too_large", message);
    return { jsonrpc: "2.0", id, error: { code: INTERNAL_ERROR, message, data } };
  }
}

/** Lines that are no JSON are a server's chatter, which the SDK lets pass too. */
function messageIn(line: Buffer): JSONRPCMessage | undefined {
  const text = line.toString("utf8");
  if (text.trim() === "") return undefined;
  try {
    return deserializeMessage(text);
  } catch {
    return undefined;
  }
}

/**
 * Servers write the id before the result or behind it. Both patterns hold to the outermost object: inside of a result, an "id"
 * says nothing. A request of the server's own has ids of its own.
 */
const REQUEST = /^\s*\{[^{[]*"method"\s*:/;
const ID_BEFORE = /^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*("(?:[^"\\]|\\.)*"|\d+)\s*,/;
const ID_BEHIND = /[,{]\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$/;

function answeredId(head: string, tail: string): RequestId | undefined {
  if (REQUEST.test(head)) return undefined;
  const id = (ID_BEFORE.exec(head) ?? ID_BEHIND.exec(tail))?.[1];
  return id === undefined ? undefined : (JSON.parse(id) as RequestId);
}

function lastOf(bytes: Buffer): Buffer {
  return bytes.subarray(Math.max(0, bytes.length - KEPT_BYTES));
}
