import { createHash } from "node:crypto";
import { scanArguments } from "./arguments/scans.js";
import {
  floorOf,
  type PublishResult,
  publishCatalog,
  publishUnsettled,
  type RemovalFloor,
  type UnsettledResult,
} from "./catalog-publication.js";
import type { Queryable } from "./database/database.js";
import { assert } from "./errors.js";
import { call, fenceOf, inBatches } from "./fenced-call.js";
import { checkedCalls } from "./input.js";
import { defaultReadTiming, type ReadTiming } from "./read-timing.js";
import { ensureResources, keyDigest } from "./resource-rows.js";
import { resourceKey } from "./resource-uri.js";
import type { Session } from "./sessions.js";

/** One listed resource, or one listed template, as the server spelled it. */
export interface ScanEntry {
  /** Of a template: its `uriTemplate`. */
  readonly uri: string;
  readonly name?: string;
  readonly title?: string;
  readonly mimeType?: string;
  /** Without size, annotations and `_meta` (spec §2). */
  readonly descriptorDigest: Uint8Array;
  /** The listed template that stands for it, where no list names it by itself. */
  readonly uriTemplate?: string;
}

/** Something of a list that is not what the protocol asks for. */
export interface ListedFault {
  /** Of the entry; absent where it has none, or where none is meant. */
  readonly uri?: string;
  readonly code: string;
  readonly message: string;
}

export type ScanVerdict = "SNAPSHOT_PROVEN" | "SNAPSHOT_UNPROVEN" | "UNSETTLED" | "INCOMPLETE" | "VOID";

/** Bounds of a list that never ends (S2), well above the million resources that are supported. */
export interface ScanBudgets {
  readonly pages: number;
  /** As listed, before those of one key are merged. */
  readonly entries: number;
  /** Of URIs, names, titles, MIME types and digests as UTF-8. */
  readonly bytes: number;
}

export const defaultScanBudgets: ScanBudgets = { pages: 100_000, entries: 2_000_000, bytes: 4 * 1024 ** 3 };

export interface ScanPageRecord {
  /** Digest of the cursor the page was asked with; of its absence for the first (S1). */
  readonly cursorDigest: Uint8Array;
  /** Digest of the `nextCursor` that came with it; `null`: there was none, the list ended. Left out: not told. */
  readonly nextCursorDigest?: Uint8Array | null;
  /** Default `resources`; `templates` where the scan was begun with them. */
  readonly list?: "resources" | "templates";
  readonly entries: readonly ScanEntry[];
  /** Of everything that the page listed, where `entries` are only some of it: what tells a loop (S2). */
  readonly pageDigest?: Uint8Array;
  /** Digest of the snapshot id the page binds, where that was negotiated (S3). */
  readonly snapshotIdDigest?: Uint8Array;
}

/**
 * `cursor_loop` and the budgets: the scan is over, INCOMPLETE, and removes nothing (S2). `scan_ended`: it was over before.
 */
export type RecordedPage =
  | "recorded"
  | "session_lost"
  | "scan_ended"
  | "cursor_loop"
  | "page_budget"
  | "entry_budget"
  | "byte_budget";

export interface ScanLedger {
  /**
   * Begins a scan. `no_resources_capability`: the server declared none in this session, so what it lists is unknown (S9);
   * an INCOMPLETE scan says so in `status`.
   */
  beginScan(
    session: Session,
    options?: {
      /** The list of templates is walked as well, and belongs to what two scans agree on (S1). Default false. */
      readonly templates?: boolean;
      readonly budgets?: Partial<ScanBudgets>;
    },
  ): Promise<{ readonly scanId: number } | "session_lost" | "no_resources_capability">;
  /**
   * Entries are merged by resource key; a million of them stay in the database, not in memory (S8). A page that may have
   * been recorded (`connection_lost`) is not to be sent again: it would look like a loop, so end the scan.
   */
  recordScanPage(session: Session, scanId: number, page: ScanPageRecord): Promise<RecordedPage>;
  /** Ends a scan; the ledger decides what it is (`FinishedScan`). */
  finishScan(
    session: Session,
    scanId: number,
    end: (
      | { readonly complete: true }
      | { readonly complete: false; readonly verdict: "INCOMPLETE" | "VOID"; readonly reason: string }
    ) & {
      /** What was not valid in its lists, for the status: at most a thousand. */
      readonly faults?: readonly ListedFault[];
    },
  ): Promise<FinishedScan>;
  /**
   * Publishes what two successive complete scans agree on (S4, S5, S7), or one proven snapshot, given as both (S3). What
   * vanished above the floor is held back and reported; the first later settled scan that still agrees carries it out, above
   * the share only after a person confirmed it (S8). A publication that was interrupted names no catalogue and removes
   * nothing; call it again with the same scans.
   */
  publishCatalog(
    session: Session,
    scans: {
      readonly first: number;
      readonly second: number;
      readonly floor?: RemovalFloor;
      readonly reviewMs?: number;
    },
  ): Promise<PublishResult>;
  /**
   * After too many tries: URIs in both of the last scans are read and served, nothing is removed (S4).
   *
   * @param scans `attempts`: pairs that were tried, for the record. Default 1.
   */
  publishUnsettled(
    session: Session,
    scans: { readonly first: number; readonly second: number; readonly attempts?: number },
  ): Promise<UnsettledResult>;
  /**
   * The list changed: scans that began before publish nothing any more, and the next review is due now (S4, S9).
   * `coalesced`: as an earlier one that no scan has followed yet.
   */
  recordListChanged(session: Session): Promise<"recorded" | "coalesced" | "session_lost">;
  /** Until the list is to be scanned again (S5); 0: it is due. `undefined`: nothing was published yet, or the session is lost. */
  millisecondsToNextReview(session: Session): Promise<number | undefined>;
  /** Catalogues whose review is due, longest first, of every source and reader. */
  scansDue(options?: { readonly limit?: number }): Promise<DueScan[]>;
  /** The templates of a published catalogue, in order of their text; none where its scans were begun without them. */
  listedTemplates(request: {
    readonly source: string;
    readonly reader: string;
    readonly limit: number;
    /** Go on after this `uriTemplate`. */
    readonly after?: string;
  }): Promise<ListedTemplate[]>;
  /** Removals the floor holds back, newest first. */
  heldRemovals(): Promise<HeldRemoval[]>;
  /** A person confirms a held removal (S8). `unknown`: there is none of that id, or it has ended. */
  confirmRemoval(heldRemovalId: number, confirmedBy: string): Promise<"confirmed" | "unknown">;
}

