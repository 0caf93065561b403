import type { Ledger } from "@fenceline/ledger";
import { RecursiveCharacterTextSplitter } from "@langchain/textsplitters";
import { describe, expect, test } from "vitest";
import { McpResourceLoader } from "#src/langchain/resource-loader.js";
import { AcceptedCatalog, withFreshLedger } from "./accepted-catalog.js";

const BASIC = "catalog://plans/basic";
const PRO = "catalog://plans/pro";

let ledger: Ledger;
let catalog: AcceptedCatalog;

withFreshLedger(async (fresh) => {
  ledger = fresh;
  catalog = await AcceptedCatalog.open(ledger, [BASIC, PRO]);
});

const loaderOf = (reader = "svc:rag") =>
  new McpResourceLoader({ ledger, source: "catalog", reader, destination: "wiki" });

describe("loading accepted resources", () => {
  test("the newest version of each resource is a document with flat metadata, fit for a splitter", async () => {
    await catalog.accept(BASIC, "price=100");
    await catalog.accept(BASIC, "price=120");
    await catalog.accept(PRO, "price=250");
    const documents = await loaderOf().load();
    expect(documents.map(({ pageContent }) => pageContent)).toEqual(["price=120", "price=250"]);
    expect(documents[0]?.metadata).toEqual({
      source: "catalog",
      uri: BASIC,
      resourceUri: BASIC,
      mimeType: "text/plain",
      lineageId: expect.any(String) as string,
    });
    const splitter = new RecursiveCharacterTextSplitter({ chunkSize: 100, chunkOverlap: 0 });
    expect(await splitter.splitDocuments(documents)).toHaveLength(2);
  });

  test("the id of a document stays the same over versions, and differs between resources and readers", async () => {
    const other = await AcceptedCatalog.open(ledger, [BASIC], { reader: "svc:other" });
    await catalog.accept(BASIC, "price=100");
    await catalog.accept(PRO, "price=100");
    await other.accept(BASIC, "price=100");
    const before = (await loaderOf().load()).map(({ id }) => id);
    await catalog.accept(BASIC, "price=120");
    expect((await loaderOf().load()).map(({ id }) => id)).toEqual(before);
    expect(new Set([...before, ...(await loaderOf("svc:other").load()).map(({ id }) => id)]).size).toBe(3);
    expect(before[0]).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  });

  test("parts of a resource are documents under their own URIs (F5)", async () => {
    const parts = ["a", "b"].map((name) => ({ uri: `${BASIC}/${name}`, mimeType: "text/plain", text: `part ${name}` }));
    await catalog.accept(BASIC, parts);
    const documents = await loaderOf().load();
    expect(documents.map(({ metadata }) => [metadata["uri"], metadata["resourceUri"]])).toEqual([
      [`${BASIC}/a`, BASIC],
      [`${BASIC}/b`, BASIC],
    ]);
  });

  test("more resources than fit in a page all come, one page at a time", async () => {
    const uris = Array.from({ length: 70 }, (_, n) => `many://card/${n}`);
    const many = await AcceptedCatalog.open(ledger, uris, { source: "many" });
    for (const uri of uris) await many.accept(uri, `card at ${uri}`);
    const loader = new McpResourceLoader({ ledger, source: "many", reader: "svc:rag" });
    const exported = async () => {
      const [row] = await ledger.database.query<{ count: number }>(
        `select count(*)::int as count from ${ledger.schema}.export`,
      );
      return row?.count;
    };
    await loader.lazyLoad().next();
    expect(await exported()).toBeLessThan(70);
    expect(new Set((await loader.load()).map(({ pageContent }) => pageContent)).size).toBe(70);
  });

  test("what was handed out is an export: a revocation is complete only after it was acknowledged (L6)", async () => {
    await catalog.accept(BASIC, "price=100");
    await loaderOf().load();
    const { revocationId } = await ledger.revoke({ source: "catalog", subject: "svc:rag", reason: "left" });
    while ((await ledger.advanceRevocation(revocationId)) === "more");
    const unreached = await ledger.exports({ revocationId, open: true });
    expect(unreached).toMatchObject([{ versions: [{ uri: BASIC }], destination: "wiki" }]);
    expect((await ledger.revocation(revocationId))?.state).toBe("COMPLETE_EXCEPT_EXPORTS");
    for (const { exportId } of unreached) await ledger.acknowledgeExport(exportId);
    expect((await ledger.revocation(revocationId))?.state).toBe("COMPLETE");
  });

  test("what a revocation covers is not handed out (P2)", async () => {
    await catalog.accept(BASIC, "price=100");
    await catalog.accept(PRO, "price=250");
    await ledger.revoke({ source: "catalog", subject: "svc:rag", scope: { uri: BASIC }, reason: "left" });
    expect((await loaderOf().load()).map(({ pageContent }) => pageContent)).toEqual(["price=250"]);
  });

  test("a reader that never read anything has no documents", async () => {
    expect(await loaderOf("svc:nobody").load()).toEqual([]);
  });
});
