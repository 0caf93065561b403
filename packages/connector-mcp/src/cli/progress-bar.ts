import { SingleBar } from "cli-progress";
import type { PoolProgress } from "../jobs/worker-pool-options.js";

const verbs: Record<PoolProgress["phase"], string> = {
  connect: "connecting",
  scan: "discovering",
  read: "reading",
  index: "indexing",
  purge: "purging",
};

/** A bar on standard error that follows a pool; it appears once the work has lasted a second. */
export class ProgressBar {
  readonly #bar: SingleBar;
  readonly #startedAt = performance.now();
  #shown = false;

  constructor() {
    this.#bar = new SingleBar({
      format: "{phase} {source} {bar} {value}/{total}",
      stream: process.stderr,
      hideCursor: true,
      clearOnComplete: true,
      barsize: 30,
    });
  }

  readonly update = (progress: PoolProgress): void => {
    const fields = { phase: verbs[progress.phase], source: progress.source ?? "" };
    if (!this.#shown) {
      if (performance.now() - this.#startedAt < 1_000) return;
      this.#bar.start(progress.total, progress.done, fields);
      this.#shown = true;
      return;
    }
    this.#bar.setTotal(progress.total);
    this.#bar.update(progress.done, fields);
  };

  stop(): void {
    if (this.#shown) this.#bar.stop();
  }
}