/**
 * How a scan ended. `proven`: every page bound one snapshot id, and no other set is known of it (S3). `void`: that
 * contradicted itself, and the extension is distrusted for this session. `incomplete`: a list did not end. `scan_ended`: it
 * was over before.
 */
export type FinishedScan = "complete" | "proven" | "void" | "incomplete" | "session_lost" | "scan_ended";

export interface DueScan {
  readonly source: string;
  readonly reader: string;
  readonly dueAt: Date;
}

export interface ListedTemplate {
  readonly uriTemplate: string;
  readonly name: string | undefined;
  readonly title: string | undefined;
  readonly mimeType: string | undefined;
}

/** A removal above the floor (S8). */
export interface HeldRemoval {
  readonly heldRemovalId: number;
  readonly source: string;
  readonly reader: string;
  /** What wanted to remove: a publication, or a task on a proven snapshot (S6). */
  readonly task: "catalogue" | "completeness";
  /** Resources known when it was found. */
  readonly known: number;
  readonly vanished: number;
  readonly heldAt: Date;
  /** A second settled scan found the same. */
  readonly agreed: boolean;
  readonly confirmedAt: Date | undefined;
}

/** One statement's worth of a page: a server may put a million entries in one. */
const PAGE_PART = 1_000;
const FORGET_BATCH = 10_000;

