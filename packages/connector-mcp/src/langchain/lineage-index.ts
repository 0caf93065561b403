import { createHash } from "node:crypto";
import type { AuditLedger, IndexRef, LineageLedger, VisibilityLedger } from "@fenceline/ledger";
import type { EmbeddingsInterface } from "@langchain/core/embeddings";
import type { VectorStoreInterface } from "@langchain/core/vectorstores";
import { connectorError } from "../errors.js";
import { BoundedStore } from "./bounded-store.js";
import { type ChunkSize, DEFAULT_CHUNK_SIZE, type Splitter } from "./chunks.js";
import { GuardedRetriever, type RetrievalOptions } from "./guarded-retriever.js";
import { IndexRun, type IndexRunResult } from "./index-run.js";
import { IndexWriter } from "./index-writer.js";
import { probeStore } from "./probe-store.js";
import { type StoreAdapter, storeAdapterOf } from "./store-adapter.js";
import { compareStore, type StoreComparison } from "./store-comparison.js";
import type { TextPorts } from "./version-texts.js";

/** Claim of a version, renewed while it is worked on: the longest that one is not indexed after its worker was killed. */
const LEASE_MS = 10_000;
/** Versions claimed at once: their bodies are in memory. */
const CLAIM = 32;

export interface LineageIndexOptions extends TextPorts {
  readonly ledger: LineageLedger & VisibilityLedger & Pick<AuditLedger, "recordedEntries" | "standingOfEntries">;
  /** Name of the index, as retrievers and `query` know it. */
  readonly name: string;
  /** Raised to have the index built anew beside the serving one. Default 1. */
  readonly version?: number;
  /** A LangChain vector store that has a `present` method, or an adapter of any other. */
  readonly vectorStore: StoreAdapter | VectorStoreInterface;
  /** Name of the store in the ledger, shared by all indexes that live in it. Default: the index's own name. */
  readonly storeName?: string;
  readonly embeddings: EmbeddingsInterface;
  /** Versioned name of the embedding space. Default: what the embeddings call it (`embeddingSpace`, `model`), or their class. */
  readonly embeddingsName?: string;
  /** Default: by MIME type, with `chunkSize`. */
  readonly splitter?: Splitter;
  /** In characters; default 1000 with an overlap of 100. Without effect where a splitter is given. */
  readonly chunkSize?: ChunkSize;
  /** Whatever else decides about the chunks: a splitter's or guard's settings. A change of it needs a new version. */
  readonly configuration?: string;
  /** Claim of a version, in milliseconds; half of it is the store's time for one call. Default, and at most, 10 s. */
  readonly leaseMs?: number;
}

/** An index fed with accepted versions from the ledger. Any number of processes may feed the same one. */
export class LineageIndex {
  readonly name: string;
  readonly version: number;
  readonly storeName: string;
  /** The store with batches and deadlines, as `purgeStore` takes it. */
  readonly store: BoundedStore;
  readonly #options: LineageIndexOptions;
  readonly #adapter: StoreAdapter;
  readonly #leaseMs: number;
  #registered: Promise<{ ref: IndexRef; writer: IndexWriter }> | undefined;

