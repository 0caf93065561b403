import type { Ledger } from "@fenceline/ledger";
import { expect, test } from "vitest";
import { HashedLexicalEmbeddings } from "#src/langchain/hashed-lexical-embeddings.js";
import { LineageIndex, type LineageIndexOptions } from "#src/langchain/lineage-index.js";
import { McpResourceLoader } from "#src/langchain/resource-loader.js";
import { AcceptedCatalog, withFreshLedger } from "./accepted-catalog.js";
import { MemoryStore } from "./memory-stores.js";

const PLAN = "catalog://plans/basic";
const FOUND = { code: "detector", action: "reject", detector: "orders" } as const;
const OF_READER = { source: "catalog", reader: "svc:rag" };

let ledger: Ledger;

withFreshLedger((fresh) => {
  ledger = fresh;
});

async function indexed(options: Pick<LineageIndexOptions, "version" | "guard">): Promise<void> {
  const embeddings = new HashedLexicalEmbeddings();
  const index = new LineageIndex({
    ledger,
    name: "main",
    vectorStore: new MemoryStore(embeddings),
    embeddings,
    ...options,
  });
  await index.register();
  await index.indexDue();
}

async function findingsOfNewest(): Promise<unknown> {
  const [newest] = await ledger.exportVersions({ ...OF_READER, destination: "test", limit: 1 });
  return (await ledger.versionRecord(String(newest?.lineageId)))?.findings;
}

test("what a guard found is on record with the version, and no more once a later one finds nothing (§5)", async () => {
  const catalog = await AcceptedCatalog.open(ledger, [PLAN]);
  await catalog.accept(PLAN, "a text with orders");
  await indexed({ guard: () => ({ reason: "orders", findings: [FOUND] }) });
  expect(await findingsOfNewest()).toEqual([{ uri: PLAN, ...FOUND }]);
  await indexed({ version: 2 });
  expect(await findingsOfNewest()).toEqual([]);
});

test("what a loader's guard finds is kept with the version before its document is handed out (§5)", async () => {
  const catalog = await AcceptedCatalog.open(ledger, [PLAN]);
  await catalog.accept(PLAN, "a text with orders");
  const guard = (text: string) => ({ text, findings: [{ ...FOUND, action: "flag" as const }] });
  const shown: unknown[] = [];
  for await (const { metadata } of new McpResourceLoader({ ledger, ...OF_READER, guard }).lazyLoad()) {
    shown.push([metadata["guardFindings"], await findingsOfNewest()]);
  }
  expect(shown).toEqual([["detector:orders", [{ uri: PLAN, ...FOUND, action: "flag" }]]]);
});
