import { describe, expect, test } from "vitest";
import { HashedLexicalEmbeddings } from "#src/langchain/hashed-lexical-embeddings.js";

const embeddings = new HashedLexicalEmbeddings();

const PLAN_CARDS = {
  basic: "# Basic plan\n\nThe basic plan is 10 EUR per month. It has 5 GB of storage and support by e-mail.",
  pro: "# Pro plan\n\nThe pro plan is 25 EUR per month. It has 100 GB of storage and support by telephone.",
  enterprise: "# Enterprise plan\n\nThe price is agreed with you. What does it contain? Everything the others do.",
  returns:
    "# Returns\n\nWhat do you do when the thing does not work? You can send it back within 30 days, at our cost.",
};

async function rank(question: string, texts: Record<string, string>): Promise<string[]> {
  const query = await embeddings.embedQuery(question);
  const vectors = await embeddings.embedDocuments(Object.values(texts));
  const scored = Object.keys(texts).map((name, position) => ({ name, score: dot(query, vectors[position] ?? []) }));
  return scored.sort((left, right) => right.score - left.score).map(({ name }) => name);
}

function dot(left: readonly number[], right: readonly number[]): number {
  return left.reduce((sum, value, position) => sum + value * (right[position] ?? Number.NaN), 0);
}

describe("hashed lexical embeddings", () => {
  test("equal text gives an equal vector, in another instance and as question or document", async () => {
    const other = new HashedLexicalEmbeddings();
    const [document] = await other.embedDocuments(["The basic plan"]);
    expect(document).toEqual(await embeddings.embedQuery("The basic plan"));
  });

  test("the space is pinned: its name changes when this vector does", async () => {
    const vector = await embeddings.embedQuery("The price of the basic plan is 100 EUR. 価格は百円です");
    const weights = vector.flatMap((value, position) => (value === 0 ? [] : [`${position}:${value.toFixed(4)}`]));
    expect(embeddings.embeddingSpace).toBe("hashed-lexical/1@1024");
    expect(weights.slice(0, 8)).toMatchInlineSnapshot(`
      [
        "9:0.0724",
        "10:0.3619",
        "14:0.0627",
        "19:0.0434",
        "33:-0.0434",
        "42:-0.0434",
        "46:0.3619",
        "71:0.0627",
      ]
    `);
  });

  test("every vector has 1024 dimensions and length 1, even without a word in the text", async () => {
    for (const vector of await embeddings.embedDocuments([
      "",
      " \n",
      "!?",
      "the",
      "a plan",
      "価格",
      "x".repeat(50_000),
    ])) {
      expect(vector).toHaveLength(1024);
      expect(dot(vector, vector)).toBeCloseTo(1, 9);
    }
  });

  test.each([
    ["what does the basic plan cost?", "basic"],
    ["What is the price of the Pro plan per month?", "pro"],
    ["how do I send something back", "returns"],
    ["is there an enterprise offer?", "enterprise"],
    ["PROs", "pro"],
  ])("the words that matter decide, not those of grammar: %s", async (question, expected) => {
    expect((await rank(question, PLAN_CARDS))[0]).toBe(expected);
  });

  test("the same characters in another Unicode form are the same text", async () => {
    expect(await embeddings.embedQuery("Cafe\u0301 ﬁne")).toEqual(await embeddings.embedQuery("CAFÉ fine"));
  });

  test("numbers that begin alike are not alike", async () => {
    const [ten, hundred, again] = await embeddings.embedDocuments(["10", "100", "10"]);
    expect(dot(ten ?? [], hundred ?? [])).toBeLessThan(0.5);
    expect(dot(ten ?? [], again ?? [])).toBeCloseTo(1, 9);
  });

  test("words of a script without spaces are found inside a sentence", async () => {
    const cards = {
      basic: "基本プランは月額千円です",
      pro: "上級プランは月額三千円です",
      returns: "返品は三十日以内にお願いします",
    };
    expect((await rank("返品", cards))[0]).toBe("returns");
    expect((await rank("基本", cards))[0]).toBe("basic");
  });

  test("a long batch leaves room for other work of the process", async () => {
    let turns = 0;
    let ended = false;
    const countTurns = () => {
      turns += 1;
      if (!ended) setImmediate(countTurns);
    };
    setImmediate(countTurns);
    await embeddings.embedDocuments(Array.from({ length: 8_000 }, (_, n) => `${n} ${PLAN_CARDS.returns.repeat(10)}`));
    ended = true;
    expect(turns).toBeGreaterThan(1);
  });
});
