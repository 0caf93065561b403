/** When resources are read, and what it takes to believe that one is gone (§9, S8). All times in milliseconds. */
export interface ReadTiming {
  /** Interval of polled resources (U3). */
  readonly polledIntervalMs: number;
  /** Interval at which pushed resources are read without a notification (U6). */
  readonly pushedIntervalMs: number;
  /** Share of each interval by which it varies to either side, 0 to 1. */
  readonly jitter: number;
  /** From the first notification to the read that answers all of them (U5). */
  readonly notificationWindowMs: number;
  /** After a first failure; doubled with each further one. */
  readonly retryMs: number;
  readonly retryMaxMs: number;
  /** Between the two "not found" that confirm a deletion (F7). */
  readonly notFoundSpacingMs: number;
  /** Pending deletions are held back above the greater of both (S8). */
  readonly removalFloorCount: number;
  /** Share of the known resources, 0 to 1. */
  readonly removalFloorShare: number;
  /** Until an unproven catalogue is measured again (S5). */
  readonly catalogReviewMs: number;
}

export const defaultReadTiming: ReadTiming = {
  polledIntervalMs: 60_000,
  pushedIntervalMs: 600_000,
  jitter: 0.2,
  notificationWindowMs: 100,
  retryMs: 2_000,
  retryMaxMs: 300_000,
  notFoundSpacingMs: 60_000,
  removalFloorCount: 25,
  removalFloorShare: 0.25,
  catalogReviewMs: 600_000,
};
