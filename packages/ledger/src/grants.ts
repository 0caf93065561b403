import { grantArguments } from "./arguments/grants.js";
import type { Queryable } from "./database/database.js";
import { assert } from "./errors.js";
import { call } from "./fenced-call.js";
import { checkedCalls } from "./input.js";
import { hashPrefix } from "./resource-rows.js";
import type { UriScope } from "./resource-uri.js";
import { formatUriScope, parseUriScope } from "./scope-text.js";
import { sourceIdOf } from "./subjects.js";
import { scopeKey, scopeMatchKey } from "./uri-scope.js";

/** (source, reader, audience, URI scope): who may see what that reader read (G1). */
export interface Grant {
  readonly source: string;
  readonly reader: string;
  readonly audience: string;
  readonly scope: UriScope;
}

export type GrantOrigin = "config" | "api" | "cli";

export interface GrantLedger {
  /** Idempotent. */
  grant(grant: Grant, origin?: GrantOrigin): Promise<void>;
  /** `false`: there was none. */
  withdrawGrant(grant: Grant, origin?: GrantOrigin): Promise<boolean>;
  /** Makes the grants of origin `config` for these sources exactly these; one that left is withdrawn (G1). */
  replaceConfiguredGrants(
    sources: readonly string[],
    grants: readonly Grant[],
  ): Promise<{ added: number; withdrawn: number }>;
  listGrants(filter?: {
    readonly source?: string;
    readonly audience?: string;
  }): Promise<(Grant & { origin: GrantOrigin })[]>;
}

/** The grants of a ledger; see `GrantLedger`. The rules are in `functions/grants.sql`. */
export function grantLedger(database: Queryable): GrantLedger {
  return checkedCalls(grantArguments, {
    async grant(grant, origin = "api") {
      const sourceId = await sourceIdOf(database, grant.source);
      const parameters = [sourceId, origin, ...grantParameters(sourceId, [grant])];
      await call(database, "fenceline.add_grants($1, $2, $3, $4, $5, $6, $7, $8)", parameters);
    },

    async withdrawGrant({ source, reader, audience, scope }, origin = "api") {
      const sourceId = await sourceIdOf(database, source);
      const key = scopeKey(scope);
      const parameters = [sourceId, origin, reader, audience, key, hashPrefix(sourceId, key).toString()];
      return (await call<number>(database, "fenceline.withdraw_grant($1, $2, $3, $4, $5, $6)", parameters)) > 0;
    },

    async replaceConfiguredGrants(sources, grants) {
      for (const { source } of grants)
        assert(sources.includes(source), `The source ${source} is among those replaced.`);
      const changes = { added: 0, withdrawn: 0 };
      for (const source of [...new Set(sources)].sort()) {
        const sourceId = await sourceIdOf(database, source);
        const theirs = grants.filter((grant) => grant.source === source);
        const [row] = await database.query<{ added: number; withdrawn: number }>(
          "select * from fenceline.replace_configured_grants($1, $2, $3, $4, $5, $6, $7)",
          [sourceId, ...grantParameters(sourceId, theirs)],
        );
        changes.added += row?.added ?? 0;
        changes.withdrawn += row?.withdrawn ?? 0;
      }
      return changes;
    },

    async listGrants({ source, audience } = {}) {
      const rows = await database.query<GrantRow>(
        `select src.name as source, r.name as reader, a.name as audience, g.scope_text, g.origin
         from fenceline.access_grant g
         join fenceline.source src using (source_id)
         join fenceline.subject r on r.subject_id = g.reader_id
         join fenceline.subject a on a.subject_id = g.audience_id
         where ($1::text is null or src.name = $1) and ($2::text is null or a.name = $2)
         order by g.grant_id`,
        [source ?? null, audience ?? null],
      );
      return rows.map(({ scope_text, ...grant }) => ({ ...grant, scope: parseUriScope(scope_text) }));
    },
  });
}

interface GrantRow {
  readonly source: string;
  readonly reader: string;
  readonly audience: string;
  readonly scope_text: string;
  readonly origin: GrantOrigin;
}

function grantParameters(sourceId: number, grants: readonly Grant[]): unknown[] {
  const keys = grants.map(({ scope }) => scopeKey(scope));
  return [
    grants.map(({ reader }) => reader),
    grants.map(({ audience }) => audience),
    grants.map(({ scope }) => formatUriScope(scope)),
    keys,
    grants.map(({ scope }) => scopeMatchKey(scope)),
    keys.map((key) => hashPrefix(sourceId, key).toString()),
  ];
}
