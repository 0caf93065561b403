import { sessionArguments } from "./arguments/sessions.js";
import type { Queryable } from "./database/database.js";
import { assert } from "./errors.js";
import { call, fenceOf } from "./fenced-call.js";
import { checkedCalls } from "./input.js";
import { unknownSource } from "./subjects.js";

/** A source as the ledger knows it. */
export interface SourceRegistration {
  readonly name: string;
  /** Digest of the endpoint (command or URL), so that a source pointed elsewhere is noticed. */
  readonly endpointDigest?: Uint8Array;
  /** Staleness bound of what is read from it, in milliseconds (§9; default 15 min). */
  readonly stalenessMs?: number;
}

/** A source that the ledger has registered. */
export interface RegisteredSource {
  readonly name: string;
  /** As it was last registered. */
  readonly endpointDigest: Uint8Array | undefined;
  /** Since when no configuration names it, as somebody confirmed; until it is registered again. */
  readonly retiredAt: Date | undefined;
}

/** The one holder of (source, reader) for as long as its lease stands. Everything it writes is fenced by `generation`. */
export interface Session {
  readonly sessionId: number;
  readonly scopeId: number;
  readonly sourceId: number;
  readonly source: string;
  readonly reader: string;
  readonly generation: number;
  readonly leaseMs: number;
}

export type OpenSessionResult =
  | { readonly outcome: "opened"; readonly session: Session }
  | { readonly outcome: "held"; readonly owner: string; readonly expiresAt: Date };

/** What was negotiated with a server, kept as a capability receipt (U1). */
export interface NegotiatedCapabilities {
  readonly era: "modern" | "legacy";
  readonly protocolVersion: string;
  readonly server?: { readonly name: string; readonly version: string };
  readonly resources: boolean;
  readonly subscribe: boolean;
  readonly listChanged: boolean;
  /** The extension by which every page of a list binds a snapshot id (S3). Default false. */
  readonly snapshotId?: boolean;
}

export interface SessionLedger {
  /** Registers a source, or brings its settings up to date; one that was retired is in use again. */
  registerSource(source: SourceRegistration): Promise<void>;
  /** In order of their names. */
  registeredSources(): Promise<RegisteredSource[]>;
  /**
   * How many resources of a source live: something was accepted of them that is neither deleted nor revoked for its reader. Looks at
   * each of them; 0 also where the source is not registered.
   */
  livingResources(source: string): Promise<number>;
  /** Remembers that no configuration names a source any more. What was derived from it stays. `unknown`: it is not registered. */
  retireSource(name: string): Promise<"retired" | "unknown">;
  /**
   * Takes the session of (source, reader) where it is free or its lease has ended; the generation rises, and whatever an
   * earlier holder still sends is refused. Every pushed subscription becomes unverified: its streams get a new epoch (U4).
   */
  openSession(request: {
    readonly source: string;
    readonly reader: string;
    readonly owner: string;
    readonly leaseMs: number;
  }): Promise<OpenSessionResult>;
  /** Prolongs the lease from now. `lost`: the lease ended or another holder took over; stop at once. */
  heartbeat(session: Session): Promise<"held" | "lost">;
  /** Ends the session, never its subscriptions (F6). Pushed content becomes unverified. */
  endSession(session: Session): Promise<void>;
  recordCapabilities(session: Session, negotiated: NegotiatedCapabilities): Promise<void>;
  /** A 401: the scope is unverified until a read of it succeeds or it is resumed; nothing is revoked (P7). */
  suspendScope(session: Session, cause: string): Promise<void>;
  resumeScope(session: Session): Promise<void>;
}

/** The sessions of a ledger; see `SessionLedger`. The rules are in `functions/sessions.sql`. */
export function sessionLedger(database: Queryable): SessionLedger {
  return checkedCalls(sessionArguments, {
    async registerSource({ name, endpointDigest, stalenessMs }) {
      await database.query("select fenceline.register_source($1, $2, $3)", [
        name,
        endpointDigest ? Buffer.from(endpointDigest) : null,
        stalenessMs ?? null,
      ]);
    },

    async registeredSources() {
      const rows = await database.query<RegisteredSourceRow>(
        "select name, endpoint_digest, retired_at from fenceline.source order by name",
      );
      return rows.map(({ name, endpoint_digest: endpointDigest, retired_at: retiredAt }) => ({
        name,
        endpointDigest: endpointDigest ?? undefined,
        retiredAt: retiredAt ?? undefined,
      }));
    },

    livingResources: (source) => call(database, "fenceline.living_resources($1)", [source]),

    retireSource: (name) => call(database, "fenceline.retire_source($1)", [name]),

    async openSession({ source, reader, owner, leaseMs }) {
      const [row] = await database.query<OpenSessionRow>("select * from fenceline.open_session($1, $2, $3, $4)", [
        source,
        reader,
        owner,
        leaseMs,
      ]);
      assert(row !== undefined, "open_session answers with one row.");
      switch (row.outcome) {
        case "source_unknown":
          throw unknownSource(source);
        case "held":
          return { outcome: "held", owner: row.owner, expiresAt: row.expires_at };
        case "opened": {
          const { session_id: sessionId, scope_id: scopeId, source_id: sourceId, generation } = row;
          return { outcome: "opened", session: { sessionId, scopeId, sourceId, source, reader, generation, leaseMs } };
        }
      }
    },

    async heartbeat(session) {
      return call<"held" | "lost">(database, "fenceline.heartbeat($1, $2)", fenceOf(session));
    },

    async endSession(session) {
      await call(database, "fenceline.end_session($1, $2)", fenceOf(session));
    },

    async recordCapabilities(session, negotiated) {
      const parameters = [...fenceOf(session), JSON.stringify(negotiated)];
      await call(database, "fenceline.record_capabilities($1, $2, $3)", parameters);
    },

    async suspendScope(session, cause) {
      await call(database, "fenceline.suspend_scope($1, $2, $3)", [...fenceOf(session), cause]);
    },

    async resumeScope(session) {
      await call(database, "fenceline.suspend_scope($1, $2, null)", fenceOf(session));
    },
  });
}

interface RegisteredSourceRow {
  readonly name: string;
  readonly endpoint_digest: Buffer | null;
  readonly retired_at: Date | null;
}

type OpenSessionRow =
  | { outcome: "source_unknown" }
  | { outcome: "held"; owner: string; expires_at: Date }
  | { outcome: "opened"; session_id: number; scope_id: number; source_id: number; generation: number };
