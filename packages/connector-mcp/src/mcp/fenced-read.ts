import { isStorableUri, resourceKey } from "@fenceline/ledger";
import { type ReadResourceResult, SERVER_INFO_META_KEY } from "@modelcontextprotocol/client";
import { storablePartUri, storableText } from "../storable-text.js";
import { digestFields } from "./canonical-digest.js";
import type { SourceConnection } from "./source-connection.js";

type ResourceContents = ReadResourceResult["contents"][number];

/**
 * One part of a resource, its text made storable. Its URI may be another than the one asked for (F5); another spelling of the
 * one asked for is written as it was asked.
 */
export type ContentPart =
  | { uri: string; mimeType?: string; text: string }
  | { uri: string; mimeType?: string; bytes: Uint8Array };

/**
 * What came of one `resources/read`.
 *
 * - `content`: at least one part. `empty`: success without contents, or with none that can be believed; neither a version nor
 *   a deletion (F7).
 * - `not_found`: -32602 or -32002, typed or bare (F7).
 * - `unauthorized`, `forbidden`: 401 and 403 (P7).
 * - `too_large`: the body exceeds `maxBodyBytes`, or the answer the connection's limit.
 * - `throttled`: asked too often; once the server's patience is back (`wire.http.patience`), read it again.
 * - `session_lost`: the connection has ended; connect again.
 * - `invalid`: not what the protocol asks for, or a part's URI is none that the ledger takes.
 * - `unreachable`, `timed_out`, `aborted`, `invalid`, `failed`: nothing is known about the resource.
 */
export type ReadOutcome =
  | ReadContent
  | { outcome: "empty"; message: string; cacheScope?: "public" | "private"; ttlMs?: number }
  | { outcome: "too_large"; bytes: number | undefined; message: string; cause?: unknown }
  | {
      outcome:
        | "not_found"
        | "unauthorized"
        | "forbidden"
        | "throttled"
        | "session_lost"
        | "unreachable"
        | "timed_out"
        | "aborted"
        | "invalid"
        | "failed";
      message: string;
      cause: unknown;
    };

export interface ReadContent {
  outcome: "content";
  parts: ContentPart[];
  /** SHA-256 of the parts: URI, MIME type and bytes, in the server's order. */
  digest: Uint8Array;
  /** Sum over the parts, in bytes. */
  bytes: number;
  cacheScope?: "public" | "private";
  /** The server's hint how long the content may stay unchanged, in milliseconds. */
  ttlMs?: number;
  /** Name and version the server gave in this very answer (modern era), which may differ from the connection's after a redeploy. */
  server?: { name: string; version: string };
}

export interface ReadOptions {
  /** Longest wait, in milliseconds. Default: the connection's request timeout. */
  timeoutMs?: number;
  /** Largest body, in bytes over all parts. */
  maxBodyBytes: number;
  signal?: AbortSignal;
}

/**
 * Reads one resource from the server itself: no response cache answers (F8). Never throws for what the server does.
 *
 * @param uri the server's own spelling; it is sent as it is (F10)
 */
export async function readResource(
  connection: SourceConnection,
  uri: string,
  options: ReadOptions,
): Promise<ReadOutcome> {
  const outcome = await readOnce(connection, uri, options);
  if (outcome.outcome !== "content" || !saysNothing(outcome)) return outcome;
  const plain = unescaped(uri);
  if (plain === undefined) return outcome;
  // Some servers list a name escaped and do not undo that in a read: nothing is found, and told as a success. What the other
  // spelling brings is evidence, and no content: it was not listed.
  const other = await readOnce(connection, plain, options);
  if (other.outcome !== "content" || saysNothing(other)) return outcome;
  const { cacheScope, ttlMs } = outcome;
  return {
    outcome: "empty",
    message: MISREAD,
    ...(cacheScope && { cacheScope }),
    ...(ttlMs !== undefined && { ttlMs }),
  };
}

/** Longer than any interval that it could stretch. */
const LONGEST_TTL_MS = 24 * 60 * 60_000;

const MISREAD =
  "the server answers its own spelling of the URI with nothing, and the unescaped one with content: it does not undo the escapes";

