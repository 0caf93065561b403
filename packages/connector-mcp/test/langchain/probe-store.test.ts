import { describe, expect, test } from "vitest";
import { BoundedStore } from "#src/langchain/bounded-store.js";
import { probeStore } from "#src/langchain/probe-store.js";
import { adaptVectorStore, storeAdapterOf } from "#src/langchain/store-adapter.js";
import {
  BoastfulStore,
  DeletelessStore,
  IdIgnoringStore,
  KeyAssigningStore,
  MemoryStore,
  PedanticStore,
  RecklessStore,
  UndeletingStore,
} from "./memory-stores.js";

const probe = (store: MemoryStore, timeoutMs = 1_000) =>
  probeStore(new BoundedStore(adaptVectorStore(store, { present: (keys) => store.present(keys) }), { timeoutMs }), 8);

describe("probing a store", () => {
  test("a store that keeps its promises passes and is left as it was", async () => {
    const store = new MemoryStore();
    await probe(store);
    expect(store.rows.size).toBe(0);
  });

  test.each([
    ["ignores the ids it is given", new IdIgnoringStore(), /does not find by id/],
    ["assigns its own keys and cannot find ours", new KeyAssigningStore(), /assigns its own keys/],
    ["keeps what it was told to delete", new UndeletingStore(), /still there after it was deleted/],
    ["cannot delete", new DeletelessStore(), /does not delete by id/],
    ["deletes more than it was told", new RecklessStore(), /deleted another/],
    ["fails on an id that is gone", new PedanticStore(), /deleting an id that is gone/],
    ["calls everything present", new BoastfulStore(), /never written/],
  ])("a store that %s is refused before any content reaches it (P3)", async (_defect, store, reason) => {
    await expect(probe(store)).rejects.toMatchObject({
      code: "store_unsuitable",
      message: expect.stringMatching(reason) as string,
    });
  });

  test("a store that fails is a failure, not unsuitable, and says what it was doing", async () => {
    const store = new MemoryStore();
    store.onCall = (call) => {
      if (call === "write") throw new TypeError("disk full");
    };
    await expect(probe(store)).rejects.toMatchObject({ code: "store_failed", cause: expect.any(TypeError) as unknown });
    await expect(probe(store)).rejects.toThrow(/memory.*write.*disk full/);
  });

  test("a store that does not answer ends at its deadline", async () => {
    const store = new MemoryStore();
    store.onCall = () => new Promise(() => {});
    await expect(probe(store, 20)).rejects.toMatchObject({ code: "store_timeout" });
  });

  test("a vector store that cannot say what it holds is refused when it is named", () => {
    const store = new MemoryStore();
    Object.defineProperty(store, "present", { value: undefined });
    expect(() => storeAdapterOf(store)).toThrow(/cannot say which ids it holds/);
  });
});
