import type { UriScope } from "#src/uri-scope.js";

/** Grants and revocations (§6, §8) as plain lists. URIs of the model need no normalising: F10 has tests of its own. */
export class PolicyModel {
  readonly grants: ModelGrant[] = [];
  readonly revocations: ModelRevocation[] = [];

  grant(grant: ModelGrant): void {
    if (!this.grants.some((each) => sameGrant(each, grant))) this.grants.push(grant);
  }

  /** @returns whether there was one */
  withdraw(grant: ModelGrant): boolean {
    const place = this.grants.findIndex((each) => sameGrant(each, grant));
    if (place >= 0) this.grants.splice(place, 1);
    return place >= 0;
  }

  /** Effective at once (P2); what follows from it comes with `advance`. */
  revoke(asked: Pick<ModelRevocation, "subject" | "role" | "scope">): ModelRevocation {
    const revocation = {
      ...asked,
      number: this.revocations.length,
      lifted: false,
      advanced: false,
      waitsFor: new Set<string>(),
      took: new Set<string>(),
    };
    this.revocations.push(revocation);
    return revocation;
  }

  isRevokedAsReader(subject: string, uri: string): boolean {
    return this.#standing(subject, uri).some(({ role }) => role !== "audience");
  }

  isRevokedAsAudience(subject: string, uri: string): boolean {
    return this.#standing(subject, uri).some(({ role }) => role !== "reader");
  }

  /** One that stands and covers the URI for its reader; of several the earliest. */
  covering(reader: string, uri: string): ModelRevocation | undefined {
    return this.#standing(reader, uri).find(({ role }) => role !== "audience");
  }

  #standing(subject: string, uri: string): ModelRevocation[] {
    return this.revocations.filter((each) => !each.lifted && each.subject === subject && covers(each.scope, uri));
  }

  /** Whether this audience may see what the reader read: the resource and the part of it (G1, G2). */
  isGranted(reader: string, audience: string, uri: string, part: string): boolean {
    if (audience === reader) return true;
    const covered = (one: string) =>
      this.grants.some((each) => each.reader === reader && each.audience === audience && covers(each.scope, one));
    return covered(uri) && covered(part);
  }
}

export interface ModelGrant {
  readonly reader: string;
  readonly audience: string;
  readonly scope: UriScope;
}

export interface ModelRevocation {
  readonly number: number;
  readonly subject: string;
  readonly role: "reader" | "audience" | "both";
  readonly scope: UriScope;
  lifted: boolean;
  /** Every covered subscription is closed and every covered edge marked. */
  advanced: boolean;
  /** Entries that it has to see purged. */
  readonly waitsFor: Set<string>;
  /** Subscriptions (`reader uri`) that it took a part of. */
  readonly took: Set<string>;
}

/** One URI, everything below a prefix bound at a segment, or everything (P1). */
export function covers(scope: UriScope, uri: string): boolean {
  if ("everything" in scope) return true;
  if ("uri" in scope) return uri === scope.uri;
  return uri === scope.prefix || uri.startsWith(`${scope.prefix}/`);
}

function sameGrant(one: ModelGrant, other: ModelGrant): boolean {
  return (
    one.reader === other.reader &&
    one.audience === other.audience &&
    JSON.stringify(one.scope) === JSON.stringify(other.scope)
  );
}
