import type { EmbeddingsInterface } from "@langchain/core/embeddings";
import { connectorError } from "../errors.js";
import { pause, unlessAborted } from "./deadline.js";

const BATCH = 64;
/** Waits before the second and third attempt. LangChain's own clients retry inside each of them. */
const RETRY_AFTER_MS = [250, 1_000];

/**
 * Embeds each distinct text once, in batches, each of which is tried three times.
 *
 * @param dimensions length that every vector must have; `undefined`: that of the first one
 * @throws {FencelineError} `embeddings_failed`, `embeddings_mismatch`, `request_aborted`
 */
export async function embedTexts(
  embeddings: EmbeddingsInterface,
  texts: readonly string[],
  options: { readonly dimensions: number | undefined; readonly signal: AbortSignal | undefined },
): Promise<Map<string, readonly number[]>> {
  const distinct = [...new Set(texts)];
  const vectors = new Map<string, readonly number[]>();
  let { dimensions } = options;
  for (let start = 0; start < distinct.length; start += BATCH) {
    const batch = distinct.slice(start, start + BATCH);
    const embedded = await embedBatch(embeddings, batch, options.signal);
    dimensions ??= embedded[0]?.length ?? 0;
    assertUsable(embedded, batch.length, dimensions);
    batch.forEach((text, position) => {
      vectors.set(text, embedded[position] as number[]);
    });
  }
  return vectors;
}

async function embedBatch(
  embeddings: EmbeddingsInterface,
  batch: string[],
  signal: AbortSignal | undefined,
): Promise<number[][]> {
  for (const retryAfterMs of [...RETRY_AFTER_MS, undefined]) {
    try {
      return await unlessAborted(signal, () => embeddings.embedDocuments(batch));
    } catch (error) {
      if (signal?.aborted) throw error;
      if (retryAfterMs === undefined) {
        const reason = error instanceof Error ? error.message : String(error);
        throw connectorError("embeddings_failed", `The embedding model failed: ${reason}`, { cause: error });
      }
      await pause(retryAfterMs, signal);
    }
  }
  return [];
}

function assertUsable(vectors: readonly (readonly number[])[], count: number, dimensions: number): void {
  if (vectors.length !== count) {
    throw connectorError(
      "embeddings_mismatch",
      `The embedding model answered ${count} texts with ${vectors.length} vectors.`,
    );
  }
  const wrong = vectors.find((vector) => vector.length !== dimensions || vector.length === 0);
  if (wrong) {
    throw connectorError(
      "embeddings_mismatch",
      `The embedding model answered with ${wrong.length} dimensions where ${dimensions} were expected: ` +
        "another model needs a new index version.",
    );
  }
  if (vectors.some((vector) => !vector.every(Number.isFinite))) {
    throw connectorError("embeddings_mismatch", "The embedding model answered with something that is not a number.");
  }
}