async function readOnce(connection: SourceConnection, uri: string, options: ReadOptions): Promise<ReadOutcome> {
  const { client, requestTimeoutMs } = connection.wire;
  const { signal, timeoutMs = requestTimeoutMs } = options;
  try {
    const answer = await client.readResource(
      { uri },
      { cacheMode: "bypass", timeout: timeoutMs, maxTotalTimeout: timeoutMs, ...(signal && { signal }) },
    );
    return outcomeOf(answer, uri, options.maxBodyBytes);
  } catch (error) {
    return failureOf(connection, error, signal);
  }
}

/** Nothing at all, or JSON that holds nothing. */
function saysNothing({ parts }: ReadContent): boolean {
  return parts.every((part) =>
    "text" in part ? /^\s*(?:\[\s*\]|\{\s*\}|null|)\s*$/.test(part.text) : part.bytes.length === 0,
  );
}

/** The URI with its escapes undone, if it has any. */
function unescaped(uri: string): string | undefined {
  try {
    const plain = decodeURIComponent(uri);
    return plain === uri ? undefined : plain;
  } catch {
    return undefined;
  }
}

function outcomeOf(answer: ReadResourceResult, uri: string, maxBodyBytes: number): ReadOutcome {
  const hints = hintsOf(answer);
  if (answer.contents.length === 0) return { outcome: "empty", message: "the answer had no contents", ...hints };
  const bytes = answer.contents.reduce((sum, content) => sum + sizeOf(content), 0);
  if (bytes > maxBodyBytes) {
    return { outcome: "too_large", bytes, message: `the body has ${bytes} bytes, maxBodyBytes is ${maxBodyBytes}` };
  }
  const parts = answer.contents.map((content) => partOf(content, uri));
  const unnamed = parts.findIndex((part) => !isStorableUri(part.uri));
  if (unnamed >= 0) {
    const message = `the URI of content ${unnamed + 1} is empty or too long`;
    return { outcome: "invalid", message, cause: undefined };
  }
  return { outcome: "content", parts, digest: digestParts(parts), bytes, ...hints, ...serverOf(answer) };
}

function failureOf(connection: SourceConnection, error: unknown, signal: AbortSignal | undefined): ReadOutcome {
  const kind = connection.wire.failure(error, signal);
  const message = connection.wire.explain(error);
  const cause = connection.wire.presentable(error);
  if (kind === "too_large") return { outcome: "too_large", bytes: undefined, message, cause };
  return { outcome: kind, message, cause };
}

/** SHA-256 over URI, MIME type and bytes of each part, in the server's order. */
export function digestParts(parts: readonly ContentPart[]): Uint8Array {
  return digestFields(
    "content",
    parts.flatMap((part) => [part.uri, part.mimeType, "text" in part ? part.text : part.bytes]),
  );
}

function partOf(content: ResourceContents, asked: string): ContentPart {
  const { mimeType } = content;
  const named = {
    uri: resourceKey(content.uri) === resourceKey(asked) ? asked : storablePartUri(content.uri),
    ...(mimeType !== undefined && { mimeType: storableText(mimeType) }),
  };
  if ("text" in content) return { ...named, text: storableText(content.text) };
  return { ...named, bytes: new Uint8Array(Buffer.from(content.blob, "base64")) };
}

function sizeOf(content: ResourceContents): number {
  return "text" in content ? Buffer.byteLength(content.text) : Buffer.byteLength(content.blob, "base64");
}

function hintsOf(answer: ReadResourceResult): { cacheScope?: "public" | "private"; ttlMs?: number } {
  const { cacheScope, ttlMs } = answer as { cacheScope?: unknown; ttlMs?: unknown };
  return {
    ...((cacheScope === "public" || cacheScope === "private") && { cacheScope }),
    ...(typeof ttlMs === "number" && ttlMs >= 0 && { ttlMs: Math.min(Math.floor(ttlMs), LONGEST_TTL_MS) }),
  };
}

function serverOf(answer: ReadResourceResult): { server?: { name: string; version: string } } {
  const info = answer._meta?.[SERVER_INFO_META_KEY];
  if (typeof info !== "object" || info === null) return {};
  const { name, version } = info as { name?: unknown; version?: unknown };
  return typeof name === "string" && typeof version === "string"
    ? { server: { name: storableText(name), version: storableText(version) } }
    : {};
}
