import { isStorableUri } from "@fenceline/ledger";
import { ProtocolError } from "@modelcontextprotocol/client";
import { storableText } from "../storable-text.js";
import { digestFields, digestJson, digestText } from "./canonical-digest.js";
import { type ListFault, listFaultsIn } from "./lenient-answers.js";
import type { SourceConnection } from "./source-connection.js";
import type { FailureKind } from "./wire-failure.js";

const METHOD_NOT_FOUND = -32601;
const INVALID_PARAMS = -32602;

/** One listed resource, or one listed template under its `uriTemplate`. */
export interface ListedEntry {
  /** The server's own spelling. */
  uri: string;
  name: string;
  title?: string;
  mimeType?: string;
  /** SHA-256 of the descriptor without size, annotations and `_meta` (spec §2), independent of the order of its keys. */
  descriptorDigest: Uint8Array;
  /** The template that stands for it; absent where the list names it by itself. */
  uriTemplate?: string;
}

/** One page of a listing. */
export interface ScanPage {
  /** SHA-256 of the cursor that was sent for this page, or of its absence. Cursors themselves are not kept (S1). */
  cursorDigest: Uint8Array;
  /** Of the cursor that came with it; `null`: none did, and the list ended (S1). */
  nextCursorDigest: Uint8Array | null;
  /** Of all that it lists, in order, and of its next cursor: the same behind one cursor is a loop (S2). */
  pageDigest: Uint8Array;
  entries: ListedEntry[];
  /** Listed under a URI that the ledger does not take (empty, too long, or no text): not in `entries`, and to be reported. */
  refused: ListedEntry[];
  /** What was not valid, and was read without it: to be reported. */
  faults: readonly ListFault[];
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
      reason: "capability_absent" | "not_offered" | "cursor_invalid" | "snapshot_moved" | FailureKind;
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
 * verdict). Never throws for what the server does.
 *
 * A server may send one cursor again and mean another page by it; so a cursor alone is no loop, the same page behind the
 * same cursor is (S2).
 */
export async function* scanPages(
  connection: SourceConnection,
  options: ScanOptions,
): AsyncGenerator<ScanPage, ScanEnd, void> {
  if (!connection.capabilities.resources) {
    return { verdict: "UNKNOWN", reason: "capability_absent", message: "the server declares no resources capability" };
  }
  const walked = new WalkedPages(options.budgets);
  let cursor: string | undefined;
  do {
    const listing = await requestPage(connection, options, cursor);
    if ("verdict" in listing) return listing;
    const page = pageOf(listing, cursor);
    const stop = walked.add(page, listing);
    if (stop) return stop;
    yield page;
    cursor = listing.nextCursor;
  } while (cursor !== undefined);
  return { verdict: "COMPLETE" };
}

/** The answer to one list request, resources and templates alike. */
interface Listing {
  items: readonly Readonly<Record<string, unknown>>[];
  nextCursor: string | undefined;
  meta: Readonly<Record<string, unknown>> | undefined;
}

type ScanStop = Extract<ScanEnd, { verdict: "INCOMPLETE" }>;

/** Keeps what the budgets and the loop check need: 44 characters a page, not the pages. */
class WalkedPages {
  readonly #pagesByCursor = new Map<string, Set<string>>();
  #pages = 0;
  #entries = 0;
  #bytes = 0;

  constructor(private readonly budgets: ScanBudgets) {}

