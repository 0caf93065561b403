import { derivationArguments } from "./arguments/derivations.js";
import type { Queryable } from "./database/database.js";
import { type Alternatives, closureOf, type ParentRoots, type Root } from "./derived-roots.js";
import { assert, FencelineError } from "./errors.js";
import { call } from "./fenced-call.js";
import { entryIds, type LedgerIdentity } from "./identity.js";
import type { IndexWork } from "./index-work.js";
import type { IndexRef } from "./indexes.js";
import { checkedCalls } from "./input.js";
import { parseLineageId } from "./lineage-id.js";
import type { DerivedEntry } from "./records/derived-entry.js";
import { keyDigest } from "./resource-rows.js";
import { resourceKey } from "./resource-uri.js";

/** A version (or the part of it with this URI), or another entry. */
export type ParentRef = { readonly lineageId: string; readonly part?: string } | { readonly entryId: string };

/**
 * What an entry is made from (L1). Each `ingredient` has to live, and be visible to the asker; of the `alternative`s with one
 * `ingredient` number (default 0) one is enough.
 */
export type DerivedParent =
  | { readonly as: "ingredient"; readonly of: ParentRef }
  | { readonly as: "alternative"; readonly of: ParentRef; readonly ingredient?: number };

/** Entries with the same parents, about to be written. */
export interface Derivation {
  /** Cached embeddings have calls of their own. */
  readonly kind: Exclude<DerivedEntry["kind"], "embedding">;
  /** At least one. */
  readonly parents: readonly DerivedParent[];
  /** Hex, from `digestChunk`: one per entry. */
  readonly digests: readonly string[];
  /** Made for this subject alone: nobody else sees it, and revoking it purges it (P3). Default: for whoever is granted its parents. */
  readonly audience?: string;
}

export type DerivationProblem =
  /** There is no such version, entry or part. */
  | "parent_unknown"
  /** An entry that is not, or no longer, in its store. */
  | "parent_gone"
  /** A standing revocation of its reader, or of the audience, covers it. */
  | "parent_revoked"
  /** Its resource is hidden: forbidden, being deleted, or to be reconciled. */
  | "parent_hidden"
  /** A newer version was accepted. */
  | "parent_superseded"
  /** An entry that was made for another audience alone. */
  | "parent_for_others"
  | "index_retired";

/** Refused: nothing was recorded, so nothing may be written. */
export type RecordedDerivation =
  | { readonly outcome: "recorded"; readonly groupId: number; readonly entryIds: readonly string[] }
  | { readonly outcome: DerivationProblem };

/** Any other than `confirmed`: it was given up, and the purge path removes what was written. `group_gone`: its lease had ended. */
export type DerivationOutcome = "confirmed" | "group_gone" | DerivationProblem;

export interface DerivationLedger {
  /**
   * Records derived entries before they are written anywhere (L2), in the order given: a group each, with the closure of its
   * parents. Write them, and confirm within `leaseMs`; later the purge path takes them.
   *
   * @throws {FencelineError} `derivation_too_large`: made of more than 10,000 ingredients
   */
  recordDerived(
    index: IndexRef,
    derivations: readonly Derivation[],
    options: { readonly leaseMs: number },
  ): Promise<RecordedDerivation[]>;
  /** Serves derived entries that were written, if every ingredient still lives; in the order given, each group once. */
  confirmDerived(groupIds: readonly number[]): Promise<DerivationOutcome[]>;
  /** Cached embeddings of these chunk texts of a part, by chunk digest; attach them before use. */
  cachedEmbeddings(
    cache: IndexRef,
    of: { readonly work: IndexWork; readonly partId: number; readonly chunkDigests: readonly string[] },
  ): Promise<Map<string, string>>;
  /**
   * Lets cached embeddings stand for one more version that has their texts (L5). Those answered with do; embed the texts of the
   * others anew: they were purged, or the version is no longer the newest one that may be served.
   */
  attachEmbeddings(cache: IndexRef, work: IndexWork, entryIds: readonly string[]): Promise<string[]>;
  /**
   * Records embeddings to be cached, a group per part; confirm them with `confirmDerived`. They live while a version of the
   * same (source, URI) stands on them, and end when the next one is confirmed without.
   */
  recordEmbeddings(
    cache: IndexRef,
    parts: readonly { readonly work: IndexWork; readonly partId: number; readonly chunkDigests: readonly string[] }[],
    options: { readonly leaseMs: number },
  ): Promise<RecordedDerivation[]>;
}

