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

type Counts = Omit<StoreComparison, "store">;

/** A store compared with an index that lives in it; where it did not answer, every count is unknown. */
type ComparedStore = { readonly store: string; readonly index: string } & (
  | Counts
  | ({ readonly failure: string } & { readonly [Count in keyof Counts]: null })
);

const UNKNOWN = { recorded: null, present: null, missing: null, orphans: null, foreign: null };

/** `fenceline verify`: recomputes the ledger's invariants, and compares every store with the ledger. */
export function verifyCommand(): Command {
  return fencelineCommand("verify", ["verify", "verify --json"])
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
  const { configuredIndexes } = await import("../jobs/configured-indexes.js");
  const compared: ComparedStore[] = [];
  for (const index of configuredIndexes(config, ledger)) {
    const names = { store: index.storeName, index: index.name };
    try {
      compared.push({ ...names, ...(await (await index.open()).compare()) });
    } catch (error) {
      compared.push({ ...names, ...UNKNOWN, failure: error instanceof Error ? error.message : String(error) });
    } finally {
      await index.close();
    }
  }
  return compared;
}

/** What others wrote into the store is theirs; everything else has to fit. */
function isSound(store: ComparedStore): boolean {
  return store.missing === 0 && (store.orphans ?? 0) === 0;
}

function describeInvariant({ name, checked, broken }: Invariant): string {
  return `${broken === 0 ? "✓" : "✗"} ${name}: ${checked} checked, ${broken} broken`;
}

function describeStore(store: ComparedStore): string {
  const name = `store ${store.store}, index ${store.index}`;
  if ("failure" in store) return `✗ ${name}: ${store.failure}`;
  const unlisted = store.orphans === null ? ", cannot be gone through for others" : "";
  return (
    `${isSound(store) ? "✓" : "✗"} ${name}: ${store.recorded} recorded, ${store.present} present, ` +
    `${store.missing} missing, ${store.orphans ?? 0} orphans, ${store.foreign ?? 0} foreign${unlisted}`
  );
}