/** Discovery; see `ScanLedger`. The rules are in `functions/scans.sql` and `functions/catalog.sql`. */
export function scanLedger(database: Queryable, timing: ReadTiming = defaultReadTiming): ScanLedger {
  return checkedCalls(scanArguments, {
    async beginScan(session, { templates = false, budgets = {} } = {}) {
      // Not fenced, and no more than one batch short of a whole scan behind.
      while (
        (await call<number>(database, "fenceline.forget_scan_entries($1, $2, $3)", [
          ...fenceOf(session),
          FORGET_BATCH,
        ])) > 0
      );
      const { pages, entries, bytes } = { ...defaultScanBudgets, ...budgets };
      const [begun] = await database.query<BegunScan>("select * from fenceline.begin_scan($1, $2, $3, $4, $5, $6)", [
        ...fenceOf(session),
        templates,
        pages,
        entries,
        bytes,
      ]);
      assert(begun !== undefined, "begin_scan answers with one row.");
      return begun.outcome === "begun" ? { scanId: begun.scan } : begun.outcome;
    },

    async recordScanPage(session, scanId, page) {
      const { list = "resources", entries } = page;
      const parts = entries.length === 0 ? [entries] : [...inBatches(entries, PAGE_PART)];
      for (const [position, part] of parts.entries()) {
        const isLast = position === parts.length - 1;
        if (list === "resources") {
          await ensureResources(
            database,
            session,
            part.map((entry) => entry.uri),
          );
        }
        const recorded = await call<RecordedPage>(database, RECORD_SCAN_PAGE, [
          ...fenceOf(session),
          session.sourceId,
          scanId,
          list,
          ...(isLast ? endOfPage(page) : [null, null, null, null]),
          ...entryColumns(part, list),
        ]);
        if (recorded !== "recorded") return recorded;
      }
      return "recorded";
    },

    async finishScan(session, scanId, end) {
      return call<FinishedScan>(database, "fenceline.finish_scan($1, $2, $3, $4, $5, $6)", [
        ...fenceOf(session),
        scanId,
        end.complete ? null : end.verdict,
        end.complete ? null : end.reason,
        end.faults === undefined ? null : faultsToKeep(end.faults),
      ]);
    },

    publishCatalog: (session, { first, second, floor = floorOf(timing), reviewMs = timing.catalogReviewMs }) =>
      publishCatalog(database, session, { first, second }, { floor, reviewMs }),

    publishUnsettled: (session, scans) => publishUnsettled(database, session, scans, timing),

    recordListChanged: (session) => call(database, "fenceline.record_list_changed($1, $2)", fenceOf(session)),

    async millisecondsToNextReview(session) {
      const parameters = fenceOf(session);
      return (
        (await call<number | null>(database, "fenceline.milliseconds_to_next_review($1, $2)", parameters)) ?? undefined
      );
    },

    scansDue: ({ limit = 1_000 } = {}) =>
      database.query<DueScan>(
        `select o.name as source, u.name as reader, c.next_review_at as "dueAt"
         from fenceline.policy_scope c
         join fenceline.source o on o.source_id = c.source_id
         join fenceline.subject u on u.subject_id = c.subject_id
         where c.next_review_at <= fenceline.now() order by c.next_review_at, c.scope_id limit $1`,
        [limit],
      ),

    async listedTemplates({ source, reader, limit, after = "" }) {
      const rows = await database.query<TemplateRow>(
        `select t.uri_template, t.name, t.title, t.mime_type
         from fenceline.policy_scope c
         join fenceline.source o on o.source_id = c.source_id and o.name = $1
         join fenceline.subject u on u.subject_id = c.subject_id and u.name = $2
         join fenceline.scan_template t on t.scan_id = c.catalog_scan_id
         where t.uri_template collate "C" > $3 order by t.uri_template collate "C" limit $4`,
        [source, reader, after, limit],
      );
      return rows.map(({ uri_template: uriTemplate, name, title, mime_type }) => ({
        uriTemplate,
        name: name ?? undefined,
        title: title ?? undefined,
        mimeType: mime_type ?? undefined,
      }));
    },

    async heldRemovals() {
      const rows = await database.query<HeldRemovalRow>(
        `select h.held_removal_id, o.name as source, u.name as reader, h.task, h.known, h.vanished, h.held_at,
           h.agreed_scan_id is not null as agreed, h.confirmed_at
         from fenceline.held_removal h
         join fenceline.policy_scope c on c.scope_id = h.scope_id
         join fenceline.source o on o.source_id = c.source_id
         join fenceline.subject u on u.subject_id = c.subject_id
         where h.ended_at is null order by h.held_removal_id desc`,
      );
      return rows.map(({ held_removal_id: heldRemovalId, held_at: heldAt, confirmed_at, ...rest }) => ({
        ...rest,
        heldRemovalId,
        heldAt,
        confirmedAt: confirmed_at ?? undefined,
      }));
    },

    async confirmRemoval(heldRemovalId, confirmedBy) {
      return call(database, "fenceline.confirm_removal($1, $2)", [heldRemovalId, confirmedBy]);
    },
  });
}

function faultsToKeep(faults: readonly ListedFault[]): string {
  return JSON.stringify(faults.map(({ uri, code, message }) => ({ uri, code, message })));
}

const RECORD_SCAN_PAGE =
  "fenceline.record_scan_page($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";

/** What the last part of a page says of the whole: cursor, digest of the page, whether the list ends, snapshot id. */
function endOfPage({ cursorDigest, nextCursorDigest, entries, pageDigest, snapshotIdDigest }: ScanPageRecord) {
  const page = createHash("sha256").update(nextCursorDigest ?? "");
  if (pageDigest) page.update(pageDigest);
  for (const { uri, descriptorDigest } of entries) {
    page
      .update(createHash("sha256").update(uri).digest())
      .update(createHash("sha256").update(descriptorDigest).digest());
  }
  return [
    Buffer.from(cursorDigest),
    page.digest(),
    nextCursorDigest === undefined ? null : nextCursorDigest === null,
    snapshotIdDigest === undefined ? null : Buffer.from(snapshotIdDigest),
  ];
}

/** A template is identified by its text alone: what a variable stands for is not ours to fold. */
function entryColumns(entries: readonly ScanEntry[], list: "resources" | "templates") {
  return [
    entries.map((entry) => entry.uri),
    entries.map(({ uri }) => keyDigest(list === "resources" ? resourceKey(uri) : uri)),
    entries.map((entry) => entry.name ?? null),
    entries.map((entry) => entry.title ?? null),
    entries.map((entry) => entry.mimeType ?? null),
    entries.map((entry) => Buffer.from(entry.descriptorDigest)),
    entries.map((entry) => entry.uriTemplate ?? null),
  ];
}

type BegunScan =
  | { readonly outcome: "begun"; readonly scan: number }
  | { readonly outcome: "session_lost" | "no_resources_capability" };

interface TemplateRow {
  readonly uri_template: string;
  readonly name: string | null;
  readonly title: string | null;
  readonly mime_type: string | null;
}

interface HeldRemovalRow {
  readonly held_removal_id: number;
  readonly source: string;
  readonly reader: string;
  readonly task: HeldRemoval["task"];
  readonly known: number;
  readonly vanished: number;
  readonly held_at: Date;
  readonly agreed: boolean;
  readonly confirmed_at: Date | null;
}
