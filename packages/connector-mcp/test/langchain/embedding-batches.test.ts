import type { EmbeddingsInterface } from "@langchain/core/embeddings";
import { describe, expect, test } from "vitest";
import { embedTexts } from "#src/langchain/embedding-batches.js";

class CountingEmbeddings implements EmbeddingsInterface {
  readonly batches: number[] = [];
  failures = 0;
  answer = (text: string): number[] => [text.length, 1];

  async embedDocuments(texts: string[]): Promise<number[][]> {
    this.batches.push(texts.length);
    if (this.failures-- > 0) throw new TypeError("overloaded");
    return texts.map(this.answer);
  }

  async embedQuery(text: string): Promise<number[]> {
    return this.answer(text);
  }
}

const embed = (embeddings: EmbeddingsInterface, texts: string[], signal?: AbortSignal) =>
  embedTexts(embeddings, texts, { dimensions: 2, signal });

describe("embedding in batches", () => {
  test("each distinct text is embedded once, in batches of 64", async () => {
    const embeddings = new CountingEmbeddings();
    const texts = Array.from({ length: 150 }, (_, n) => `text ${n % 100}`);
    const vectors = await embed(embeddings, texts);
    expect(embeddings.batches).toEqual([64, 36]);
    expect(vectors.get("text 99")).toEqual([7, 1]);
  });

  test("a model that fails for a moment is asked again", async () => {
    const embeddings = new CountingEmbeddings();
    embeddings.failures = 1;
    expect((await embed(embeddings, ["a"])).get("a")).toEqual([1, 1]);
    expect(embeddings.batches).toEqual([1, 1]);
  });

  test("a model that keeps failing ends with its error as the cause", async () => {
    const embeddings = new CountingEmbeddings();
    embeddings.failures = 99;
    await expect(embed(embeddings, ["a"])).rejects.toMatchObject({
      code: "embeddings_failed",
      cause: expect.any(TypeError) as unknown,
    });
    expect(embeddings.batches).toHaveLength(3);
  });

  test.each([
    ["another length", () => [1, 2, 3]],
    ["no numbers", () => []],
    ["not a number", () => [Number.NaN, 1]],
  ])("vectors with %s are refused", async (_what, answer) => {
    const embeddings = new CountingEmbeddings();
    embeddings.answer = answer;
    await expect(embed(embeddings, ["a"])).rejects.toMatchObject({ code: "embeddings_mismatch" });
  });

  test("fewer vectors than texts are refused", async () => {
    const embeddings = new CountingEmbeddings();
    embeddings.embedDocuments = async () => [[1, 1]];
    await expect(embed(embeddings, ["a", "b"])).rejects.toMatchObject({ code: "embeddings_mismatch" });
  });

  test("a signal ends the wait for a model that does not answer", async () => {
    const embeddings = new CountingEmbeddings();
    const abort = new AbortController();
    embeddings.embedDocuments = () => {
      abort.abort();
      return new Promise(() => {});
    };
    await expect(embed(embeddings, ["a"], abort.signal)).rejects.toMatchObject({ code: "request_aborted" });
  });
});
