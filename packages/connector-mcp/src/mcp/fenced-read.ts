import { connectorError } from "../errors.js";
import type { SourceConnection } from "./source-connection.js";

/** One part of a resource. Its URI may be another than the one asked for (F5). */
export type ContentPart =
  | { uri: string; mimeType: string | undefined; text: string }
  | { uri: string; mimeType: string | undefined; bytes: Uint8Array };

/**
 * What came of one `resources/read`.
 *
 * - `content`: at least one part. `empty`: success without contents, which is neither a version nor a deletion (F7).
 * - `not_found`: -32602 or -32002, typed or bare (F7).
 * - `unauthorized`, `forbidden`: 401 and 403 (P7).
 * - `too_large`: the body exceeds `maxBodyBytes`, or the answer the connection's limit.
 * - `session_lost`: the connection has ended; connect again.
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
  _connection: SourceConnection,
  _uri: string,
  _options: ReadOptions,
): Promise<ReadOutcome> {
  throw connectorError("source_failed", "to be built");
}
