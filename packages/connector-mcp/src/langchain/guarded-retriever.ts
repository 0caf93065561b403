/**
 * A retriever that shows an asker what the asker may see, and nothing else.
 *
 * 1. The ledger is asked after the store, about every entry of the answer, in one query: a revocation that replied
 *    before the retrieval began is seen, whatever the store still holds (P2).
 * 2. No record, not visible by G2, no asker, no ledger: no answer, never an unguarded one.
 * 3. The asker is never kept on the instance: one retriever serves many askers at once.
 * 4. A newer version known to exist means that the old one is not shown as current (§9).
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { assert, type Freshness, type VisibilityLedger, type VisibleEntry } from "@fenceline/ledger";
import { Document, type DocumentInterface } from "@langchain/core/documents";
import type { EmbeddingsInterface } from "@langchain/core/embeddings";
import { BaseRetriever, type BaseRetrieverInput } from "@langchain/core/retrievers";
import { ensureConfig, type RunnableConfig } from "@langchain/core/runnables";
import { connectorError } from "../errors.js";
import type { BoundedStore } from "./bounded-store.js";
import { pause, unlessAborted } from "./deadline.js";
import type { StoreFilter, StoreHit } from "./store-adapter.js";

/**
 * What to do with content whose newer version is known but not yet here (§9): leave it out, show it marked, or wait for
 * the new version at most so long and leave out what is still old then (2000 ms is a sensible wait).
 */
export type FreshnessPolicy = "exclude_changed" | "mark" | { readonly waitMs: number };

export interface RetrievalOptions extends BaseRetrieverInput {
  /** Documents per answer. Default 4. */
  readonly k?: number;
  /** Entries to look at for one answer at most. Default 256. */
  readonly maxCandidates?: number;
  /** Default `exclude_changed`. */
  readonly freshness?: FreshnessPolicy;
  /** Leaves out what the source last confirmed longer ago. Default: shown, with its age. */
  readonly maxStalenessMs?: number;
  /** Narrows the search, in the store's own form. It cannot widen what the asker may see. */
  readonly filter?: StoreFilter;
}

export interface GuardedRetrieverOptions extends RetrievalOptions {
  readonly ledger: VisibilityLedger;
  /** Name of the index that the entries belong to. */
  readonly index: string;
  readonly store: BoundedStore;
  /** Those that the index was written with. */
  readonly embeddings: EmbeddingsInterface;
}

/** One entry that the asker may see. */
export interface GuardedHit {
  readonly id: string;
  readonly text: string;
  /** As the store measures it. */
  readonly score: number;
  /** URI of the part it was made from. */
  readonly uri: string;
  readonly source: string;
  /** The version it stands for now. */
  readonly lineageId: string;
  readonly freshness: Freshness;
  /** When the source last confirmed it. */
  readonly verifiedAt: Date | undefined;
  /** Milliseconds since then, by the ledger's clock. */
  readonly ageMs: number | undefined;
  /** As written to the store. */
  readonly metadata: Readonly<Record<string, unknown>>;
}

export interface GuardedSearchResult {
  readonly hits: readonly GuardedHit[];
  /** Fewer than `k`, though there may be more: `maxCandidates` were looked at. */
  readonly truncated: boolean;
}

/** Metadata of the documents that {@link GuardedRetriever.invoke} answers with. */
export interface GuardedMetadata extends Record<string, unknown> {
  source: string;
  uri: string;
  lineageId: string;
  freshness: Freshness;
  /** ISO 8601, or null where no read ever confirmed it. */
  verifiedAt: string | null;
  /** Milliseconds since then, by the ledger's clock; null as above. */
  ageMs: number | null;
  score: number;
  /** As of {@link GuardedSearchResult}. */
  truncated: boolean;
}

interface Request {
  readonly asker: readonly string[];
  readonly signal: AbortSignal | undefined;
}

/** Between two looks at whether the new version has come. */
const LOOK_AGAIN_MS = 50;

/**
 * A LangChain retriever. The asker comes with each call, in `configurable`, which tracers do not record:
 *
 * ```ts
 * await retriever.invoke("what does basic cost?", { configurable: { asker: ["user:alice", "group:sales"] } });
 * ```
 */
export class GuardedRetriever extends BaseRetriever<GuardedMetadata> {
  lc_namespace = ["fenceline", "retrievers"];
  readonly #options: GuardedRetrieverOptions;
  readonly #k: number;
  readonly #maxCandidates: number;
  readonly #request = new AsyncLocalStorage<Request>();

  constructor(options: GuardedRetrieverOptions) {
    const { callbacks, tags, metadata, verbose } = options;
    super({
      ...(callbacks && { callbacks }),
      ...(tags && { tags }),
      ...(metadata && { metadata }),
      ...(verbose !== undefined && { verbose }),
    });
    this.#options = options;
    this.#k = checkedCount("k", options.k ?? 4);
    this.#maxCandidates = checkedCount("maxCandidates", options.maxCandidates ?? 256);
  }

  static override lc_name(): string {
    return "GuardedRetriever";
  }

  /**
   * The visible documents nearest to the question, best first, with {@link GuardedMetadata}.
   *
   * @param config `configurable.asker`: the user (or service) first, then its groups
   * @throws {FencelineError} `asker_missing`, `request_aborted`, `store_failed`, `store_timeout`, `embeddings_failed`,
   * and those of the ledger
   */
  override async invoke(query: string, config?: RunnableConfig): Promise<DocumentInterface<GuardedMetadata>[]> {
    // Also finds what a surrounding chain was called with, where LangChain hands it down.
    const { configurable, signal } = ensureConfig(config);
    const { asker } = configurable ?? {};
    const request = { asker: checkedAsker(asker), signal };
    return this.#request.run(request, () => unlessAborted(signal, () => super.invoke(query, config)));
  }

