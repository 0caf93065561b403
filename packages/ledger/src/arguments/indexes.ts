import { z } from "zod";
import type { IndexLedger } from "../indexes.js";
import { type ArgumentsOf, count, digest, name } from "../input.js";

/** What the calls of `IndexLedger` take. */
export const indexArguments: ArgumentsOf<IndexLedger> = {
  registerStore: [["store", z.object({ name, kind: name })]],
  registerIndex: [
    [
      "index",
      z.object({
        name,
        version: count,
        store: name,
        embeddings: name,
        configurationDigest: digest,
        takes: z.enum(["versions", "derived"]).optional(),
      }),
    ],
  ],
  findIndex: [["name", name]],
  servingIndex: [["name", name]],
  retireIndex: [
    ["name", name],
    ["version", count.optional()],
  ],
};
