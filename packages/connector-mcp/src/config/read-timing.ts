import { defaultReadTiming, type ReadTiming } from "@fenceline/ledger";
import type { FencelineConfig } from "./config-schema.js";

/** The configured intervals, as the ledger takes them. */
export function readTimingOf({ settings }: FencelineConfig): ReadTiming {
  return {
    ...defaultReadTiming,
    polledIntervalMs: settings.pollMs,
    pushedIntervalMs: settings.rereadMs,
    notificationWindowMs: settings.coalesceMs,
    removalFloorCount: settings.removalFloor.count,
    removalFloorShare: settings.removalFloor.share,
    catalogReviewMs: settings.reviewMs,
  };
}
