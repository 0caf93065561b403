/**
 * Makes valid what a server got wrong in one place of an answer, where there is one way to read it, before the SDK refuses the
 * whole answer: nine good entries must not fall with the tenth, nor a body with the alphabet of its base64. Both eras; the modern
 * one is checked by the SDK exactly as it came, so this stands between its transport and its client.
 *
 * What is not certain is left as it is, and refused by the SDK. Nothing is mended silently: every fault of a list is told with
 * its page.
 */
import { isSpecType, type JSONRPCMessage, type RequestId } from "@modelcontextprotocol/client";
import { storableText } from "../storable-text.js";

/** One entry of a list, or the list's cursor, that is not what the protocol asks for. */
export interface ListFault {
  /** Of the entry, as it was sent; absent where it has none, or where the cursor is meant. */
  readonly uri?: string;
  readonly message: string;
}

/** Under this name the faults of a page travel in its `_meta`. A server's own value of that name is dropped. */
const FAULTS_META_KEY = "fenceline/listFaults";

/** What the faults of a page may name, at most: a page of a hundred thousand bad entries says so once. */
const MAX_FAULTS = 100;
/** Requests whose answer is waited for, at most; one that was given up is never answered. */
const MAX_ASKED = 10_000;

const LISTS = {
  "resources/list": { key: "resources", id: "uri", isValid: isSpecType.Resource },
  "resources/templates/list": { key: "resourceTemplates", id: "uriTemplate", isValid: isSpecType.ResourceTemplate },
} as const;

type List = (typeof LISTS)[keyof typeof LISTS];
type Fields = Record<string, unknown>;

/** Watches the requests and answers of one connection. */
export class LenientAnswers {
  readonly #asked = new Map<RequestId, string>();

  /** A message to the server. */
  sent(message: JSONRPCMessage): void {
    if (!("method" in message) || !("id" in message)) return;
    const { id, method } = message;
    if (!isList(method) && method !== "resources/read") return;
    this.#asked.set(id, method);
    const [oldest] = this.#asked.keys();
    if (this.#asked.size > MAX_ASKED && oldest !== undefined) this.#asked.delete(oldest);
  }

  /** A message from the server; what the client is to see instead. */
  received(message: JSONRPCMessage): JSONRPCMessage {
    if (!("id" in message) || message.id === undefined || "method" in message) return message;
    const method = this.#asked.get(message.id);
    if (method === undefined) return message;
    this.#asked.delete(message.id);
    if (!("result" in message) || !isFields(message.result)) return message;
    const { result } = message;
    return { ...message, result: isList(method) ? mendedList(result, LISTS[method]) : mendedRead(result) };
  }
}

/** What was wrong with a page, by its `_meta`. */
export function listFaultsIn(meta: Readonly<Fields> | undefined): readonly ListFault[] {
  return (meta?.[FAULTS_META_KEY] as readonly ListFault[] | undefined) ?? [];
}

function mendedList(result: Fields, list: List): Fields {
  const items = result[list.key];
  if (!Array.isArray(items)) return result;
  const faults: ListFault[] = [];
  const mended = items.flatMap((item: unknown) => (list.isValid(item) ? [item] : mendedEntry(item, list, faults)));
  const { nextCursor, ...rest } = result;
  // Only an absent cursor ends a list (S1). A null can mean nothing else.
  if (nextCursor === null) faults.push({ message: "nextCursor is null, and was taken as absent" });
  const meta = isFields(result["_meta"]) ? result["_meta"] : {};
  if (faults.length === 0 && !(FAULTS_META_KEY in meta)) return result;
  const told =
    faults.length <= MAX_FAULTS
      ? faults
      : [...faults.slice(0, MAX_FAULTS), { message: `${faults.length - MAX_FAULTS} more entries are not valid` }];
  return {
    ...rest,
    ...(nextCursor === null || nextCursor === undefined ? {} : { nextCursor }),
    [list.key]: mended,
    _meta: { ...meta, [FAULTS_META_KEY]: told },
  };
}

/**
 * What is valid of an entry. It stays listed wherever its URI can be read: a known resource whose entry has a bad icon today is
 * not absent, and a task that removes what is absent would take it (S6).
 */
function mendedEntry(item: unknown, { id, isValid }: List, faults: ListFault[]): Fields[] {
  const uri = isFields(item) ? item[id] : undefined;
  if (!isFields(item) || typeof uri !== "string") {
    faults.push({ message: `an entry without ${id === "uri" ? "a URI" : "a URI template"}, which was left out` });
    return [];
  }
  let entry: Fields = { [id]: uri, name: typeof item["name"] === "string" ? item["name"] : uri };
  const dropped = typeof item["name"] === "string" ? [] : ["name"];
  for (const [key, value] of Object.entries(item)) {
    if (key in entry) continue;
    if (isValid({ ...entry, [key]: value })) entry = { ...entry, [key]: value };
    else dropped.push(key);
  }
  const named = dropped.map((key) => storableText(key).slice(0, 64)).join(", ");
  faults.push({ uri, message: `not valid in its entry, and left out: ${named}` });
  return [entry];
}

function mendedRead(result: Fields): Fields {
  const { contents } = result;
  if (!Array.isArray(contents)) return result;
  return {
    ...result,
    contents: contents.map((content: unknown) => (isFields(content) ? withReadBlob(content) : content)),
  };
}

/** Base64 in the URL-safe alphabet, or as a data URL, says the same bytes; anything else stays what it is. */
function withReadBlob(content: Fields): Fields {
  const { blob } = content;
  if (typeof blob !== "string" || isSpecType.BlobResourceContents({ uri: "", blob })) return content;
  const bare = blob.replace(/^data:[^,]{0,256};base64,/i, "");
  // Both alphabets in one text are no text of either.
  const isUrlSafe = /[-_]/.test(bare) && !/[+/]/.test(bare);
  const plain = isUrlSafe ? bare.replaceAll("-", "+").replaceAll("_", "/") : bare;
  return isSpecType.BlobResourceContents({ uri: "", blob: plain }) ? { ...content, blob: plain } : content;
}

function isList(method: string): method is keyof typeof LISTS {
  return Object.hasOwn(LISTS, method);
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
