import { Document } from "@langchain/core/documents";
import { RunnableLambda, RunnableSequence } from "@langchain/core/runnables";
import { tool } from "@langchain/core/tools";
import { BaseTracer, type Run } from "@langchain/core/tracers/base";
import { beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { BoundedStore } from "#src/langchain/bounded-store.js";
import { GuardedRetriever } from "#src/langchain/guarded-retriever.js";
import { HashedLexicalEmbeddings } from "#src/langchain/hashed-lexical-embeddings.js";
import { storeAdapterOf } from "#src/langchain/store-adapter.js";
import { MemoryStore } from "./memory-stores.js";
import { ScriptedVisibility } from "./scripted-visibility.js";

const embeddings = new HashedLexicalEmbeddings();
const ALICE = { configurable: { asker: ["user:alice", "group:sales"], token: "secret-of-alice" } };
const BOB = { configurable: { asker: ["user:bob"], token: "secret-of-bob" } };

let retriever: GuardedRetriever;

beforeEach(async () => {
  const store = new MemoryStore(embeddings);
  const ledger = new ScriptedVisibility();
  for (const name of ["alice", "bob"]) {
    await store.addDocuments([new Document({ id: name, pageContent: `the plan of ${name}`, metadata: {} })]);
  }
  ledger.show("alice", ["group:sales"]);
  ledger.show("bob", ["user:bob"]);
  const bounded = new BoundedStore(storeAdapterOf(store), { timeoutMs: 1_000 });
  retriever = new GuardedRetriever({ ledger, index: "main", store: bounded, embeddings });
});

/** Everything that a tracer is told. */
class Witness extends BaseTracer {
  name = "witness";
  readonly runs: Run[] = [];

  protected async persistRun(run: Run): Promise<void> {
    this.runs.push(run);
  }

  get told(): string {
    return JSON.stringify(this.runs);
  }
}

const join = (documents: { pageContent: string }[]) => documents.map(({ pageContent }) => pageContent).join("; ");

/** The ways in which a retriever is used, each of them called with a question and a config. */
const uses: [how: string, use: () => { invoke(input: string, config?: object): Promise<unknown> }][] = [
  ["a sequence", () => RunnableSequence.from([(question: string) => question.trim(), retriever, join])],
  [
    "a function that hands its config on",
    () => RunnableLambda.from(async (question: string, config) => join(await retriever.invoke(question, config))),
  ],
  [
    "a tool made of it",
    () => retriever.pipe(join).asTool({ name: "plans", description: "finds plans", schema: z.string() }),
  ],
  [
    "a tool that hands its config on",
    () =>
      tool(async (question: string, config) => join(await retriever.invoke(question, config)), {
        name: "plans",
        description: "finds plans",
        schema: z.string(),
      }),
  ],
  ["a config bound to it", () => retriever.withConfig({ tags: ["bound"] }).pipe(join)],
];

describe.each(uses)("in %s", (_how, use) => {
  test("each of two askers at once gets what is granted to that one (G2)", async () => {
    const chain = use();
    const asked = [ALICE, BOB, ALICE, BOB].map((config) => chain.invoke("plan", config));
    expect(await Promise.all(asked)).toEqual(["alice", "bob", "alice", "bob"].map((name) => `the plan of ${name}`));
  });

  test("without an asker nothing is answered, and nobody else's asker is used (G2)", async () => {
    const chain = use();
    await chain.invoke("plan", ALICE);
    await expect(chain.invoke("plan", {})).rejects.toMatchObject({ code: "asker_missing" });
  });

  test("a tracer hears neither who asks nor a token that travels along", async () => {
    const witness = new Witness();
    await use().invoke("plan", { ...ALICE, callbacks: [witness] });
    expect(witness.told).toContain("plan");
    expect(witness.told).not.toMatch(/user:alice|group:sales|secret/);
  });
});
