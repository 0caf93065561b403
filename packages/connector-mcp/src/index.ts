export type { FencelineConfig, FencelineConfigInput, QueueAddress } from "./config/config-schema.js";
export { configSchema } from "./config/config-schema.js";
export { defineConfig, loadConfig } from "./config/load-config.js";
export type { ConnectorErrorCode } from "./errors.js";
export type { ConfirmedChanges } from "./jobs/changed-sources.js";
export { type OpenIndex, openIndex } from "./jobs/configured-indexes.js";
export {
  type DiscoveryPayload,
  discoveryPayload,
  type IndexPayload,
  indexPayload,
  type PurgePayload,
  purgePayload,
  type ReadPayload,
  type RevokePayload,
  readPayload,
  revokePayload,
} from "./jobs/payloads.js";
export { queueName } from "./jobs/queues.js";
export { startWorkers } from "./jobs/worker-pool.js";
export type {
  PoolMode,
  PoolProgress,
  PoolStats,
  SourceProblem,
  SourceStats,
  WorkerPool,
  WorkerPoolOptions,
} from "./jobs/worker-pool-options.js";
export { EmbeddedVectorStore, type EmbeddedVectorStoreOptions } from "./langchain/embedded-vector-store.js";
export {
  type FreshnessPolicy,
  type GuardedHit,
  type GuardedMetadata,
  GuardedRetriever,
  type GuardedSearchResult,
  type RetrievalOptions,
} from "./langchain/guarded-retriever.js";
export { HashedLexicalEmbeddings } from "./langchain/hashed-lexical-embeddings.js";
export { LineageIndex, type LineageIndexOptions } from "./langchain/lineage-index.js";
export { type PurgeResult, purgeStore } from "./langchain/purge.js";
export { McpResourceLoader, type McpResourceLoaderOptions } from "./langchain/resource-loader.js";
export {
  adaptVectorStore,
  type StoreAdapter,
  type StoreEntry,
  type StoreHit,
  type VectorStoreLookup,
} from "./langchain/store-adapter.js";
export type { StoreComparison } from "./langchain/store-comparison.js";
export type { ContentDetector, DetectorReport } from "./mcp/content-guard.js";