/** The derived entries of a ledger; see `DerivationLedger`. The rules are in `functions/derivations.sql` and `functions/embedding-cache.sql`. */
export function derivationLedger(database: Queryable, identity: LedgerIdentity): DerivationLedger {
  const ids = entryIds(identity);

  async function record(
    index: IndexRef,
    groups: readonly PlannedGroup[],
    leaseMs: number,
  ): Promise<RecordedDerivation[]> {
    if (groups.length === 0) return [];
    for (const { digests } of groups) assert(digests.length > 0, "A derivation has at least one entry.");
    const digests = placed(groups, (group) => group.digests);
    const parents = placed(groups, (group) => group.parents);
    const roots = placed(groups, (group) =>
      group.closure.flatMap((alternatives, ingredient) => alternatives.map((root) => ({ ...root, ingredient }))),
    );
    const rows = await database.query<RecordedRow>(
      "select * from fenceline.record_derived($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
      [
        index.indexId,
        leaseMs,
        groups.map(({ kind }) => kind),
        groups.map(({ audience }) => audience ?? null),
        digests.map(({ item }) => Buffer.from(item, "hex")),
        digests.map(({ place }) => place),
        parents.map(({ place }) => place),
        parents.map(({ item }) => item.ingredient),
        parents.map(({ item }) => item.entry),
        parents.map(({ item }) => item.subscriptionId),
        parents.map(({ item }) => item.ordinal),
        parents.map(({ item }) => item.part),
        roots.map(({ place }) => place),
        roots.map(({ item }) => item.ingredient),
        roots.map(({ item }) => item.subscriptionId),
        roots.map(({ item }) => item.ordinal),
        roots.map(({ item }) => item.partId),
      ],
    );
    const rowOf = new Map(rows.map((row) => [row.place, row]));
    return groups.map((_, position) => {
      const row = rowOf.get(position + 1);
      assert(row !== undefined, "record_derived answers for every group.");
      if (row.outcome !== "recorded") return { outcome: row.outcome };
      const entryIds = (row.entry_numbers ?? []).map((number) => ids.format(index.indexId, number));
      return { outcome: row.outcome, groupId: row.group_id as number, entryIds };
    });
  }

  /** What each of these parents stands on, in their order. */
  async function rootsOf(parents: readonly NamedParent[]): Promise<ParentRoots[]> {
    const rows = await database.query<RootRow>("select * from fenceline.parent_roots($1, $2, $3, $4)", [
      parents.map(({ entry }) => entry),
      parents.map(({ subscriptionId }) => subscriptionId),
      parents.map(({ ordinal }) => ordinal),
      parents.map(({ part }) => part),
    ]);
    const found = parents.map(() => new Map<number, Root[]>());
    for (const { parent, ingredient, subscription_id: subscriptionId, ordinal, part_id: partId } of rows) {
      const roots = found[parent - 1] as Map<number, Root[]>;
      roots.set(ingredient, [...(roots.get(ingredient) ?? []), { subscriptionId, ordinal, partId }]);
    }
    return found.map((roots) => [...roots.values()]);
  }

  return checkedCalls(derivationArguments, {
    async recordDerived(index, derivations, { leaseMs }) {
      const named = derivations.map(({ parents }) => namedParents(parents, ids.numberOf));
      const roots = await rootsOf(named.flat());
      let next = 0;
      const groups = derivations.map(({ kind, digests, audience }, position): PlannedGroup => {
        const parents = named[position] as readonly NamedParent[];
        const ingredients = new Map<number, ParentRoots[]>();
        for (const { ingredient } of parents) {
          ingredients.set(ingredient, [...(ingredients.get(ingredient) ?? []), roots[next] as ParentRoots]);
          next += 1;
        }
        const closure = closureWithin([...ingredients.values()]);
        return { kind, digests, parents, closure, ...(audience !== undefined && { audience }) };
      });
      return record(index, groups, leaseMs);
    },

    async confirmDerived(groupIds) {
      if (groupIds.length === 0) return [];
      const rows = await database.query<{ group_id: number; outcome: DerivationOutcome }>(
        "select * from fenceline.confirm_derived($1)",
        [groupIds],
      );
      const outcomeOf = new Map(rows.map((row) => [row.group_id, row.outcome]));
      return groupIds.map((groupId) => outcomeOf.get(groupId) ?? "group_gone");
    },

    async cachedEmbeddings(cache, { work, partId, chunkDigests }) {
      const rows = await database.query<{ chunk_digest: Buffer; entry_number: number }>(
        "select * from fenceline.cached_embeddings($1, $2, $3, $4)",
        [cache.indexId, work.subscriptionId, partId, chunkDigests.map((digest) => Buffer.from(digest, "hex"))],
      );
      return new Map(
        rows.map((row) => [row.chunk_digest.toString("hex"), ids.format(cache.indexId, row.entry_number)]),
      );
    },

    async attachEmbeddings(cache, { subscriptionId, ordinal }, entryIds) {
      const numbers = entryIds.map((id) => ids.numberOf(id)).filter((number) => number !== undefined);
      const parameters = [cache.indexId, subscriptionId, ordinal, numbers];
      const attached = await call<number[]>(database, "fenceline.attach_embeddings($1, $2, $3, $4)", parameters);
      return attached.map((number) => ids.format(cache.indexId, number));
    },

    recordEmbeddings(cache, parts, { leaseMs }) {
      const groups = parts.map(({ work, partId, chunkDigests }): PlannedGroup => {
        const { subscriptionId, ordinal } = work;
        return {
          kind: "embedding",
          digests: chunkDigests,
          parents: [{ ingredient: 0, entry: null, subscriptionId, ordinal, part: null }],
          closure: [[{ subscriptionId, ordinal, partId }]],
        };
      });
      return record(cache, groups, leaseMs);
    },
  });
}

