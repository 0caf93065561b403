import type { Suite } from "../measure.js";
import { acceptCoalesced, acceptOne } from "./accept-one.js";
import { batches } from "./batches.js";
import { type LedgerBench, missing, withLedgerBench } from "./ledger-bench.js";
import { closing, marking } from "./marking.js";
import { purgePages } from "./purge-pages.js";
import { bytesPerEntry, registered } from "./registered.js";
import { revocationLatency } from "./revocation-latency.js";
import { bytesPerVersion } from "./sizes.js";
import { visibility } from "./visibility.js";

/** The measures of the ledger, in the order in which they are printed. */
export const ledgerSuite: Suite<LedgerBench> = {
  name: "ledger",
  missing,
  withBench: withLedgerBench,
  measures: [
    ...acceptOne,
    acceptCoalesced,
    ...batches,
    registered,
    ...visibility,
    bytesPerVersion,
    bytesPerEntry,
    marking,
    closing,
    purgePages,
    revocationLatency,
  ],
};