  /** @throws {FencelineError} `store_unsuitable` for a store that cannot say which ids it holds */
  constructor(options: LineageIndexOptions) {
    this.#options = options;
    this.name = options.name;
    this.version = options.version ?? 1;
    this.storeName = options.storeName ?? options.name;
    this.#leaseMs = options.leaseMs ?? LEASE_MS;
    this.#adapter = storeAdapterOf(options.vectorStore);
    // A write that is still running when its lease ends could put an entry where the purge just looked.
    this.store = new BoundedStore(this.#adapter, { timeoutMs: Math.floor(this.#leaseMs / 2) });
  }

  /**
   * Probes the store, then records store and index in the ledger. Once per instance; `indexDue` calls it by itself.
   *
   * @throws {FencelineError} `store_unsuitable`, `store_failed`, `store_timeout`, `pgvector_missing`,
   * `embeddings_failed`, and those of the ledger
   */
  async register(): Promise<IndexRef> {
    return (await this.#registration()).ref;
  }

  /**
   * Indexes what is due, until nothing is or the signal is given. What fails is handed back with its reason and tried
   * again later; it stops the others only when the store does not answer at all.
   *
   * @param options.limit versions to claim at most; default all
   * @throws {FencelineError} as `register`, and those of the ledger
   */
  async indexDue(options: { readonly signal?: AbortSignal; readonly limit?: number } = {}): Promise<IndexRunResult> {
    const { ref, writer } = await this.#registration();
    const { ledger, splitter, chunkSize = DEFAULT_CHUNK_SIZE, partToText, guard } = this.#options;
    const run = new IndexRun({
      ledger,
      ref,
      writer,
      leaseMs: this.#leaseMs,
      signal: options.signal,
      planning: {
        digestChunk: (text) => ledger.digestChunk(text),
        splitter,
        chunkSize,
        ...(partToText && { partToText }),
        ...(guard && { guard }),
      },
    });
    let left = options.limit ?? Number.POSITIVE_INFINITY;
    while (left > 0 && !run.stopped) {
      const claimed = await run.indexPage(Math.min(CLAIM, left));
      if (claimed === 0) break;
      left -= claimed;
    }
    return run.result();
  }

  /** A retriever over this index that shows an asker only what the asker may see. */
  asRetriever(options: RetrievalOptions = {}): GuardedRetriever {
    const { ledger, embeddings } = this.#options;
    return new GuardedRetriever({ ...options, ledger, index: this.name, store: this.store, embeddings });
  }

  /** Compares what the store holds with what the ledger records of it, both ways. */
  compare(): Promise<StoreComparison> {
    return compareStore({
      ledger: this.#options.ledger,
      index: this.name,
      storeName: this.storeName,
      store: this.store,
    });
  }

  #registration(): Promise<{ ref: IndexRef; writer: IndexWriter }> {
    this.#registered ??= this.#register().catch((error: unknown) => {
      this.#registered = undefined;
      throw error;
    });
    return this.#registered;
  }

  async #register(): Promise<{ ref: IndexRef; writer: IndexWriter }> {
    const { ledger, embeddings } = this.#options;
    const dimensions = (await this.#embedProbe()).length;
    await probeStore(this.store, dimensions);
    await ledger.registerStore({ name: this.storeName, kind: this.#adapter.kind });
    const ref = await ledger.registerIndex({
      name: this.name,
      version: this.version,
      store: this.storeName,
      embeddings: this.#embeddingsName(),
      configurationDigest: this.#configurationDigest(),
    });
    const writer = new IndexWriter({ ledger, ref, store: this.store, embeddings, dimensions, leaseMs: this.#leaseMs });
    return { ref, writer };
  }

  async #embedProbe(): Promise<number[]> {
    try {
      return await this.#options.embeddings.embedQuery("Which dimensions?");
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw connectorError("embeddings_failed", `The embedding model failed: ${reason}`, { cause: error });
    }
  }

  #embeddingsName(): string {
    const { embeddings, embeddingsName } = this.#options;
    if (embeddingsName !== undefined) return embeddingsName;
    const named = embeddings as { embeddingSpace?: unknown; model?: unknown };
    const name = named.embeddingSpace ?? named.model;
    return typeof name === "string" ? name : embeddings.constructor.name;
  }

  #configurationDigest(): Uint8Array {
    const { chunkSize = DEFAULT_CHUNK_SIZE, splitter, configuration } = this.#options;
    const size = splitter === undefined ? [chunkSize.chunkSize, chunkSize.chunkOverlap] : splitter.constructor.name;
    return createHash("sha256")
      .update(JSON.stringify([this.#embeddingsName(), size, configuration ?? ""]))
      .digest();
  }
}
