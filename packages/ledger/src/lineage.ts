import { createHmac } from "node:crypto";
import { lineageArguments } from "./arguments/lineage.js";
import type { Queryable } from "./database/database.js";
import { assert, FencelineError } from "./errors.js";
import { call, inBatches } from "./fenced-call.js";
import { entryIds, type LedgerIdentity } from "./identity.js";
import { checkedCalls } from "./input.js";
import { lineageIdOf } from "./lineage-id.js";

/** An index registered with the ledger: where entries live and in which embedding space. */
export interface IndexRef {
  readonly indexId: number;
  readonly name: string;
  readonly version: number;
  readonly store: string;
}

/** A version that waits to be indexed, claimed for a while. */
export interface IndexWork {
  readonly claimToken: string;
  readonly subscriptionId: number;
  readonly ordinal: number;
  readonly lineageId: string;
  readonly source: string;
  readonly reader: string;
  readonly uri: string;
  readonly name?: string;
  readonly title?: string;
  readonly mimeType?: string;
  /** What was kept of it; none for a version without content, which is confirmed with nothing written. */
  readonly parts: readonly {
    readonly partId: number;
    readonly uri: string;
    readonly mimeType?: string;
    readonly text?: string;
    readonly bytes?: Uint8Array;
  }[];
  /** What the index already holds of this (source, URI), whoever read it: candidates for reuse (L3, L5). */
  readonly present: readonly {
    readonly entryId: string;
    readonly partId: number;
    /** Hex. */
    readonly chunkDigest: string;
  }[];
}

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
  /** A revocation covers the resource, or its subscription was closed. */
  | "revoked"
  /** Another worker holds the claim. */
  | "claim_lost"
  /** A group it builds on was purged meanwhile: index it again. */
  | "group_gone";

export interface LineageLedger {
  registerStore(store: { readonly name: string; readonly kind: string }): Promise<void>;
  /**
   * Registers an index; versions already accepted become due in it. A changed configuration needs a higher version.
   *
   * @throws {FencelineError} `store_unknown`, `index_configuration_changed`
   */
  registerIndex(index: {
    readonly name: string;
    readonly version: number;
    readonly store: string;
    readonly embeddings: string;
    readonly configurationDigest: Uint8Array;
  }): Promise<IndexRef>;
  /** The index of this name with the highest version, or `undefined`. */
  findIndex(name: string): Promise<IndexRef | undefined>;
  /**
   * The version of an index that answers: the highest in which every version that waited was confirmed once. A newer one
   * is built beside it and takes over when it is complete. `undefined` while none ever was.
   */
  servingIndex(name: string): Promise<IndexRef | undefined>;
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
  /** Accepted newest versions of a reader, for a loader; each page is recorded as an export (L6). */
  exportVersions(page: {
    readonly source: string;
    readonly reader: string;
    readonly destination: string;
    readonly limit: number;
    readonly afterId?: number;
  }): Promise<IndexWork[]>;
}

/** The claim of what is not claimed: an export. */
const NO_CLAIM = "00000000-0000-0000-0000-000000000000";
/** No entry has it: what a foreign id is confirmed with, so that the version is refused. */
const NO_ENTRY = -1;
/** Versions confirmed under one fence (P2). */
const CONFIRM_BATCH = 100;