  /** Called by `invoke`, which knows the asker. By itself it fails with `asker_missing`. */
  override async _getRelevantDocuments(query: string): Promise<DocumentInterface<GuardedMetadata>[]> {
    const request = this.#request.getStore();
    const { hits, truncated } = await this.search(query, {
      asker: checkedAsker(request?.asker),
      ...(request?.signal && { signal: request.signal }),
    });
    return hits.map((hit) => toDocument(hit, truncated));
  }

  /**
   * As `invoke`, without LangChain's callbacks, and telling whether the search stopped short.
   *
   * @throws {FencelineError} as `invoke`
   */
  async search(
    query: string,
    options: { readonly asker: readonly string[]; readonly k?: number; readonly signal?: AbortSignal },
  ): Promise<GuardedSearchResult> {
    const asker = checkedAsker(options.asker);
    const { signal } = options;
    const k = checkedCount("k", options.k ?? this.#k);
    const { freshness = "exclude_changed" } = this.#options;
    const vector = await unlessAborted(signal, () => this.#embed(query));
    const look = () => unlessAborted(signal, () => this.#fill(vector, k, asker));
    const deadline = performance.now() + (typeof freshness === "object" ? freshness.waitMs : 0);
    let found = await look();
    while (typeof freshness === "object" && found.changed && performance.now() < deadline) {
      await pause(Math.min(LOOK_AGAIN_MS, deadline - performance.now()), signal);
      found = await look();
    }
    return { hits: found.hits, truncated: found.truncated };
  }

  /** Asks for more candidates until `k` of them are visible. `changed`: a better answer is on its way. */
  async #fill(
    vector: readonly number[],
    k: number,
    asker: readonly string[],
  ): Promise<GuardedSearchResult & { changed: boolean }> {
    const { store, filter } = this.#options;
    const maxCandidates = Math.max(this.#maxCandidates, k);
    let candidates = Math.min(2 * k + 4, maxCandidates);
    let repeated = false;
    while (true) {
      const found = await store.search(vector, candidates, filter);
      const visible = await this.#visible(found, asker);
      const shown = visible.filter((hit) => this.#isShown(hit));
      const exhausted = found.length < candidates;
      if (shown.length < k && !exhausted && candidates < maxCandidates) {
        candidates = Math.min(2 * candidates, maxCandidates);
        continue;
      }
      if (shown.length < k && exhausted && visible.length < found.length && !repeated) {
        // A new version may have taken over between the store's answer and the ledger's: then its entries are there now.
        repeated = true;
        continue;
      }
      const hits = shown.slice(0, k);
      const last = hits.length < k ? undefined : hits.at(-1);
      const ahead = last === undefined ? visible : visible.slice(0, visible.indexOf(last));
      return {
        hits,
        truncated: hits.length < k && !exhausted,
        changed: ahead.some(({ freshness }) => freshness === "changed"),
      };
    }
  }

  /** One query for the whole answer of the store, those seen in an earlier round included. */
  async #visible(found: readonly StoreHit[], asker: readonly string[]): Promise<GuardedHit[]> {
    const { ledger, index } = this.#options;
    const entryIds = [...new Set(found.flatMap(({ id }) => (id === undefined ? [] : [id])))];
    if (entryIds.length === 0) return [];
    const entries = await ledger.visibleEntries({ index, entryIds, asker });
    const byId = new Map(entries.map((entry) => [entry.entryId, entry]));
    const hits: GuardedHit[] = [];
    for (const hit of found) {
      const entry = hit.id === undefined ? undefined : byId.get(hit.id);
      if (entry === undefined) continue;
      hits.push(toHit(hit, entry));
      byId.delete(entry.entryId); // a store that answers with an entry twice
    }
    return hits;
  }

  #isShown({ freshness, ageMs }: GuardedHit): boolean {
    const { freshness: policy = "exclude_changed", maxStalenessMs } = this.#options;
    if (freshness === "changed" && policy !== "mark") return false;
    if (maxStalenessMs === undefined) return true;
    return ageMs !== undefined && ageMs <= maxStalenessMs;
  }

  async #embed(query: string): Promise<number[]> {
    try {
      return await this.#options.embeddings.embedQuery(query);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw connectorError("embeddings_failed", `The embedding model failed: ${reason}`, { cause: error });
    }
  }
}

/** With less than one the end of a list would be cut off, and all before it shown. */
function checkedCount(name: string, count: number): number {
  assert(Number.isSafeInteger(count) && count > 0, `${name} is a whole number above 0, not ${count}.`);
  return count;
}

function checkedAsker(asker: unknown): readonly string[] {
  if (Array.isArray(asker) && asker.length > 0 && asker.every((name) => typeof name === "string" && name !== "")) {
    return asker;
  }
  throw connectorError(
    "asker_missing",
    'Whoever asks must be named: { configurable: { asker: ["user:alice", "group:sales"] } }. Without it nothing is shown.',
  );
}

function toHit({ pageContent, metadata, score }: StoreHit, entry: VisibleEntry): GuardedHit {
  const { entryId, uri, source, lineageId, freshness, verifiedAt, ageMs } = entry;
  return { id: entryId, text: pageContent, score, uri, source, lineageId, freshness, verifiedAt, ageMs, metadata };
}

function toDocument(hit: GuardedHit, truncated: boolean): Document<GuardedMetadata> {
  const { id, text, score, uri, source, lineageId, freshness } = hit;
  const verified = { verifiedAt: hit.verifiedAt?.toISOString() ?? null, ageMs: hit.ageMs ?? null };
  const told = { uri, source, lineageId, freshness, ...verified, score, truncated };
  return new Document({ id, pageContent: text, metadata: { ...hit.metadata, ...told } });
}
