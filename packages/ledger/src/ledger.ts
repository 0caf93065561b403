import type pg from "pg";
import { readTimingArgument, wakeArgument } from "./arguments/ledger.js";
import { type AuditLedger, auditLedger } from "./audit.js";
import { type CompletenessLedger, completenessLedger } from "./completeness.js";
import { type Database, type Listening, openDatabase, type Queryable } from "./database/database.js";
import { type MigrateOptions, migrate } from "./database/migrations.js";
import { type GrantLedger, grantLedger } from "./grants.js";
import { type DigestKey, type LedgerIdentity, readIdentity, takeDigestKeyOut } from "./identity.js";
import { checkArgument } from "./input.js";
import { queryableInSchema } from "./ledger-schema.js";
import { type LineageLedger, lineageLedger } from "./lineage.js";
import type { ReadTiming } from "./read-timing.js";
import { type ReadLedger, readLedger } from "./reads.js";
import { type RecordLedger, recordLedger } from "./record-ledger.js";
import { type RestoreLedger, restoreLedger } from "./restore.js";
import { type RetentionLedger, retentionLedger } from "./retention.js";
import { type RevocationLedger, revocationLedger } from "./revocations.js";
import { type ScanLedger, scanLedger } from "./scans.js";
import { type SessionLedger, sessionLedger } from "./sessions.js";
import { type SubscriptionLedger, subscriptionLedger } from "./subscriptions.js";
import { type VisibilityLedger, visibilityLedger } from "./visibility.js";
import type { Witness } from "./witness.js";
import { type RestoreReport, WitnessKeeper, type WitnessOptions } from "./witnessed-ledger.js";

/** What users hold: every rule of discovery, subscription, fenced reads, lineage and revocation over one database. */
export interface Ledger
  extends SessionLedger,
    ScanLedger,
    CompletenessLedger,
    SubscriptionLedger,
    ReadLedger,
    LineageLedger,
    VisibilityLedger,
    GrantLedger,
    RevocationLedger,
    AuditLedger,
    RestoreLedger,
    RecordLedger,
    RetentionLedger {
  /** What was opened, without a password. */
  readonly address: string;
  readonly schema: string;
  /** For stores that live in the ledger's own database. */
  readonly database: Database;
  /** What opening it found and did, where its witness proved that the database had been restored from a backup. */
  readonly restored: RestoreReport | undefined;
  /**
   * Runs `onWake` for whatever any process announced: a revocation, or work handed to the holder of a session.
   * A hint only: after a lost connection some are missed, so look at the ledger on a timer too.
   */
  onWake(onWake: (wake: Wake) => void): Promise<Listening>;
  announce(wake: Wake): Promise<void>;
  /** The same ledger, on the same connections, with other intervals for what its caller reads. */
  withReadTiming(timing: ReadTiming): Ledger;
  /**
   * Takes the digest key out of the database and returns it, in hex: keep it safe, and pass it as `digestKey` from now on, for
   * without it the ledger is not opened any more. Other processes that have the ledger open have to open it anew.
   */
  takeDigestKeyOut(): Promise<string>;
  /** Closes what `openLedger` opened; a pool that was passed in stays open. Idempotent. */
  close(): Promise<void>;
}

export type Wake =
  | { readonly kind: "revocation"; readonly revocationId: number }
  | { readonly kind: "read"; readonly source: string; readonly reader: string }
  | { readonly kind: "discovery"; readonly source: string; readonly reader: string }
  | { readonly kind: "index"; readonly index: string };

export interface OpenLedgerOptions {
  /** Where its tables are: a plain lower-case identifier. Default `fenceline`. */
  readonly schema?: string;
  /**
   * Address of the PostgreSQL server itself, for listening, where the ledger's address leads to a pooler in transaction mode.
   * Without it nothing is heard there, and `onWake` says so (`delivers`).
   */
  readonly listenAddress?: string;
  /** Connections of this process at most. Default 10; embedded 4. Ignored for a pool that was passed in. */
  readonly maxConnections?: number;
  /** When resources are read again. Default: the intervals of the spec's §9. */
  readonly readTiming?: ReadTiming;
  /**
   * Keys the digests that outlive content (P8): 32 bytes or more, or their text in hex or base64. Default: a key that the ledger
   * makes and keeps in its database. One that is given is kept nowhere; the ledger then opens with it alone.
   */
  readonly digestKey?: DigestKey;
  /**
   * What remembers outside of the database how far the ledger had come, such as `fileWitness`. With it a restored backup is
   * recognised before the ledger is used, and revocations given since are asked for again; a revocation is answered once the witness
   * has it. Default: none, and whoever restores a backup says so (`recognizeRestore`).
   */
  readonly witness?: Witness;
  readonly witnessOptions?: WitnessOptions;
}

