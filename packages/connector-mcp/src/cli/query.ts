import type { Command } from "commander";
import { InvalidArgumentError } from "commander";
import { chosenIndex } from "../config/chosen-index.js";
import type { GuardedHit } from "../langchain/guarded-retriever.js";
import { type CommonOptions, fencelineCommand, printAnswer, withContext } from "./command-context.js";
import { parseCount, parseName, parseText } from "./option-values.js";

interface QueryOptions extends CommonOptions {
  readonly as: string[];
  readonly index?: string;
  readonly k: number;
}

/** `fenceline query`: asks an index as somebody, and shows what that asker may see. */
export function queryCommand(): Command {
  return fencelineCommand("query", [
    'query "what does the basic plan cost?" --as user:alice,group:sales',
    'query "who is on call?" --as user:alice --index main --k 10 --json',
  ])
    .description("ask an index, as somebody; what is changed, unverified or expired is shown and marked")
    .argument("<text>", "the question", parseText)
    .requiredOption("--as <asker>", "the user first, then its groups: user:alice,group:sales", parseAsker)
    .option("--index <name>", "the index to ask (default: the only one)", parseName)
    .option("--k <count>", "answers at most", parseCount, 4)
    .action((text: string, options: QueryOptions) =>
      withContext(
        options,
        async ({ config, ledger, json }) => {
          const { openIndex } = await import("../jobs/configured-indexes.js");
          const index = await openIndex({ config, ledger, name: chosenIndex(config, options.index) });
          try {
            const answer = await index
              .asRetriever({ k: options.k, freshness: "mark" })
              .search(text, { asker: options.as });
            printAnswer(json, answer, () => [
              ...(answer.hits.length === 0 ? ["nothing that this asker may see"] : answer.hits.flatMap(describeHit)),
              ...(answer.truncated ? ["stopped short: there may be more that this asker may see"] : []),
            ]);
          } finally {
            await index.close();
          }
        },
        (config) => chosenIndex(config, options.index),
      ),
    );
}

function describeHit({ uri, freshness, verifiedAt, score, text, id }: GuardedHit): string[] {
  const verified = verifiedAt === undefined ? "" : `, verified ${verifiedAt.toISOString()}`;
  return [
    `${uri}  (${freshness}${verified}, score ${score.toFixed(3)})`,
    ...text.split("\n").map((line) => `  ${line}`),
    `  entry ${id}`,
  ];
}

function parseAsker(value: string): string[] {
  const asker = value.split(",").map((subject) => subject.trim());
  if (asker.some((subject) => subject === "")) throw new InvalidArgumentError("Give subjects, separated by commas.");
  return asker;
}
