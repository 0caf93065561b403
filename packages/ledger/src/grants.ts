import type { UriScope } from "./resource-uri.js";

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
  replaceConfiguredGrants(sources: readonly string[], grants: readonly Grant[]): Promise<{ added: number; withdrawn: number }>;
  listGrants(filter?: { readonly source?: string; readonly audience?: string }): Promise<(Grant & { origin: GrantOrigin })[]>;
}