/** A parent as SQL takes it: the number of an entry, or a version with the key digest of a part. */
interface NamedParent {
  readonly ingredient: number;
  readonly entry: number | null;
  readonly subscriptionId: number | null;
  readonly ordinal: number | null;
  readonly part: Buffer | null;
}

interface PlannedGroup {
  readonly kind: DerivedEntry["kind"];
  readonly digests: readonly string[];
  readonly parents: readonly NamedParent[];
  /** Empty: a parent has no root, so SQL refuses it and says why. */
  readonly closure: readonly Alternatives[];
  readonly audience?: string;
}

interface RecordedRow {
  readonly place: number;
  readonly outcome: "recorded" | DerivationProblem;
  readonly group_id: number | null;
  readonly entry_numbers: readonly number[] | null;
}

interface RootRow {
  readonly parent: number;
  readonly ingredient: number;
  readonly subscription_id: number;
  readonly ordinal: number;
  readonly part_id: number;
}

/** No version and no entry has it: what an id of another ledger is recorded as, so that it is unknown. */
const NOTHING = -1;

/** Parents with their ingredients numbered from 0: alternatives of one number share one, each ingredient has its own. */
function namedParents(
  parents: readonly DerivedParent[],
  numberOf: (entryId: string) => number | undefined,
): NamedParent[] {
  const alternatives = new Map<number, number>();
  let ingredients = 0;
  return parents.map((parent) => {
    let ingredient: number;
    if (parent.as === "ingredient") {
      ingredient = ingredients++;
    } else {
      const key = parent.ingredient ?? 0;
      ingredient = alternatives.get(key) ?? ingredients++;
      alternatives.set(key, ingredient);
    }
    const { of } = parent;
    if ("entryId" in of) {
      return { ingredient, entry: numberOf(of.entryId) ?? NOTHING, subscriptionId: null, ordinal: null, part: null };
    }
    const version = parseLineageId(of.lineageId) ?? { subscriptionId: NOTHING, ordinal: NOTHING };
    return {
      ingredient,
      entry: null,
      ...version,
      part: of.part === undefined ? null : keyDigest(resourceKey(of.part)),
    };
  });
}

function closureWithin(ingredients: readonly (readonly ParentRoots[])[]): Alternatives[] {
  if (ingredients.some((parents) => parents.some((roots) => roots.length === 0))) return [];
  const closure = closureOf(ingredients);
  if (closure !== undefined) return closure;
  throw new FencelineError(
    "derivation_too_large",
    "An entry is made of more than 10,000 ingredients: derive it in steps, or name fewer parents.",
  );
}

/** The items of all groups in a row, each with the place of its group from 1. */
function placed<Group, Item>(groups: readonly Group[], itemsOf: (group: Group) => readonly Item[]) {
  return groups.flatMap((group, position) => itemsOf(group).map((item) => ({ place: position + 1, item })));
}
