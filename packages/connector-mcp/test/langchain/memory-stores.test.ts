import { adaptVectorStore, storeAdapterOf } from "#src/langchain/store-adapter.js";
import { KeyAssigningStore, MemoryStore } from "./memory-stores.js";
import { describeStoreAdapter } from "./store-conformance.js";

const close = async () => {};

describeStoreAdapter("in memory, by our ids", async () => {
  const store = new MemoryStore();
  return { adapter: storeAdapterOf(store), again: async () => storeAdapterOf(store), close };
});

describeStoreAdapter("in memory, by keys of its own", async () => {
  const store = new KeyAssigningStore();
  return { adapter: adaptVectorStore(store, store), again: async () => adaptVectorStore(store, store), close };
});