  /** Undefined when the page may be used. */
  add(page: ScanPage, listing: Listing): ScanStop | undefined {
    if (!this.#isNew(page)) {
      return stopped(
        "cursor_loop",
        `page ${this.#pages + 1} repeats an earlier page: the server's cursors form a loop`,
      );
    }
    this.#pages += 1;
    this.#entries += page.entries.length + page.refused.length;
    this.#bytes += Buffer.byteLength(JSON.stringify(listing.items));
    const { pages, entries, bytes } = this.budgets;
    if (this.#pages > pages) return stopped("page_budget", `the list has more than ${pages} pages`);
    if (this.#entries > entries) return stopped("entry_budget", `the list has more than ${entries} entries`);
    if (this.#bytes > bytes) return stopped("byte_budget", `the list is larger than ${bytes} bytes`);
    return undefined;
  }

  #isNew(page: ScanPage): boolean {
    const cursor = base64(page.cursorDigest);
    const content = base64(page.pageDigest);
    const known = this.#pagesByCursor.get(cursor);
    if (known?.has(content)) return false;
    if (known) known.add(content);
    else this.#pagesByCursor.set(cursor, new Set([content]));
    return true;
  }
}

async function requestPage(
  connection: SourceConnection,
  options: ScanOptions,
  cursor: string | undefined,
): Promise<Listing | ScanEnd> {
  const { client, requestTimeoutMs } = connection.wire;
  // `client.request` serves one page from the wire; `listResources` would walk, cache and drop each page's `_meta`.
  const params = cursor === undefined ? {} : { params: { cursor } };
  const requestOptions = { timeout: requestTimeoutMs, ...(options.signal && { signal: options.signal }) };
  await connection.wire.http?.patience.wait(options.signal);
  try {
    if (options.kind === "resources") {
      const answer = await client.request({ method: "resources/list", ...params }, requestOptions);
      return { items: answer.resources, nextCursor: answer.nextCursor, meta: answer._meta };
    }
    const answer = await client.request({ method: "resources/templates/list", ...params }, requestOptions);
    return { items: answer.resourceTemplates, nextCursor: answer.nextCursor, meta: answer._meta };
  } catch (error) {
    return listingFailed(connection, error, options, cursor);
  }
}

function listingFailed(
  connection: SourceConnection,
  error: unknown,
  options: ScanOptions,
  cursor: string | undefined,
): ScanEnd {
  const kind = connection.wire.failure(error, options.signal);
  const message = `listing ${options.kind}: ${connection.wire.explain(error)}`;
  const code = error instanceof ProtocolError ? error.code : undefined;
  if (code === METHOD_NOT_FOUND) return { verdict: "UNKNOWN", reason: "not_offered", message, cause: error };
  if (code === INVALID_PARAMS && cursor !== undefined) {
    return { verdict: "UNKNOWN", reason: "cursor_invalid", message, cause: error };
  }
  return { verdict: "UNKNOWN", reason: kind === "not_found" ? "failed" : kind, message, cause: error };
}

function pageOf(listing: Listing, cursor: string | undefined): ScanPage {
  const entries = listing.items.map(entryOf);
  return {
    cursorDigest: cursor === undefined ? digestFields("cursor", [undefined]) : digestText("cursor", cursor),
    nextCursorDigest: listing.nextCursor === undefined ? null : digestText("cursor", listing.nextCursor),
    pageDigest: digestFields("page", [
      listing.nextCursor,
      ...entries.flatMap((entry) => [entry.uri, entry.descriptorDigest]),
    ]),
    entries: entries.filter(({ uri }) => isStorableUri(uri)),
    refused: entries.filter(({ uri }) => !isStorableUri(uri)),
    faults: listFaultsIn(listing.meta),
    meta: listing.meta,
  };
}

function entryOf(item: Readonly<Record<string, unknown>>): ListedEntry {
  // What changes without the resource becoming another one stays out of the digest (spec §2).
  const { size: _size, annotations: _annotations, _meta, ...descriptor } = item;
  const title = textOf(item["title"]);
  const mimeType = textOf(item["mimeType"]);
  return {
    uri: spelledUri(item["uri"] ?? item["uriTemplate"]),
    name: textOf(item["name"]) ?? "",
    ...(title !== undefined && { title }),
    ...(mimeType !== undefined && { mimeType }),
    descriptorDigest: digestJson("descriptor", descriptor),
  };
}

function stopped(reason: ScanStop["reason"], message: string): ScanStop {
  return { verdict: "INCOMPLETE", reason, message };
}

/** As it was sent: a URI that had to be altered would name something else. */
function spelledUri(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? storableText(value) : undefined;
}

function base64(digest: Uint8Array): string {
  return Buffer.from(digest).toString("base64");
}
