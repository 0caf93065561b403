import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { closureOf, type ParentRoots, type Root } from "#src/derived-roots.js";

const root = (number: number): Root => ({ subscriptionId: number, ordinal: 1, partId: number });
const aRoot = fc.integer({ min: 1, max: 6 }).map(root);
const someParent = fc.array(fc.array(aRoot, { minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 3 });
const someIngredients = fc.array(fc.array(someParent, { minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 3 });

describe("the closure of a derived entry", () => {
  test("lives for every choice of living versions exactly if each ingredient has a living alternative (L1)", () => {
    fc.assert(
      fc.property(someIngredients, fc.array(fc.boolean(), { minLength: 7, maxLength: 7 }), (ingredients, alive) => {
        const lives = ({ subscriptionId }: Root) => alive[subscriptionId] === true;
        const parentLives = (parent: ParentRoots) => parent.every((alternatives) => alternatives.some(lives));
        const expected = ingredients.every((parents) => parents.some(parentLives));
        const closure = closureOf(ingredients);
        expect(closure?.every((alternatives) => alternatives.some(lives))).toBe(expected);
      }),
    );
  });

  test("says nothing twice: chunks of one version are one ingredient", () => {
    const chunk: ParentRoots = [[root(1)]];
    expect(closureOf([[chunk], [chunk], [[[root(1), root(2)]]]])).toEqual([[root(1)]]);
  });

  test("is refused where a parent has no root, and where it would have more than 10,000 ingredients", () => {
    expect(closureOf([[[[root(1)]], []]])).toBeUndefined();
    const wide: ParentRoots = Array.from({ length: 101 }, (_, number) => [root(number)]);
    expect(closureOf([[wide, wide]])).toBeUndefined();
    expect(closureOf([[wide]])).toHaveLength(101);
  });
});
