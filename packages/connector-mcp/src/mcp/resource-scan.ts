import { connectorError } from "../errors.js";
import type { SourceConnection } from "./source-connection.js";
import type { FailureKind } from "./wire-failure.js";

/** One listed resource, or one listed template under its `uriTemplate`. */
export interface ListedEntry {
  /** The server's own spelling. */
  uri: string;
  name: string;
  title?: string;
  mimeType?: string;
  /** SHA-256 of the descriptor without size, annotations and `_meta` (spec §2), independent of the order of its keys. */
  descriptorDigest: Uint8Array;
}

/** One page of a listing. */
export interface ScanPage {
  /** SHA-256 of the cursor that was sent for this page; undefined for the first, which has none. Cursors themselves are not kept (S1). */
  cursorDigest: Uint8Array | undefined;
  entries: ListedEntry[];
  /** The page's own `_meta`, where a snapshot id may ride (S3). */
  meta: Readonly<Record<string, unknown>> | undefined;
}

/**
 * How a listing ended.
 *
 * `COMPLETE`: a page without `nextCursor` was reached. `INCOMPLETE`: this side stopped (S2). `UNKNOWN`: the server did not
 * list; nothing may be concluded, least of all that the source is empty (S8, S9).
 */
export type ScanEnd =
  | { verdict: "COMPLETE" }
  | { verdict: "INCOMPLETE"; reason: "cursor_loop" | "page_budget" | "entry_budget" | "byte_budget"; message: string }
  | {
      verdict: "UNKNOWN";
      reason: "capability_absent" | "not_offered" | "cursor_invalid" | FailureKind;
      message: string;
      cause?: unknown;
    };

/** Bounds of a list that never ends (S2). */
export interface ScanBudgets {
  pages: number;
  entries: number;
  /** Of the pages as JSON, in bytes. */
  bytes: number;
}

export interface ScanOptions {
  kind: "resources" | "templates";
  budgets: ScanBudgets;
  signal?: AbortSignal;
}

/**
 * Walks a listing page by page. The generator *returns* how it ended, so drive it with `next()` (a `for await` loses the
 * verdict), or use {@link scanToEnd}. Never throws for what the server does.
 */
export async function* scanPages(
  _connection: SourceConnection,
  _options: ScanOptions,
): AsyncGenerator<ScanPage, ScanEnd, void> {
  yield* [];
  throw connectorError("source_failed", "to be built");
}

/** Hands every page to `onPage`, awaits it, and tells how the listing ended. */
export async function scanToEnd(
  connection: SourceConnection,
  options: ScanOptions,
  onPage: (page: ScanPage) => void | Promise<void>,
): Promise<ScanEnd> {
  const pages = scanPages(connection, options);
  for (;;) {
    const step = await pages.next();
    if (step.done) return step.value;
    await onPage(step.value);
  }
}
