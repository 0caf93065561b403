/** One scan: the lists of a source, as far as they are chosen, recorded page by page in the ledger, which decides what it is. */
import { isStorableUri, type RecordedPage, type ScanPageRecord } from "@fenceline/ledger";
import { digestFields, digestText } from "../mcp/canonical-digest.js";
import { type ListedEntry, type ScanEnd, type ScanPage, scanPages } from "../mcp/resource-scan.js";
import { snapshotIdDigest, snapshotIdIn } from "../mcp/snapshot-id.js";
import { expandTemplates } from "../mcp/template-expansion.js";
import type { SourceContext } from "./source-context.js";
import { WalkFaults } from "./walk-faults.js";

export type ListScan =
  | { readonly outcome: "complete" | "proven"; readonly scanId: number }
  /** The snapshot ids of its pages contradict one another, or an earlier scan: the extension is distrusted in this session (S3). */
  | { readonly outcome: "void"; readonly message: string }
  /** Nothing may be concluded from it (S8, S9). */
  | { readonly outcome: "unknown"; readonly reason: string; readonly message: string }
  | { readonly outcome: "session_lost" };

type Stop = Exclude<RecordedPage, "recorded">;

/** In place of the absent cursor that ends a list: what templates stand for follows it. */
const EXPANSION = digestText("cursor", "what the templates stand for");

/** Walks the lists once. */
export class ListWalk {
  readonly faults = new WalkFaults();
  /** Known resources that the list describes such that they are left out from now on. */
  readonly leftOut = new Set<string>();
  #scanId = 0;
  #listed = 0;
  #taken = 0;
  /** Listed templates that are configured. */
  readonly #templates: ListedEntry[] = [];
  #snapshotId: string | undefined;

  /** @param known whether a URI has a subscription */
  constructor(
    private readonly context: SourceContext,
    private readonly known: (uri: string) => boolean,
  ) {}

  async run(): Promise<ListScan> {
    const { ledger, lease, settings } = this.context;
    const begun = await ledger.beginScan(lease.session, {
      templates: this.#hasTemplates,
      budgets: settings.scanBudgets,
    });
    if (begun === "session_lost") return { outcome: "session_lost" };
    if (begun === "no_resources_capability") {
      return {
        outcome: "unknown",
        reason: "capability_absent",
        message: "the server declares no resources capability",
      };
    }
    this.#scanId = begun.scanId;
    const end = await this.#walk();
    return typeof end === "string" ? stoppedByLedger(end) : this.#finish(end);
  }

