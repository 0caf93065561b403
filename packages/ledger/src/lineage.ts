import { createHmac } from "node:crypto";
import { lineageArguments } from "./arguments/lineage.js";
import type { Queryable } from "./database/database.js";
import { type DerivationLedger, derivationLedger } from "./derivations.js";
import { assert } from "./errors.js";
import { type ExportLedger, exportLedger } from "./exports.js";
import { call, inBatches, PREPARED } from "./fenced-call.js";
import { entryIds, type LedgerIdentity } from "./identity.js";
import { type IndexWork, type WorkRow, workOf } from "./index-work.js";
import { type IndexLedger, type IndexRef, indexLedger } from "./indexes.js";
import { checkedCalls } from "./input.js";
import type { ContentFinding } from "./records/content-finding.js";

export interface IntendedGroup {
  readonly groupId: number;
  readonly partId: number;
  /** In the order of the digests given. UUIDs that carry the ledger's mark. */
  readonly entryIds: readonly string[];
}

export type ConfirmOutcome =
  | "confirmed"
  /** A newer version was confirmed in this index meanwhile. */
  | "superseded"
  /** A revocation covers the resource or closed its subscription, or it is hidden or to be read anew. */
  | "revoked"
  /** Another worker holds the claim. */
  | "claim_lost"
  /** A group it builds on was purged meanwhile: index it again. */
  | "group_gone"
  /** The index was retired meanwhile; what was written is purged. */
  | "index_retired";

/** What the calls of this file are, without those of the areas they go with. */
export type OwnCalls = Omit<LineageLedger, keyof IndexLedger | keyof DerivationLedger | keyof ExportLedger>;

export interface LineageLedger extends IndexLedger, DerivationLedger, ExportLedger {
  /** Keyed digest of a chunk, hex; equal chunks of one ledger have equal digests (L3, P8). */
  digestChunk(text: string): string;
  claimIndexWork(index: IndexRef, page: { readonly limit: number; readonly leaseMs: number }): Promise<IndexWork[]>;
  /**
   * Prolongs claims by `leaseMs` from now, for what takes longer than a claim may stand (10 s). Those that another worker
   * holds by now stay its; `confirmVersions` tells.
   */
  renewIndexWork(index: IndexRef, claimed: readonly IndexWork[], lease: { readonly leaseMs: number }): Promise<void>;
  /** Hands a claim back, with the failure that made it so. It is due again after a backoff. */
  releaseIndexWork(index: IndexRef, work: IndexWork, failure?: string): Promise<void>;
  /**
   * Records entries before they are written anywhere (L2), a group per intent, in the order of the intents. The write has
   * to end within `writerLeaseMs`. Whether they may be served is decided at confirm.
   */
  recordIntents(
    index: IndexRef,
    intents: readonly {
      readonly work: IndexWork;
      readonly partId: number;
      /** Hex, from `digestChunk`. */
      readonly chunkDigests: readonly string[];
    }[],
    options: { readonly writerLeaseMs: number },
  ): Promise<IntendedGroup[]>;
  /**
   * Keeps what was found in versions (spec §5) with them, in place of what was kept before; `versionRecord` shows it. At most 1,000
   * findings each. Versions that are gone are passed over.
   */
  recordFindings(
    versions: readonly {
      readonly work: Pick<IndexWork, "subscriptionId" | "ordinal">;
      readonly findings: readonly ContentFinding[];
    }[],
  ): Promise<void>;
  /** Keys that a store assigned by itself. */
  recordStoreKeys(keys: readonly { readonly entryId: string; readonly storeKey: string }[]): Promise<void>;
  /** The atomic swap (L3): new edges CURRENT, old ones SUPERSEDED, all or nothing per version. */
  confirmVersions(
    index: IndexRef,
    versions: readonly {
      readonly work: IndexWork;
      readonly written: readonly IntendedGroup[];
      readonly reused: readonly string[];
    }[],
  ): Promise<{ readonly lineageId: string; readonly outcome: ConfirmOutcome }[]>;
  /** Gives up intents; the purge path removes whatever reached the store. */
  abandonIntents(groupIds: readonly number[]): Promise<void>;
}

/** No entry has it: what a foreign id is confirmed with, so that the version is refused. */
const NO_ENTRY = -1;
/** Versions confirmed under one fence (P2). */
const CONFIRM_BATCH = 100;

