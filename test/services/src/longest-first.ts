import { existsSync } from "node:fs";
import { join } from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** What takes longest, longest first. Vitest goes by the size of a file where it has not run before, which says little. */
const LONGEST = [
  "packages/ledger/test/database/embedded-handover.test.ts",
  "packages/ledger/test/restored-backup.test.ts",
  "packages/ledger/test/serial-interleavings.test.ts",
  "packages/ledger/test/database/migrations.test.ts",
  "packages/ledger/test/database/embedded-shared.test.ts",
  "packages/connector-mcp/test/langchain/lineage-index.test.ts",
  "test/scenarios/cli-documents.test.ts",
  "test/house/ordeal.test.ts",
  "packages/ledger/test/model/ledger-model.test.ts",
  "test/scenarios/stopped-worker.test.ts",
  "test/scenarios/cli-store-down.test.ts",
  "packages/ledger/test/transitions.test.ts",
  "packages/ledger/test/slept-holder.test.ts",
  "packages/ledger/test/twins/twins.test.ts",
];

/** Begins with the long files, so that no worker is left with one of them while the other has nothing to do. */
export default class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const root = this.ctx.config.root;
    const ranks = new Map(LONGEST.map((file, rank) => [join(root, file), rank]));
    const gone = [...ranks.keys()].find((file) => !existsSync(file));
    if (gone !== undefined) throw new Error(`longest-first.ts names ${gone}, which is no file`);
    const rankOf = ({ moduleId }: TestSpecification) => ranks.get(moduleId) ?? LONGEST.length;
    return (await super.sort(files)).sort((one, other) => rankOf(one) - rankOf(other));
  }
}
