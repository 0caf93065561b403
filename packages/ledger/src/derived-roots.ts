/**
 * The closure of a derived entry (L1), pure: which versions it stands on, through every derivation between.
 *
 * An entry lives while each of its ingredients has a living alternative. A parent that is itself made of several ingredients
 * brings all of them; as one alternative of several it is distributed over the others: (a and b) or c is (a or c) and (b or c).
 */

/** A version under one reader, and which part of it. */
export interface Root {
  readonly subscriptionId: number;
  readonly ordinal: number;
  readonly partId: number;
}

/** Roots of which one has to live. */
export type Alternatives = readonly Root[];

/** Ingredients of a parent, each with its alternatives: all have to live. None: the parent has no living root. */
export type ParentRoots = readonly Alternatives[];

/** Beyond this an entry is made of so much that every change of anything ends it. */
const MAX_INGREDIENTS = 10_000;

/**
 * Flattens the ingredients of an entry, each given as its alternative parents, into the ingredients of its closure. What says
 * the same as another, or less, is left out.
 *
 * @returns `undefined`: a parent has no root, or there would be more than 10,000 ingredients
 */
export function closureOf(ingredients: readonly (readonly ParentRoots[])[]): Alternatives[] | undefined {
  const closure: Alternatives[] = [];
  for (const parents of ingredients) {
    let distributed: Alternatives[] = [[]];
    for (const parent of parents) {
      if (parent.length === 0 || parent.length * distributed.length > MAX_INGREDIENTS) return undefined;
      distributed = distributed.flatMap((one) => parent.map((other) => [...one, ...other]));
    }
    closure.push(...distributed);
    if (closure.length > MAX_INGREDIENTS) return undefined;
  }
  return withoutImplied(closure.map(distinct));
}

function keyOf({ subscriptionId, ordinal, partId }: Root): string {
  return `${subscriptionId} ${ordinal} ${partId}`;
}

function distinct(alternatives: Alternatives): Alternatives {
  return [...new Map(alternatives.map((root) => [keyOf(root), root])).values()];
}

/** Leaves out ingredients that hold all the alternatives of another one: where that one lives, so do they. */
function withoutImplied(closure: readonly Alternatives[]): Alternatives[] {
  const kept: { keys: ReadonlySet<string>; alternatives: Alternatives }[] = [];
  const keptWith = new Map<string, typeof kept>();
  for (const alternatives of [...closure].sort((one, other) => one.length - other.length)) {
    const keys = new Set(alternatives.map(keyOf));
    const implied = [...keys].some((key) =>
      (keptWith.get(key) ?? []).some((other) => [...other.keys].every((each) => keys.has(each))),
    );
    if (implied) continue;
    const one = { keys, alternatives };
    kept.push(one);
    for (const key of keys) keptWith.set(key, [...(keptWith.get(key) ?? []), one]);
  }
  return kept.map(({ alternatives }) => alternatives);
}
