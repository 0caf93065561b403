import { isStorableUri } from "@fenceline/ledger";
import { type ReadResourceResult, SERVER_INFO_META_KEY } from "@modelcontextprotocol/client";
import { storablePartUri, storableText } from "../storable-text.js";
import { digestFields } from "./canonical-digest.js";
import type { SourceConnection } from "./source-connection.js";

type ResourceContents = ReadResourceResult["contents"][number];

/** One part of a resource, its text made storable. Its URI may be another than the one asked for (F5). */
export type ContentPart =
  | { uri: string; mimeType?: string; text: string }
  | { uri: string; mimeType?: string; bytes: Uint8Array };

/**
 * What came of one `resources/read`.
 *
 * - `content`: at least one part. `empty`: success without contents, which is neither a version nor a deletion (F7).
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
  | { outcome: "empty"; cacheScope?: "public" | "private"; ttlMs?: number }
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
  const { client, requestTimeoutMs } = connection.wire;
  const { signal, timeoutMs = requestTimeoutMs } = options;
  try {
    const answer = await client.readResource(
      { uri },
      { cacheMode: "bypass", timeout: timeoutMs, maxTotalTimeout: timeoutMs, ...(signal && { signal }) },
    );
    return outcomeOf(answer, options.maxBodyBytes);
  } catch (error) {
    return failureOf(connection, error, signal);
  }
}

function outcomeOf(answer: ReadResourceResult, maxBodyBytes: number): ReadOutcome {
  const hints = hintsOf(answer);
  if (answer.contents.length === 0) return { outcome: "empty", ...hints };
  const bytes = answer.contents.reduce((sum, content) => sum + sizeOf(content), 0);
  if (bytes > maxBodyBytes) {
    return { outcome: "too_large", bytes, message: `the body has ${bytes} bytes, maxBodyBytes is ${maxBodyBytes}` };
  }
  const parts = answer.contents.map(partOf);
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
  if (kind === "too_large") return { outcome: "too_large", bytes: undefined, message, cause: error };
  return { outcome: kind, message, cause: error };
}

/** SHA-256 over URI, MIME type and bytes of each part, in the server's order. */
export function digestParts(parts: readonly ContentPart[]): Uint8Array {
  return digestFields(
    "content",
    parts.flatMap((part) => [part.uri, part.mimeType, "text" in part ? part.text : part.bytes]),
  );
}

function partOf(content: ResourceContents): ContentPart {
  const { mimeType } = content;
  const named = {
    uri: storablePartUri(content.uri),
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
    ...(typeof ttlMs === "number" && ttlMs >= 0 && { ttlMs }),
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
