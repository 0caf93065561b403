/** In-memory LangChain vector stores: one that keeps its promises, and some that break one each. */
import { Document, type DocumentInterface } from "@langchain/core/documents";
import type { EmbeddingsInterface } from "@langchain/core/embeddings";
import { VectorStore } from "@langchain/core/vectorstores";
import { HashedLexicalEmbeddings } from "#src/langchain/hashed-lexical-embeddings.js";

interface Row {
  key: string;
  document: DocumentInterface;
  vector: number[];
}

/** Heeds ids, deletes by them, says what it holds, counts calls. */
export class MemoryStore extends VectorStore {
  declare FilterType: object;
  readonly rows = new Map<string, Row>();
  written = 0;
  /** Runs before each call; what it throws, the call throws. */
  onCall: (call: "write" | "delete" | "present" | "search") => void | Promise<void> = () => {};

  constructor(embeddings: EmbeddingsInterface = new HashedLexicalEmbeddings()) {
    super(embeddings, {});
  }

  override _vectorstoreType(): string {
    return "memory";
  }

  override async addDocuments(documents: DocumentInterface[], options?: { ids?: string[] }): Promise<string[]> {
    const vectors = await this.embeddings.embedDocuments(documents.map(({ pageContent }) => pageContent));
    return this.addVectors(vectors, documents, options);
  }

  override async addVectors(vectors: number[][], documents: DocumentInterface[], options?: { ids?: string[] }) {
    await this.onCall("write");
    return documents.map((document, position) => {
      const key = this.keyFor(options?.ids?.[position] ?? document.id ?? crypto.randomUUID());
      this.rows.set(key, { key, document, vector: vectors[position] ?? [] });
      this.written += 1;
      return key;
    });
  }

  override async delete(params?: { ids?: string[] }): Promise<void> {
    await this.onCall("delete");
    for (const key of params?.ids ?? []) this.rows.delete(key);
  }

  async present(keys: readonly string[]): Promise<string[]> {
    await this.onCall("present");
    return keys.filter((key) => this.rows.has(key));
  }

  override async similaritySearchVectorWithScore(query: number[], k: number): Promise<[Document, number][]> {
    await this.onCall("search");
    const scored = [...this.rows.values()].map(({ document, vector }): [Document, number] => [
      new Document(document),
      vector.reduce((sum, value, position) => sum + value * (query[position] ?? 0), 0),
    ]);
    return scored.sort(([, left], [, right]) => right - left).slice(0, k);
  }

  protected keyFor(id: string): string {
    return id;
  }
}

/** Ignores the ids it is given, as LangChain's own in-memory store does, and tells nobody. */
export class IdIgnoringStore extends MemoryStore {
  override async addVectors(vectors: number[][], documents: DocumentInterface[]) {
    return super
      .addVectors(
        vectors,
        documents.map(({ pageContent, metadata }) => ({ pageContent, metadata })),
        { ids: documents.map(() => crypto.randomUUID()) },
      )
      .then(() => []);
  }
}

/** Assigns its own keys, as stores with row numbers do, and finds an entry by our id. */
export class KeyAssigningStore extends MemoryStore {
  #next = 1;

  protected override keyFor(): string {
    return `row-${this.#next++}`;
  }

  async locate(ids: readonly string[]): Promise<{ id: string; key: string }[]> {
    return [...this.rows.values()].flatMap(({ key, document }) => {
      const { entryId } = document.metadata as { entryId?: string };
      return entryId !== undefined && ids.includes(entryId) ? [{ id: entryId, key }] : [];
    });
  }
}

/** Deletes nothing, without an error. */
export class UndeletingStore extends MemoryStore {
  override async delete(): Promise<void> {}
}

/** Has no way to delete: throws what LangChain's base class throws. */
export class DeletelessStore extends MemoryStore {
  override delete(): Promise<void> {
    return VectorStore.prototype.delete.call(this);
  }
}

/** Deletes everything whatever it is asked to delete. */
export class RecklessStore extends MemoryStore {
  override async delete(): Promise<void> {
    this.rows.clear();
  }
}

/** Fails when it is told to delete what is gone. */
export class PedanticStore extends MemoryStore {
  override async delete(params?: { ids?: string[] }): Promise<void> {
    for (const key of params?.ids ?? []) {
      if (!this.rows.delete(key)) throw new RangeError(`no such id: ${key}`);
    }
  }
}

/** Calls every id present. */
export class BoastfulStore extends MemoryStore {
  override async present(keys: readonly string[]): Promise<string[]> {
    return [...keys];
  }
}