/** The lineage of a ledger; see `LineageLedger`. The rules are in `functions/lineage.sql` and `functions/confirm.sql`. */
export function lineageLedger(database: Queryable, identity: LedgerIdentity): LineageLedger {
  const ids = entryIds(identity);
  return checkedCalls(lineageArguments, {
    async registerStore({ name, kind }) {
      await database.query(
        "insert into fenceline.store (name, kind) values ($1, $2) on conflict (name) do update set kind = excluded.kind",
        [name, kind],
      );
    },

    async registerIndex(index) {
      const { name, version, store } = index;
      const [row] = await database.query<RegisteredRow>("select * from fenceline.register_index($1, $2, $3, $4, $5)", [
        name,
        version,
        store,
        index.embeddings,
        Buffer.from(index.configurationDigest),
      ]);
      assert(row !== undefined, "register_index answers with one row.");
      switch (row.outcome) {
        case "store_unknown":
          throw new FencelineError(
            "store_unknown",
            `No store named ${JSON.stringify(store)} is registered: register it first.`,
          );
        case "other_configuration":
          throw new FencelineError(
            "index_configuration_changed",
            `Version ${version} of the index ${JSON.stringify(name)} was registered with another configuration: raise its version.`,
          );
        case "registered":
        case "known":
          if (!row.filled) await call(database, "fenceline.fill_index($1)", [row.index_id]);
          return { indexId: row.index_id, name, version, store };
      }
    },

    findIndex: (name) => indexOf(database, name, "true"),

    servingIndex: (name) => indexOf(database, name, "i.serving_since is not null"),

    digestChunk: (text) => createHmac("sha256", identity.digestKey).update(text).digest("hex"),

    async claimIndexWork({ indexId }, { limit, leaseMs }) {
      const rows = await database.query<WorkRow>("select * from fenceline.claim_index_work($1, $2, $3)", [
        indexId,
        limit,
        leaseMs,
      ]);
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
          intents.flatMap(({ chunkDigests }) => chunkDigests.map((digest) => Buffer.from(digest, "hex"))),
          intents.flatMap(({ chunkDigests }, position) => chunkDigests.map(() => position + 1)),
        ],
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

    async abandonIntents(groupIds) {
      if (groupIds.length > 0) await call(database, "fenceline.abandon_intents($1)", [groupIds]);
    },

    async exportVersions({ source, reader, destination, limit, afterId }) {
      const rows = await database.query<WorkRow>("select * from fenceline.export_versions($1, $2, $3, $4, $5)", [
        source,
        reader,
        destination,
        limit,
        afterId ?? 0,
      ]);
      return rows.map((row) => ({ ...workOf(row), claimToken: NO_CLAIM, present: [] }));
    },
  });
}

type RegisteredRow =
  | { outcome: "store_unknown"; index_id: null; filled: null }
  | { outcome: "registered" | "known" | "other_configuration"; index_id: number; filled: boolean };

interface WorkRow {
  readonly claim_token: string;
  readonly subscription_id: number;
  readonly ordinal: number;
  readonly source: string;
  readonly reader: string;
  readonly uri: string;
  readonly name: string | null;
  readonly title: string | null;
  readonly mime_type: string | null;
  readonly parts:
    | readonly { partId: number; uri: string; mimeType: string | null; text: string | null; bytes: string | null }[]
    | null;
  readonly present: readonly { number: number; partId: number; chunkDigest: string }[] | null;
}

function workOf(row: WorkRow): Omit<IndexWork, "claimToken" | "present"> {
  return {
    subscriptionId: row.subscription_id,
    ordinal: row.ordinal,
    lineageId: lineageIdOf(row.subscription_id, row.ordinal),
    source: row.source,
    reader: row.reader,
    uri: row.uri,
    ...(row.name !== null && { name: row.name }),
    ...(row.title !== null && { title: row.title }),
    ...(row.mime_type !== null && { mimeType: row.mime_type }),
    parts: (row.parts ?? []).map(({ partId, uri, mimeType, text, bytes }) => ({
      partId,
      uri,
      ...(mimeType !== null && { mimeType }),
      ...(text !== null && { text }),
      ...(bytes !== null && { bytes: Buffer.from(bytes, "base64") }),
    })),
  };
}

async function indexOf(database: Queryable, name: string, condition: string): Promise<IndexRef | undefined> {
  const [row] = await database.query<{ index_id: number; version: number; store: string }>(
    `select i.index_id, i.version, s.name as store from fenceline.index i join fenceline.store s using (store_id)
     where i.name = $1 and ${condition} order by i.version desc limit 1`,
    [name],
  );
  return row && { indexId: row.index_id, name, version: row.version, store: row.store };
}