  get #hasTemplates(): boolean {
    return Object.keys(this.context.choice.templates).length > 0;
  }

  async #finish(end: ScanEnd): Promise<ListScan> {
    const { ledger, lease } = this.context;
    if (end.verdict === "COMPLETE") {
      if (this.#listed > 0 && this.#taken === 0) {
        this.faults.add({ code: "nothing_chosen", message: `Of ${this.#listed} listed resources none is chosen.` });
      }
      const faults = this.faults.problems;
      const outcome = await ledger.finishScan(lease.session, this.#scanId, { complete: true, faults });
      if (outcome === "session_lost") return { outcome };
      if (outcome === "complete" || outcome === "proven") return { outcome, scanId: this.#scanId };
      const message = `the ledger calls the scan ${outcome}`;
      return outcome === "void" ? { outcome, message } : { outcome: "unknown", reason: `scan_${outcome}`, message };
    }
    const { reason, message } = end;
    const faults = this.faults.problems;
    const stop = { complete: false, verdict: "INCOMPLETE", reason, faults } as const;
    const outcome = await ledger.finishScan(lease.session, this.#scanId, stop);
    if (outcome === "void") return { outcome, message: "the ledger calls the scan void" };
    if (reason === "session_lost" || reason === "aborted") return { outcome: "session_lost" };
    return { outcome: "unknown", reason, message };
  }

  /** How the listing ended, or why the ledger took no further page. */
  async #walk(): Promise<ScanEnd | Stop> {
    if (this.#hasTemplates) {
      const end = await this.#walkTemplates();
      if (typeof end === "string" || end.verdict !== "COMPLETE") return end;
    }
    const end = await this.#walkPages("resources", (page) => {
      const { entries, nextCursorDigest } = page;
      this.#listed += entries.length;
      const ends = nextCursorDigest === null && this.#hasTemplates ? EXPANSION : nextCursorDigest;
      return { ...this.#recordOf(page), nextCursorDigest: ends, entries: this.#chosen(entries) };
    });
    if (typeof end === "string" || end.verdict !== "COMPLETE" || !this.#hasTemplates) return end;
    return this.#expand();
  }

  async #walkPages(
    kind: "resources" | "templates",
    recordOf: (page: ScanPage) => ScanPageRecord,
  ): Promise<ScanEnd | Stop> {
    const { connection, settings, signal } = this.context;
    const pages = scanPages(connection, { kind, budgets: settings.scanBudgets, signal });
    let next = pages.next();
    for (let isFirst = true; ; isFirst = false) {
      const step = await next;
      if (step.done) return step.value;
      // The server lists the next page while the ledger records this one.
      next = pages.next();
      const before = this.#snapshotId;
      this.#snapshotId = this.#idIn(step.value.meta);
      if (isFirst && isMoved(before, this.#snapshotId)) return MOVED;
      this.faults.addPage(step.value);
      const recorded = await this.#record(recordOf(step.value));
      if (recorded !== "recorded") return recorded;
    }
  }

  /** A server without templates has none of those that are configured. */
  async #walkTemplates(): Promise<ScanEnd | Stop> {
    const { templates } = this.context.choice;
    const end = await this.#walkPages("templates", (page) => {
      this.#templates.push(...page.entries.filter(({ uri }) => Object.hasOwn(templates, uri)));
      return { ...this.#recordOf(page), list: "templates", entries: page.entries };
    });
    const isNotOffered = typeof end === "object" && end.verdict === "UNKNOWN" && end.reason === "not_offered";
    if (!isNotOffered && (typeof end === "string" || end.verdict !== "COMPLETE")) return end;
    for (const template of Object.keys(templates)) {
      if (this.#templates.some(({ uri }) => uri === template)) continue;
      const message = "The server lists no such template: nothing is read of it.";
      this.faults.add({ uri: template, code: "template_not_listed", message });
    }
    if (!isNotOffered) return end;
    const recorded = await this.#record({
      cursorDigest: digestFields("cursor", [undefined]),
      nextCursorDigest: null,
      list: "templates",
      entries: [],
    });
    return recorded === "recorded" ? { verdict: "COMPLETE" } : recorded;
  }

  /** What the templates stand for comes after what is listed, whose own descriptions count. */
  async #expand(): Promise<ScanEnd | Stop> {
    const { connection, choice, settings, signal } = this.context;
    const templates = this.#templates.map((listed) => ({ listed, values: choice.templates[listed.uri] ?? {} }));
    const pages = expandTemplates(connection, { templates, maxRequests: settings.scanBudgets.pages, signal });
    let cursorDigest = EXPANSION;
    for (let number = 1; ; number += 1) {
      const step = await pages.next();
      if (step.done && step.value.verdict !== "COMPLETE") return step.value;
      const { entries, snapshotIds, truncated } = step.done ? LAST_PAGE : step.value;
      for (const { template, variable } of truncated) {
        const message = `The server completes ${variable} to more values than it gives: the others are not read.`;
        this.faults.add({ uri: template, code: "completions_truncated", message });
      }
      if (connection.capabilities.snapshotId) {
        if (snapshotIds.some((id) => isMoved(this.#snapshotId, id))) return MOVED;
        if (snapshotIds.includes(undefined)) this.#snapshotId = undefined;
      }
      const nextCursorDigest = step.done ? null : digestFields("expansion", [`${number}`]);
      for (const { uri } of entries) if (!isStorableUri(uri)) this.faults.refuse(uri);
      const chosen = this.#chosen(entries.filter(({ uri }) => isStorableUri(uri)));
      const recorded = await this.#record({ cursorDigest, nextCursorDigest, entries: chosen, ...this.#binds() });
      if (recorded !== "recorded") return recorded;
      if (nextCursorDigest === null) return { verdict: "COMPLETE" };
      cursorDigest = nextCursorDigest;
    }
  }

  #chosen(entries: readonly ListedEntry[]): ListedEntry[] {
    const { choice } = this.context;
    const chosen = entries.filter((entry) => choice.takes(entry));
    if (chosen.length < entries.length) {
      for (const entry of entries) if (this.known(entry.uri) && !choice.takes(entry)) this.leftOut.add(entry.uri);
    }
    this.#taken += chosen.length;
    return chosen;
  }

  #recordOf({ cursorDigest, nextCursorDigest, pageDigest }: ScanPage) {
    return { cursorDigest, nextCursorDigest, pageDigest, ...this.#binds() };
  }

  #idIn(meta: ScanPage["meta"]): string | undefined {
    return this.context.connection.capabilities.snapshotId ? snapshotIdIn(meta) : undefined;
  }

  #binds(): Pick<ScanPageRecord, "snapshotIdDigest"> {
    if (this.#snapshotId === undefined) return {};
    return { snapshotIdDigest: snapshotIdDigest(this.#snapshotId, this.context.choice.digest) };
  }

  async #record(page: ScanPageRecord): Promise<RecordedPage> {
    const { ledger, lease, onProgress } = this.context;
    const recorded = await ledger.recordScanPage(lease.session, this.#scanId, page);
    onProgress({ phase: "scan", done: this.#taken, total: this.#taken });
    return recorded;
  }
}

const LAST_PAGE = { entries: [], snapshotIds: [], truncated: [] };

/** From one list to the next, or to completions, the state may change, and no id contradicts another: the walk begins anew. */
const MOVED: ScanEnd = {
  verdict: "UNKNOWN",
  reason: "snapshot_moved",
  message: "the state of the lists changed from one of them to the next",
};

function isMoved(before: string | undefined, after: string | undefined): boolean {
  return before !== undefined && after !== undefined && before !== after;
}

function stoppedByLedger(stop: Stop): ListScan {
  if (stop === "session_lost" || stop === "scan_ended") return { outcome: "session_lost" };
  return { outcome: "unknown", reason: stop, message: `the ledger ended the scan: ${stop}` };
}
