import type { Ledger } from "@fenceline/ledger";
import type { Logger } from "pino";
import type { FencelineConfig } from "../config/config-schema.js";
import type { IndexRunResult } from "../langchain/index-run.js";
import { type ConfiguredIndex, configuredIndexes } from "./configured-indexes.js";
import { type CountsOf, countingLedger, type IndexCounting } from "./counted-ledger.js";
import { problemOf } from "./problem.js";
import { SingleFlight } from "./single-flight.js";

export interface IndexerOptions {
  readonly ledger: Ledger;
  readonly config: FencelineConfig;
  readonly countsOf: CountsOf;
  readonly logger: Logger;
  readonly signal: AbortSignal;
  readonly onProgress: (done: number, total: number) => void;
}

/** What one run came to, for the job's result and for those who wait until nothing is left. */
export type IndexEnd = Pick<IndexRunResult, "versions" | "written" | "reused" | "refused" | "failed"> & {
  /** The index itself could not be used. */
  readonly failure?: string;
};

const NOTHING = { versions: 0, written: 0, reused: 0, refused: 0, failed: 0 };

/** Feeds the configured indexes from the ledger, each by one run at a time in this process. */
export class Indexer {
  readonly indexes: readonly ConfiguredIndex[];
  readonly #runs = new Map<string, SingleFlight<IndexEnd>>();
  readonly #last = new Map<string, IndexEnd>();

  constructor(private readonly options: IndexerOptions) {
    const counting = countingLedger(options.ledger, options.countsOf, options.onProgress);
    this.indexes = configuredIndexes(options.config, counting.ledger);
    for (const index of this.indexes) {
      this.#runs.set(index.name, new SingleFlight(() => this.#run(index, counting)));
    }
  }

  get names(): readonly string[] {
    return [...this.#runs.keys()];
  }

  /** Versions that failed in the last run of their index, or an index that could not be used at all. */
  get failing(): boolean {
    return [...this.#last.values()].some(({ failed, failure }) => failed > 0 || failure !== undefined);
  }

  /** Records stores and indexes in the ledger, so that what is accepted from now on waits for them. Never rejects. */
  async register(): Promise<void> {
    const register = async (index: ConfiguredIndex) => {
      try {
        await (await index.open()).register();
      } catch (error) {
        this.#note(index.name, { ...NOTHING, failure: problemOf(error).message });
      }
    };
    await Promise.all(this.indexes.map(register));
  }

  /** Indexes what is due; `undefined`: no such index here. Never rejects. */
  async run(name: string): Promise<IndexEnd | undefined> {
    return this.#runs.get(name)?.run();
  }

  async close(): Promise<void> {
    await Promise.all([...this.#runs.values()].map((run) => run.settled()));
    await Promise.all(this.indexes.map((index) => index.close()));
  }

  async #run(index: ConfiguredIndex, counting: IndexCounting): Promise<IndexEnd> {
    try {
      const opened = await index.open();
      const { problems, ...end } = await opened.indexDue({ signal: this.options.signal });
      counting.attribute(index.name, problems);
      if (end.versions + end.failed > 0) this.options.logger.info({ index: index.name, ...end }, "indexed");
      return this.#note(index.name, end);
    } catch (error) {
      return this.#note(index.name, { ...NOTHING, failure: problemOf(error).message });
    }
  }

  #note(name: string, end: IndexEnd): IndexEnd {
    this.#last.set(name, end);
    if (end.failure !== undefined && !this.options.signal.aborted) {
      this.options.logger.warn({ index: name }, `index cannot be used: ${end.failure}`);
    }
    return end;
  }
}