/** The lineage of a ledger; see `LineageLedger`. The rules are in `functions/lineage.sql` and `functions/confirm.sql`. */
export function lineageLedger(database: Queryable, identity: LedgerIdentity): LineageLedger {
  const ids = entryIds(identity);
  const own: OwnCalls = {
    digestChunk: (text) => createHmac("sha256", identity.digestKey).update(text).digest("hex"),

    async claimIndexWork({ indexId }, { limit, leaseMs }) {
      const rows = await database.query<WorkRow>(
        "select * from fenceline.claim_index_work($1, $2, $3)",
        [indexId, limit, leaseMs],
        PREPARED,
      );
      return rows.map((row) => ({
        ...workOf(row),
        claimToken: row.claim_token,
        present: (row.present ?? []).map(({ number, partId, chunkDigest }) => ({
          entryId: ids.format(indexId, number),
          partId,
          chunkDigest,
        })),
      }));
    },

    async renewIndexWork({ indexId }, claimed, { leaseMs }) {
      if (claimed.length === 0) return;
      await call(database, "fenceline.renew_index_work($1, $2, $3, $4)", [
        indexId,
        claimed.map(({ subscriptionId }) => subscriptionId),
        claimed.map(({ claimToken }) => claimToken),
        leaseMs,
      ]);
    },

    async releaseIndexWork({ indexId }, { subscriptionId, claimToken }, failure) {
      const parameters = [indexId, subscriptionId, claimToken, failure ?? null];
      await call(database, "fenceline.release_index_work($1, $2, $3, $4)", parameters);
    },

    async recordIntents({ indexId }, intents, { writerLeaseMs }) {
      if (intents.length === 0) return [];
      const rows = await database.query<{ intent: number; group_id: number; entry_numbers: number[] }>(
        "select * from fenceline.record_intents($1, $2, $3, $4, $5, $6, $7, $8)",
        [
          indexId,
          writerLeaseMs,
          intents.map(({ work }) => work.subscriptionId),
          intents.map(({ work }) => work.ordinal),
          intents.map(({ work }) => work.claimToken),
          intents.map(({ partId }) => partId),
          Buffer.from(intents.flatMap(({ chunkDigests }) => chunkDigests).join(""), "hex"),
          intents.flatMap(({ chunkDigests }, position) => chunkDigests.map(() => position + 1)),
        ],
        PREPARED,
      );
      const rowOf = new Map(rows.map((row) => [row.intent, row]));
      return intents.map(({ partId }, position) => {
        const row = rowOf.get(position + 1);
        assert(row !== undefined, `The intent for the part ${partId} names a version and a part of this ledger.`);
        return {
          groupId: row.group_id,
          partId,
          entryIds: row.entry_numbers.map((number) => ids.format(indexId, number)),
        };
      });
    },

    async recordStoreKeys(keys) {
      const known = keys.flatMap(({ entryId, storeKey }) => {
        const number = ids.numberOf(entryId);
        return number === undefined ? [] : [{ number, storeKey }];
      });
      await call(database, "fenceline.record_store_keys($1, $2)", [
        known.map(({ number }) => number),
        known.map(({ storeKey }) => storeKey),
      ]);
    },

    async confirmVersions({ indexId }, versions) {
      const answers = [];
      for (const batch of inBatches(versions, CONFIRM_BATCH)) {
        const written = batch.flatMap(({ work, written }) => written.map((group) => ({ work, group })));
        const reused = batch.flatMap(({ work, reused }) => reused.map((id) => ({ work, id })));
        const rows = await database.query<{ subscription_id: number; outcome: ConfirmOutcome }>(
          "select * from fenceline.confirm_versions($1, $2, $3, $4, $5, $6, $7, $8, $9)",
          [
            indexId,
            batch.map(({ work }) => work.subscriptionId),
            batch.map(({ work }) => work.ordinal),
            batch.map(({ work }) => work.claimToken),
            written.map(({ group }) => group.groupId),
            written.map(({ work }) => work.subscriptionId),
            written.map(({ group }) => group.partId),
            reused.map(({ id }) => ids.numberOf(id) ?? NO_ENTRY),
            reused.map(({ work }) => work.subscriptionId),
          ],
          PREPARED,
        );
        const outcomes = new Map(rows.map((row) => [row.subscription_id, row.outcome]));
        for (const { work } of batch) {
          const outcome = outcomes.get(work.subscriptionId);
          assert(outcome !== undefined, "confirm_versions answers for every version.");
          answers.push({ lineageId: work.lineageId, outcome });
        }
      }
      return answers;
    },

    async recordFindings(versions) {
      if (versions.length === 0) return;
      await call(database, "fenceline.record_findings($1, $2, $3)", [
        versions.map(({ work }) => work.subscriptionId),
        versions.map(({ work }) => work.ordinal),
        versions.map(({ findings }) => JSON.stringify(findings)),
      ]);
    },

    async abandonIntents(groupIds) {
      if (groupIds.length > 0) await call(database, "fenceline.abandon_intents($1)", [groupIds]);
    },
  };
  return {
    ...indexLedger(database),
    ...derivationLedger(database, identity),
    ...exportLedger(database, identity),
    ...checkedCalls(lineageArguments, own),
  };
}
