import type { Command } from "commander";
import { InvalidArgumentError } from "commander";
import { type CommonOptions, fencelineCommand, printAnswer, withContext } from "./command-context.js";

interface QueryOptions extends CommonOptions {
  readonly as: string[];
  readonly index?: string;
  readonly k: number;
}

/** `fenceline query`: asks an index as somebody, and shows what that asker may see. */
export function queryCommand(): Command {
  return fencelineCommand("query")
    .description("ask an index, as somebody")
    .argument("<text>", "the question")
    .requiredOption("--as <asker>", "the user first, then its groups: user:alice,group:sales", parseAsker)
    .option("--index <name>", "the index to ask (default: the only one)")
    .option("--k <count>", "answers at most", parseCount, 4)
    .action((text: string, options: QueryOptions) =>
      withContext(options, async ({ config, ledger, json }) => {
        const { openIndex } = await import("../jobs/configured-indexes.js");
        const index = await openIndex({ config, ledger, ...(options.index !== undefined && { name: options.index }) });
        try {
          const answer = await index
            .asRetriever({ k: options.k, freshness: "mark" })
            .search(text, { asker: options.as });
          printAnswer(json, answer, () =>
            answer.hits.length === 0
              ? ["nothing that this asker may see"]
              : answer.hits.flatMap((hit) => [
                  `${hit.uri}  (${hit.freshness}${hit.verifiedAt === undefined ? "" : `, verified ${hit.verifiedAt}`}, score ${hit.score.toFixed(3)})`,
                  ...hit.text.split("\n").map((line) => `  ${line}`),
                  `  entry ${hit.id}`,
                ]),
          );
        } finally {
          await index.close();
        }
      }),
    );
}

function parseAsker(value: string): string[] {
  const asker = value.split(",").map((subject) => subject.trim());
  if (asker.some((subject) => subject === "")) throw new InvalidArgumentError("give subjects, separated by commas");
  return asker;
}

function parseCount(value: string): number {
  const count = Number(value);
  if (!Number.isInteger(count) || count < 1) throw new InvalidArgumentError("give a whole number above 0");
  return count;
}