/**
 * Opens a ledger, and creates or migrates its tables.
 *
 * @param address `file:DIR` (embedded), `postgres://…`, or a `pg.Pool` of the caller's own
 * @throws {FencelineError} `address_invalid`, `address_in_use`, `database_unreachable`, `directory_incompatible`,
 * `input_invalid`, `schema_invalid_name`, `schema_newer`, `migration_failed`, `migration_changed`, `digest_key_invalid`,
 * `digest_key_missing`, `digest_key_wrong`, `session_unsuitable`, `witness_failed`, `witness_of_another_ledger`
 */
export async function openLedger(address: string | pg.Pool, options: OpenLedgerOptions = {}): Promise<Ledger> {
  const {
    schema = "fenceline",
    readTiming,
    digestKey,
    witness,
    witnessOptions,
    listenAddress,
    maxConnections,
  } = options;
  if (readTiming !== undefined) checkArgument("options.readTiming", readTimingArgument, readTiming);
  const database = await openDatabase(address, {
    ...(listenAddress === undefined ? {} : { listenAddress }),
    ...(maxConnections === undefined ? {} : { maxConnections }),
  });
  try {
    await migrate(database, { schema } satisfies MigrateOptions);
    const queryable = queryableInSchema(database, schema);
    const identity = await readIdentity(queryable, digestKey);
    const parts = { database, schema, queryable, identity };
    const bare = composeLedger(parts, readTiming);
    if (witness === undefined) return bare;
    const kept = await WitnessKeeper.start(queryable, bare, witness, witnessOptions);
    return composeLedger({ ...parts, ...kept }, readTiming);
  } catch (error) {
    await database.close();
    throw error;
  }
}

interface LedgerParts {
  readonly database: Database;
  readonly schema: string;
  readonly queryable: Queryable;
  readonly identity: LedgerIdentity;
  readonly keeper?: WitnessKeeper;
  readonly restored?: RestoreReport | undefined;
}

function composeLedger(parts: LedgerParts, timing: ReadTiming | undefined): Ledger {
  const { database, schema, queryable, identity, keeper, restored } = parts;
  const channel = `${schema}.wake`;
  const revocations = revocationLedger(queryable, identity);
  const completeness = completenessLedger(queryable, timing);
  return {
    ...sessionLedger(queryable),
    ...scanLedger(queryable, timing),
    ...completeness,
    ...subscriptionLedger(queryable, timing),
    ...readLedger(queryable, timing),
    ...lineageLedger(queryable, identity),
    ...visibilityLedger(queryable, identity),
    ...grantLedger(queryable),
    ...revocations,
    revoke: answeredWhenWitnessed(keeper, revocations.revoke),
    revokeByEnumeration: answeredWhenWitnessed(keeper, completeness.revokeByEnumeration),
    ...auditLedger(queryable, identity),
    ...restoreLedger(queryable, identity),
    ...recordLedger(queryable, identity),
    ...retentionLedger(database, queryable),
    address: database.address,
    schema,
    database,
    restored,
    onWake: (onWake) => listenForWakes(database, channel, onWake),
    async announce(wake) {
      const known = checkArgument("wake", wakeArgument, wake);
      await queryable.query("select pg_notify($1, $2)", [channel, JSON.stringify(known)]);
    },
    takeDigestKeyOut: async () => (await takeDigestKeyOut(queryable, identity)).toString("hex"),
    withReadTiming(other) {
      checkArgument("timing", readTimingArgument, other);
      return composeLedger(parts, other);
    },
    async close() {
      await keeper?.close();
      await database.close();
    },
  };
}

/** A revocation is answered once the witness has it: a backup restored later does not undo what somebody was told. */
function answeredWhenWitnessed<Values extends unknown[], Answer>(
  keeper: WitnessKeeper | undefined,
  revoke: (...values: Values) => Promise<Answer>,
): (...values: Values) => Promise<Answer> {
  if (keeper === undefined) return revoke;
  return async (...values) => {
    const answer = await revoke(...values);
    await keeper.recordRevocations();
    return answer;
  };
}

function listenForWakes(database: Database, channel: string, onWake: (wake: Wake) => void): Promise<Listening> {
  return database.listen(channel, (payload) => {
    const wake = parseWake(payload);
    if (wake) onWake(wake);
  });
}

/**
 * Any role of the database may announce whatever it likes, and a newer version what this one does not know. As a wake is
 * only a hint, that is left aside.
 */
function parseWake(payload: string): Wake | undefined {
  try {
    return wakeArgument.safeParse(JSON.parse(payload)).data;
  } catch {
    return undefined;
  }
}
