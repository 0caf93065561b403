import type { AuditLedger } from "@fenceline/ledger";
import type { BoundedStore } from "./bounded-store.js";

/** Records looked up in the store at once. */
const PAGE = 500;

/** What a store holds beside what the ledger records of it. */
export interface StoreComparison {
  readonly store: string;
  /** Entries that the ledger records as present. */
  readonly recorded: number;
  /** Of those, how many the store has. */
  readonly present: number;
  /** Of those, how many it has not. */
  readonly missing: number;
  /** Entries with this ledger's mark that no record speaks of; `null` for a store that cannot be gone through. */
  readonly orphans: number | null;
  /** Entries that somebody else wrote; `null` as above. */
  readonly foreign: number | null;
}

/**
 * Compares a store with the ledger both ways. Work that goes on meanwhile is no difference: an entry that is being written has
 * its record already (L2), and one that is being purged still has it.
 *
 * @throws {FencelineError} `store_failed`, `store_timeout`, and those of the ledger
 */
export async function compareStore(options: {
  readonly ledger: Pick<AuditLedger, "recordedEntries" | "standingOfEntries">;
  readonly index: string;
  readonly storeName: string;
  readonly store: BoundedStore;
}): Promise<StoreComparison> {
  const recorded = await compareRecords(options);
  const { orphans, foreign } = options.store.isListed
    ? await compareEntries(options)
    : { orphans: null, foreign: null };
  return { store: options.storeName, ...recorded, orphans, foreign };
}

type ComparisonOptions = Parameters<typeof compareStore>[0];

/** From the ledger to the store. */
async function compareRecords({ ledger, index, store }: ComparisonOptions) {
  let [recorded, missing] = [0, 0];
  let afterId: string | undefined;
  while (true) {
    const page = await ledger.recordedEntries(index, { limit: PAGE, ...(afterId !== undefined && { afterId }) });
    const found = await store.present(page.map((entryId) => ({ entryId })));
    recorded += page.length;
    missing += await stillRecorded(page.filter((entryId) => !found.has(entryId)));
    afterId = page.at(-1);
    if (page.length < PAGE) return { recorded, present: recorded - missing, missing };
  }

  /** One that was purged between the ledger's answer and the store's is no longer missed. */
  async function stillRecorded(entryIds: readonly string[]): Promise<number> {
    if (entryIds.length === 0) return 0;
    const standings = await ledger.standingOfEntries(index, entryIds);
    return standings.filter((standing) => standing === "present").length;
  }
}

/** From the store to the ledger. */
async function compareEntries({ ledger, index, store }: ComparisonOptions) {
  let [orphans, foreign] = [0, 0];
  for await (const page of store.ids()) {
    const standings = await ledger.standingOfEntries(index, page);
    orphans += await stillThere(page.filter((_, position) => standings[position] === "unrecorded"));
    foreign += standings.filter((standing) => standing === "foreign").length;
  }
  return { orphans, foreign };

  /** One that was purged between the store's answer and the ledger's has no record any more, and is gone. */
  async function stillThere(entryIds: readonly string[]): Promise<number> {
    return (await store.present(entryIds.map((entryId) => ({ entryId })))).size;
  }
}
