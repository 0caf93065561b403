import { FencelineError, type IndexRef, type IndexWork, type LineageLedger } from "@fenceline/ledger";
import { storableText } from "../storable-text.js";
import { ClaimRenewal } from "./claim-renewal.js";
import { type IndexPlan, type PlanOptions, planVersion } from "./index-plan.js";
import type { IndexWriter, WrittenVersion } from "./index-writer.js";

/** Chunks after which claimed versions are written, so that the rest of a claim does not wait for a large one. */
const WRITE_AT_CHUNKS = 256;

/** What one run did. */
export interface IndexRunResult {
  /** Versions whose entries are now the visible ones. */
  readonly versions: number;
  /** Entries written by them. */
  readonly written: number;
  /** Entries they kept from before. */
  readonly reused: number;
  /** Versions the ledger refused for good: superseded or revoked meanwhile. */
  readonly refused: number;
  /** Versions that will be tried again, each named in `problems`. */
  readonly failed: number;
  readonly problems: readonly IndexProblem[];
}

export interface IndexProblem {
  readonly uri: string;
  /**
   * Code of the error; `left_out` where a part has no text or was refused by the guard; `claim_lost` or `group_gone` where
   * the ledger asks for another try.
   */
  readonly code: string;
  readonly message: string;
}

export interface IndexRunOptions {
  readonly ledger: LineageLedger;
  readonly ref: IndexRef;
  readonly writer: IndexWriter;
  readonly planning: PlanOptions;
  readonly leaseMs: number;
  readonly signal: AbortSignal | undefined;
}

/** One run of `LineageIndex.indexDue`: claims pages, writes them in slices, keeps count. */
export class IndexRun {
  readonly #options: IndexRunOptions;
  readonly #problems: IndexProblem[] = [];
  readonly #failed = new Set<string>();
  #versions = 0;
  #written = 0;
  #reused = 0;
  #refused = 0;
  #storeSilent = false;

  constructor(options: IndexRunOptions) {
    this.#options = options;
  }

  /** Nothing more can be done in this run. */
  get stopped(): boolean {
    return this.#storeSilent || this.#options.signal?.aborted === true;
  }

  result(): IndexRunResult {
    return {
      versions: this.#versions,
      written: this.#written,
      reused: this.#reused,
      refused: this.#refused,
      failed: this.#failed.size,
      problems: this.#problems,
    };
  }

  /** Claims up to `limit` versions and indexes them; answers with how many it took up. */
  async indexPage(limit: number): Promise<number> {
    const { ledger, ref, leaseMs } = this.#options;
    const claimedAt = performance.now();
    const claimed = await ledger.claimIndexWork(ref, { limit, leaseMs });
    const renewal = new ClaimRenewal({ ledger, ref, claimed, claimedAt, leaseMs });
    try {
      return await this.#indexClaimed(claimed, claimedAt, renewal);
    } finally {
      await renewal.stop();
    }
  }

  async #indexClaimed(claimed: readonly IndexWork[], claimedAt: number, renewal: ClaimRenewal): Promise<number> {
    const { ledger, ref, leaseMs } = this.#options;
    const { now, later } = this.#sorted(claimed);
    const tried = now.length;
    let slice: IndexPlan[] = [];
    while (now.length > 0 && !this.stopped) {
      const plan = await this.#plan(now.shift() as IndexWork);
      if (plan) slice.push(plan);
      // Cutting a large text holds the process up for seconds, its timers too.
      await renewal.renewIfDue();
      if (now.length > 0 && chunksIn(slice) < WRITE_AT_CHUNKS) continue;
      await this.#write(slice);
      slice = [];
      // What is left after half a lease goes to whoever claims next: perhaps somebody who is idle.
      if (performance.now() - claimedAt > leaseMs / 2) break;
    }
    for (const work of [...slice.map((plan) => plan.work), ...now, ...later]) await ledger.releaseIndexWork(ref, work);
    return tried;
  }

  /**
   * What failed in this run waits for the next one. Of one resource read by several readers one is indexed at a time,
   * so that the next finds its chunks and shares them (L5).
   */
  #sorted(claimed: readonly IndexWork[]): { now: IndexWork[]; later: IndexWork[] } {
    const now: IndexWork[] = [];
    const later: IndexWork[] = [];
    const resources = new Set<string>();
    for (const work of claimed) {
      const resource = JSON.stringify([work.source, work.uri]);
      const waits = this.#failed.has(work.lineageId) || resources.has(resource);
      (waits ? later : now).push(work);
      resources.add(resource);
    }
    return { now, later };
  }

  async #plan(work: IndexWork): Promise<IndexPlan | undefined> {
    try {
      return await planVersion(work, this.#options.planning);
    } catch (error) {
      await this.#fail(work, error);
      return undefined;
    }
  }

  /** Writes a slice together; where that fails for a reason that may lie in one of them, each by itself. */
  async #write(slice: readonly IndexPlan[]): Promise<void> {
    if (slice.length === 0) return;
    try {
      // Before anything of it can be seen: what is shown has its findings on record, and none of an earlier policy.
      await this.#options.ledger.recordFindings(slice);
      for (const written of await this.#options.writer.write(slice, this.#options.signal)) await this.#settle(written);
    } catch (error) {
      this.#storeSilent ||= error instanceof FencelineError && error.code === "store_timeout";
      for (const plan of slice) {
        if (slice.length === 1 || this.stopped) await this.#fail(plan.work, error);
        else await this.#write([plan]);
      }
    }
  }

  async #settle({ plan, outcome }: WrittenVersion): Promise<void> {
    switch (outcome) {
      case "confirmed":
        this.#versions += 1;
        this.#written += plan.added.length;
        this.#reused += plan.reused.length;
        for (const { uri, reason } of plan.leftOut) {
          this.#problems.push({ uri, code: "left_out", message: `Not indexed: ${reason}` });
        }
        return;
      case "superseded":
      case "revoked":
      case "index_retired":
        this.#refused += 1;
        return;
      // Without a note these would be claimed again at once, in this very run, and perhaps for ever.
      case "claim_lost":
        return this.#tryLater(plan.work, outcome, "It took longer than its claim, or another worker took it over.");
      case "group_gone":
        return this.#tryLater(plan.work, outcome, "Entries that it builds on were purged meanwhile.");
    }
  }

  async #fail(work: IndexWork, error: unknown): Promise<void> {
    const { ledger, ref, signal } = this.#options;
    if (signal?.aborted) {
      await ledger.releaseIndexWork(ref, work);
      return;
    }
    const message = storableText(error instanceof Error ? error.message : String(error));
    await this.#tryLater(work, error instanceof FencelineError ? error.code : "index_failed", message);
  }

  async #tryLater(work: IndexWork, code: string, message: string): Promise<void> {
    this.#failed.add(work.lineageId);
    this.#problems.push({ uri: work.uri, code, message });
    await this.#options.ledger.releaseIndexWork(this.#options.ref, work, message);
  }
}

function chunksIn(slice: readonly IndexPlan[]): number {
  return slice.reduce((sum, { added }) => sum + added.length, 0);
}
