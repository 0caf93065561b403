/**
 * Writes planned versions: record, write, read back, confirm.
 *
 * 1. The record is there before the entry is (L2); what is embedded before it stays in memory.
 * 2. A version becomes visible in one step, by `confirmVersions`, and only after the store showed its entries (L3).
 * 3. What a refused or failed write left in the store is deleted at once where that is possible, and in any case by the
 *    purge path, which looks again when the writer's lease has ended (P3, P4).
 */

import type { ConfirmOutcome, IndexRef, IntendedGroup, LineageLedger } from "@fenceline/ledger";
import type { EmbeddingsInterface } from "@langchain/core/embeddings";
import { connectorError } from "../errors.js";
import { BoundedStore, type EntryRef } from "./bounded-store.js";
import { throwIfAborted } from "./deadline.js";
import { embedTexts } from "./embedding-batches.js";
import type { IndexPlan, NewChunk } from "./index-plan.js";
import type { StoreEntry } from "./store-adapter.js";

export interface WrittenVersion {
  readonly plan: IndexPlan;
  readonly outcome: ConfirmOutcome;
}

export interface IndexWriterOptions {
  readonly ledger: LineageLedger;
  readonly ref: IndexRef;
  readonly store: BoundedStore;
  readonly embeddings: EmbeddingsInterface;
  readonly dimensions: number;
  /** Lease of a write that is one call to the store; each further call adds the store's timeout. */
  readonly leaseMs: number;
}

/** The new chunks of one part of one version: they become one group. */
interface Intent {
  readonly plan: IndexPlan;
  readonly partId: number;
  readonly chunks: readonly NewChunk[];
}

interface IntentGroup extends Intent {
  readonly group: IntendedGroup;
}

export class IndexWriter {
  readonly #options: IndexWriterOptions;

  constructor(options: IndexWriterOptions) {
    this.#options = options;
  }

  /**
   * Writes several versions with as few calls as one takes. Each is confirmed or refused for itself; an error means that
   * none was confirmed, or that nobody knows (the ledger was lost during confirm: then they are claimed again later).
   *
   * @throws {FencelineError} `embeddings_failed`, `embeddings_mismatch`, `store_failed`, `store_timeout`,
   * `store_write_lost`, `request_aborted`, and those of the ledger
   */
  async write(plans: readonly IndexPlan[], signal?: AbortSignal): Promise<WrittenVersion[]> {
    const { ledger, ref, embeddings, dimensions } = this.#options;
    const texts = plans.flatMap(({ added }) => added.map(({ text }) => text));
    const vectors = await embedTexts(embeddings, texts, { dimensions, signal });
    throwIfAborted(signal);
    const groups = await this.#recordIntents(plans);
    const entries = groups.flatMap((group) => entriesOf(group, vectors));
    let refs: EntryRef[] = entries.map(({ id }) => ({ entryId: id }));
    try {
      refs = await this.#writeAndReadBack(entries);
    } catch (error) {
      await this.#giveUp(groups, refs);
      throw error;
    }
    // An error of confirm is not caught: it may have been carried out, and then nothing may be deleted.
    const answers = await ledger.confirmVersions(
      ref,
      plans.map((plan) => ({
        work: plan.work,
        written: groups.filter((group) => group.plan === plan).map(({ group }) => group),
        reused: plan.reused,
      })),
    );
    const outcomes = new Map(answers.map(({ lineageId, outcome }) => [lineageId, outcome]));
    const written = plans.map((plan) => ({ plan, outcome: outcomes.get(plan.work.lineageId) ?? "claim_lost" }));
    await this.#removeRefused(written, groups, refs);
    return written;
  }

  async #recordIntents(plans: readonly IndexPlan[]): Promise<IntentGroup[]> {
    const { ledger, ref, store, leaseMs } = this.#options;
    const intents = plans.flatMap(intentsOf);
    if (intents.length === 0) return [];
    const calls = BoundedStore.callsFor(intents.reduce((sum, { chunks }) => sum + chunks.length, 0));
    const groups = await ledger.recordIntents(
      ref,
      intents.map(({ plan, partId, chunks }) => ({
        work: plan.work,
        partId,
        chunkDigests: chunks.map(({ digest }) => digest),
      })),
      { writerLeaseMs: leaseMs + (calls - 1) * store.timeoutMs },
    );
    return intents.map((intent, position) => ({ ...intent, group: groups[position] as IntendedGroup }));
  }

  async #writeAndReadBack(entries: readonly StoreEntry[]): Promise<EntryRef[]> {
    const { ledger, store } = this.#options;
    if (entries.length === 0) return [];
    const keys = await store.write(entries);
    if (keys.size > 0) {
      await ledger.recordStoreKeys([...keys].map(([entryId, storeKey]) => ({ entryId, storeKey })));
    }
    const refs = entries.map(({ id }) => {
      const storeKey = keys.get(id);
      return storeKey === undefined ? { entryId: id } : { entryId: id, storeKey };
    });
    const present = await store.present(refs);
    const lost = refs.length - present.size;
    if (lost > 0) {
      throw connectorError(
        "store_write_lost",
        `The store ${store.kind} does not show ${lost} of ${refs.length} entries just written.`,
      );
    }
    return refs;
  }

  async #removeRefused(
    written: readonly WrittenVersion[],
    groups: readonly IntentGroup[],
    refs: readonly EntryRef[],
  ): Promise<void> {
    const refused = new Set(written.filter(({ outcome }) => outcome !== "confirmed").map(({ plan }) => plan));
    const theirs = groups.filter(({ plan }) => refused.has(plan));
    const ids = new Set(theirs.flatMap(({ group }) => group.entryIds));
    await this.#giveUp(
      theirs,
      refs.filter(({ entryId }) => ids.has(entryId)),
    );
  }

  /** Best effort: when either call fails, the purge path still finds the groups after the writer's lease. */
  async #giveUp(groups: readonly IntentGroup[], refs: readonly EntryRef[]): Promise<void> {
    if (groups.length === 0) return;
    const { ledger, store } = this.#options;
    await Promise.allSettled([ledger.abandonIntents(groups.map(({ group }) => group.groupId)), store.remove(refs)]);
  }
}

function intentsOf(plan: IndexPlan): Intent[] {
  const partIds = [...new Set(plan.added.map(({ partId }) => partId))];
  return partIds.map((partId) => ({ plan, partId, chunks: plan.added.filter((chunk) => chunk.partId === partId) }));
}

function entriesOf({ chunks, group }: IntentGroup, vectors: Map<string, readonly number[]>): StoreEntry[] {
  return chunks.map(({ text, metadata }, position) => ({
    id: group.entryIds[position] as string,
    pageContent: text,
    metadata,
    vector: vectors.get(text) as readonly number[],
  }));
}
