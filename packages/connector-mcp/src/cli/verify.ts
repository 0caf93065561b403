import type { Invariant } from "@fenceline/ledger";
import type { Command } from "commander";
import type { StoreComparison } from "../langchain/store-comparison.js";
import {
  type CommandContext,
  type CommonOptions,
  fencelineCommand,
  printAnswer,
  withContext,
} from "./command-context.js";

/** A store's comparison, or why there is none. */
type ComparedStore = StoreComparison | { readonly store: string; readonly failure: string };

/** `fenceline verify`: recomputes the ledger's invariants, and compares every store with the ledger. */
export function verifyCommand(): Command {
  return fencelineCommand("verify")
    .description("check the ledger's invariants, and every store against the ledger")
    .action((options: CommonOptions) =>
      withContext(options, async (context) => {
        const invariants = await context.ledger.verify();
        const stores = await compareStores(context);
        const ok = invariants.every(({ broken }) => broken === 0) && stores.every(isSound);
        printAnswer(context.json, { ok, invariants, stores }, () => [
          ...invariants.map(describeInvariant),
          ...stores.map(describeStore),
          ok ? "everything holds" : "something does not hold",
        ]);
        if (!ok) process.exitCode = 1;
      }),
    );
}

/** One row per index; a store that does not answer keeps the others from nothing. */
async function compareStores({ config, ledger }: CommandContext): Promise<ComparedStore[]> {
  const { openIndex } = await import("../jobs/configured-indexes.js");
  const compared: ComparedStore[] = [];
  for (const name of Object.keys(config.indexes)) {
    try {
      const index = await openIndex({ config, ledger, name });
      try {
        compared.push(await index.compare());
      } finally {
        await index.close();
      }
    } catch (error) {
      compared.push({ store: name, failure: error instanceof Error ? error.message : String(error) });
    }
  }
  return compared;
}

/** What others wrote into the store is theirs; everything else has to fit. */
function isSound(store: ComparedStore): boolean {
  return !("failure" in store) && store.missing === 0 && (store.orphans ?? 0) === 0;
}

function describeInvariant({ name, checked, broken }: Invariant): string {
  return `${broken === 0 ? "✓" : "✗"} ${name}: ${checked} checked, ${broken} broken`;
}

function describeStore(store: ComparedStore): string {
  if ("failure" in store) return `✗ store of ${store.store}: ${store.failure}`;
  const unlisted = store.orphans === null ? ", cannot be gone through for others" : "";
  return (
    `${isSound(store) ? "✓" : "✗"} store ${store.store}: ${store.recorded} recorded, ${store.present} present, ` +
    `${store.missing} missing, ${store.orphans ?? 0} orphans, ${store.foreign ?? 0} foreign${unlisted}`
  );
}
