import { FencelineError, type PurgeClaim, type RevocationLedger } from "@fenceline/ledger";
import { connectorError } from "../errors.js";
import { storableText } from "../storable-text.js";
import type { BoundedStore, EntryRef } from "./bounded-store.js";
import { pause } from "./deadline.js";

/** Groups claimed at once; one is the chunks of one part of one version, often a single one. */
const CLAIM = 200;
/** What a killed purger had claimed waits this long for another one: well below the 30 s of P6. */
const LEASE_MS = 10_000;
/** Entries after which the ledger is told, so that a slow store makes headway within the lease whatever the groups' size. */
const CONFIRM_AT_ENTRIES = 2_000;
/** Waits before each further look at a store that still shows what it was told to delete. */
const LOOK_AGAIN_AFTER_MS = [50, 200, 1_000];

export interface PurgeResult {
  readonly groups: number;
  readonly entries: number;
  /** Why it ended before nothing was left. The claims were handed back with it; the purge is tried again later (P5). */
  readonly failure?: FencelineError;
}

/**
 * Removes from one store whatever nothing holds any more: superseded, tombstoned, abandoned, revoked. The only way in
 * which entries of ours are removed for good: delete by id, look by id until all are gone, then say so in the ledger (P3).
 *
 * @param options.name name of the store in the ledger
 * @throws {FencelineError} those of the ledger; failures of the store are in the result
 */
export async function purgeStore(options: {
  readonly ledger: RevocationLedger;
  readonly store: BoundedStore;
  readonly name: string;
  readonly signal?: AbortSignal;
}): Promise<PurgeResult> {
  const { ledger, store, name, signal } = options;
  let groups = 0;
  let entries = 0;
  while (!signal?.aborted) {
    const claims = await ledger.claimPurge({ store: name, limit: CLAIM, leaseMs: LEASE_MS });
    if (claims.length === 0) break;
    let waiting: readonly PurgeClaim[] = claims;
    while (waiting.length > 0) {
      const slice = firstOf(waiting);
      waiting = waiting.slice(slice.length);
      const { gone, left, reappeared, failure } = await removeAndLook(store, slice, signal);
      if (gone.length > 0) await ledger.confirmPurge(name, gone, { claim: "absent", reappeared });
      groups += gone.length;
      entries += entriesOf(gone).length;
      if (failure) {
        await ledger.releasePurge(name, [...left, ...waiting], storableText(failure.message));
        return { groups, entries, failure };
      }
    }
  }
  return { groups, entries };
}

interface Removal {
  /** Groups of which no entry is there. */
  readonly gone: readonly PurgeClaim[];
  readonly left: readonly PurgeClaim[];
  /** Ids that an earlier sweep had found absent: a write that was still under way then has ended since. */
  readonly reappeared: readonly string[];
  readonly failure?: FencelineError;
}

async function removeAndLook(
  store: BoundedStore,
  claims: readonly PurgeClaim[],
  signal: AbortSignal | undefined,
): Promise<Removal> {
  let left = claims;
  let reappeared: readonly string[] = [];
  try {
    reappeared = [...(await store.present(entriesOf(claims.filter((claim) => claim.sweptBefore))))];
    for (const lookAgainAfterMs of [...LOOK_AGAIN_AFTER_MS, undefined]) {
      const refs = entriesOf(left);
      await store.remove(refs);
      const present = await store.present(refs);
      left = left.filter((claim) => claim.entries.some(({ entryId }) => present.has(entryId)));
      if (left.length === 0) return { gone: claims, left, reappeared };
      if (lookAgainAfterMs === undefined || signal?.aborted) break;
      await pause(lookAgainAfterMs, signal);
    }
    const message = `The store ${store.kind} still shows ${entriesOf(left).length} entries or groups of them after they were deleted by id.`;
    return {
      gone: without(claims, left),
      left,
      reappeared,
      failure: connectorError("store_purge_unverified", message),
    };
  } catch (error) {
    const failure =
      error instanceof FencelineError ? error : connectorError("store_failed", String(error), { cause: error });
    return { gone: without(claims, left), left, reappeared, failure };
  }
}

/** At least one group, and then as many as stay within {@link CONFIRM_AT_ENTRIES}. */
function firstOf(claims: readonly PurgeClaim[]): readonly PurgeClaim[] {
  let entries = 0;
  const end = claims.findIndex((claim, position) => {
    entries += claim.entries.length;
    return position > 0 && entries > CONFIRM_AT_ENTRIES;
  });
  return end === -1 ? claims : claims.slice(0, end);
}

function without(claims: readonly PurgeClaim[], left: readonly PurgeClaim[]): PurgeClaim[] {
  return claims.filter((claim) => !left.includes(claim));
}

function entriesOf(claims: readonly PurgeClaim[]): EntryRef[] {
  return claims.flatMap((claim) => claim.entries);
}
