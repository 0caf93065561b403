import { FencelineError } from "./errors.js";
import { EVERY_SOURCE, hashPrefix } from "./resource-rows.js";
import type { RevocationRole } from "./revocations.js";
import { formatUriScope } from "./scope-text.js";
import { denialRanges, denialTexts, type UriScope } from "./uri-scope.js";

/**
 * What a revocation denies and why, as `fenceline.revoke` and `fenceline.revoke_absent` take it from `p_subject` on. The scope is
 * judged at once; the answer takes the source, `null` for every source.
 *
 * @throws {FencelineError} `uri_invalid`
 */
export function revocationParameters(asked: {
  readonly subject: string;
  readonly role: RevocationRole;
  readonly scope: UriScope;
  readonly reason: string;
  readonly requestedBy: string;
}): (sourceId: number | null) => unknown[] {
  const { subject, role, scope, reason, requestedBy } = asked;
  const { key, match } = denialRanges(scope);
  const about = [subject, role, formatUriScope(scope), reason, requestedBy, key.from, key.to, match.from, match.to];
  return (sourceId) => [
    ...about,
    denialTexts(scope).map((text) => hashPrefix(sourceId ?? EVERY_SOURCE, text).toString()),
  ];
}

/** The error for a request id that was used for another request (P1). */
export function requestIdReused(requestId: string): FencelineError {
  return new FencelineError(
    "request_id_reused",
    `The request ${JSON.stringify(requestId)} was made before with other contents: use a new id for a new request.`,
  );
}
