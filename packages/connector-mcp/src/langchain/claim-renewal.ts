import type { IndexRef, IndexWork, LineageLedger } from "@fenceline/ledger";

/** A worker whose embedding model or splitter never answers does not keep the version from others for longer. */
const GIVE_UP_AFTER_MS = 10 * 60_000;

/**
 * Keeps claimed versions claimed while they are worked on. A claim stands for 10 s at most, so that a killed worker holds
 * nothing up for longer; a version of ten thousand chunks, or a slow embedding model, takes longer than that.
 *
 * Nothing rests on it: whether a claim still stands is decided at confirm. So a renewal that fails is only tried again.
 */
export class ClaimRenewal {
  readonly #timer: NodeJS.Timeout;
  readonly #everyMs: number;
  #renewedAt: number;
  #underWay: Promise<void> | undefined;

  /** @param options.claimedAt `performance.now()` from before the claim */
  constructor(
    private readonly options: {
      readonly ledger: LineageLedger;
      readonly ref: IndexRef;
      readonly claimed: readonly IndexWork[];
      readonly claimedAt: number;
      readonly leaseMs: number;
    },
  ) {
    this.#everyMs = options.leaseMs / 3;
    this.#renewedAt = options.claimedAt;
    this.#timer = setInterval(() => void this.renewIfDue(), this.#everyMs);
  }

  /** After work that kept the process from its timers. Never rejects. */
  async renewIfDue(): Promise<void> {
    const now = performance.now();
    if (now - this.#renewedAt < this.#everyMs / 2 || now - this.options.claimedAt > GIVE_UP_AFTER_MS) return;
    this.#underWay ??= this.#renew().finally(() => {
      this.#underWay = undefined;
    });
    await this.#underWay;
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#underWay;
  }

  async #renew(): Promise<void> {
    const { ledger, ref, claimed, leaseMs } = this.options;
    const sentAt = performance.now();
    try {
      await ledger.renewIndexWork(ref, claimed, { leaseMs });
      this.#renewedAt = sentAt;
    } catch {
      // The next one may come through.
    }
  }
}
