/** The indexes of a configuration, with their stores, embeddings, text extraction and guard put together. */
import { type Database, type Ledger, openDatabase } from "@fenceline/ledger";
import type { EmbeddingsInterface } from "@langchain/core/embeddings";
import type { VectorStoreInterface } from "@langchain/core/vectorstores";
import { chosenIndex } from "../config/chosen-index.js";
import type { FencelineConfig, IndexConfig } from "../config/config-schema.js";
import { EmbeddedVectorStore } from "../langchain/embedded-vector-store.js";
import type { GuardedRetriever, RetrievalOptions } from "../langchain/guarded-retriever.js";
import { HashedLexicalEmbeddings } from "../langchain/hashed-lexical-embeddings.js";
import { LineageIndex } from "../langchain/lineage-index.js";
import type { StoreAdapter } from "../langchain/store-adapter.js";
import type { StoreComparison } from "../langchain/store-comparison.js";
import { guardTextBy, partToText } from "./content-path.js";

/**
 * An index that is opened when first used: a store that is down then does not keep the others from starting, and is
 * tried again with every use.
 */
export class ConfiguredIndex {
  /** The store's name in the ledger: the same for every index that lives in it. No credentials. */
  readonly storeName: string;
  readonly version: number;
  #opened: Promise<{ index: LineageIndex; database: Database | undefined }> | undefined;

  constructor(
    readonly name: string,
    private readonly config: IndexConfig,
    private readonly ledger: Ledger,
    private readonly guard: FencelineConfig["guard"],
  ) {
    this.storeName = storeNameOf(name, config.store);
    this.version = config.version;
  }

  /** @throws {FencelineError} those of the store's database */
  async open(): Promise<LineageIndex> {
    this.#opened ??= this.#open().catch((error: unknown) => {
      this.#opened = undefined;
      throw error;
    });
    return (await this.#opened).index;
  }

  /** Closes what was opened for it. Never rejects. */
  async close(): Promise<void> {
    const opened = await this.#opened?.catch(() => undefined);
    await opened?.database?.close().catch(() => undefined);
  }

  async #open(): Promise<{ index: LineageIndex; database: Database | undefined }> {
    const { config, ledger, name, storeName } = this;
    const embeddings = embeddingsOf(config);
    const { store, database } = await this.#openStore(embeddings);
    const index = new LineageIndex({
      ledger,
      name,
      version: config.version,
      vectorStore: store,
      storeName,
      embeddings,
      chunkSize: { chunkSize: config.chunkSize, chunkOverlap: config.chunkOverlap },
      partToText,
      guard: guardTextBy(this.guard),
      ...(config.embeddingsName !== undefined && { embeddingsName: config.embeddingsName }),
      ...(config.splitter && { splitter: config.splitter }),
    });
    return { index, database };
  }

  async #openStore(
    embeddings: EmbeddingsInterface,
  ): Promise<{ store: StoreAdapter | VectorStoreInterface; database: Database | undefined }> {
    const { store, version } = this.config;
    const collection = `${this.name}@${version}`;
    if (store === "embedded") {
      const { database, schema } = this.ledger;
      return { store: new EmbeddedVectorStore(embeddings, { database, schema, collection }), database: undefined };
    }
    if (!("address" in store)) return { store: store as StoreAdapter | VectorStoreInterface, database: undefined };
    const database = await openDatabase(store.address);
    return { store: new EmbeddedVectorStore(embeddings, { database, collection }), database };
  }
}

/** Every index of the configuration, none of them opened yet. */
export function configuredIndexes(config: FencelineConfig, ledger: Ledger): ConfiguredIndex[] {
  return Object.entries(config.indexes).map(([name, index]) => new ConfiguredIndex(name, index, ledger, config.guard));
}

/** An index to ask. */
export interface OpenIndex {
  asRetriever(options?: RetrievalOptions): GuardedRetriever;
  /** Compares what its store holds with what the ledger records of it, both ways. */
  compare(): Promise<StoreComparison>;
  close(): Promise<void>;
}

/**
 * Opens one of the configured indexes to ask it something.
 *
 * @param options.name default: the only one
 * @throws {FencelineError} `index_unknown`, and those of the store's database
 */
export async function openIndex(options: {
  readonly config: FencelineConfig;
  readonly ledger: Ledger;
  readonly name?: string;
}): Promise<OpenIndex> {
  const { config, ledger } = options;
  const name = chosenIndex(config, options.name);
  const configured = new ConfiguredIndex(name, config.indexes[name] as IndexConfig, ledger, config.guard);
  const opened = await configured.open();
  return {
    asRetriever: (retrieval) => opened.asRetriever(retrieval),
    compare: () => opened.compare(),
    close: () => configured.close(),
  };
}

function embeddingsOf({ embeddings }: IndexConfig): EmbeddingsInterface {
  return embeddings === "local" ? new HashedLexicalEmbeddings() : embeddings;
}

function storeNameOf(index: string, store: IndexConfig["store"]): string {
  if (store === "embedded") return store;
  if (!("address" in store)) return index;
  if (!URL.canParse(store.address) || store.address.startsWith("file:")) return `pgvector ${store.address}`;
  const { host, pathname } = new URL(store.address);
  return `pgvector ${host}${pathname}`;
}
