import type { GuardedRetriever } from "@fenceline/connector-mcp";
import type { House } from "./house.js";
import { openHouse } from "./house.js";
import { type PriceCatalog, startPriceCatalog } from "./server.js";
import { type Story, until } from "./story.js";

const BASIC = "catalog://plans/basic";
const ENTERPRISE = "catalog://plans/enterprise";
const QUESTION = "what does the basic plan cost?";
const ENTERPRISE_QUESTION = "what does the enterprise plan cost?";
const ALICE = ["user:alice"];
const BOB = ["user:bob"];

/** The price story: what a copy must never do, shown on a real MCP server. */
export async function priceStory(story: Story, options: { readonly progress: boolean }): Promise<void> {
  const catalog = await startPriceCatalog({ token: "demo-token" });
  try {
    const house = await openHouse(configOf(catalog), options);
    try {
      story.say(
        `The price catalogue listens on ${catalog.url}; the ledger is in ${house.directory} and stays there.\n` +
          `What the workers log is in ${house.log}.\n`,
      );
      await tell(story, catalog, house);
    } finally {
      await house.close();
    }
  } finally {
    await catalog.close();
  }
}

function configOf(catalog: PriceCatalog) {
  const tiersOfBob = ["basic", "team", "business", "scale"];
  return {
    mcpServers: {
      catalog: { url: catalog.url, headers: { Authorization: `Bearer ${catalog.token}` }, reader: "svc:rag" },
    },
    grants: [
      { source: "catalog", reader: "svc:rag", audience: "user:alice", prefix: "catalog://plans" },
      ...tiersOfBob.map((tier) => ({
        source: "catalog",
        reader: "svc:rag",
        audience: "user:bob",
        prefix: `catalog://plans/${tier}`,
      })),
    ],
    indexes: { plans: {} },
  };
}

async function tell(story: Story, catalog: PriceCatalog, house: House): Promise<void> {
  const { ledger, pool, index } = house;
  const current = index.asRetriever({ k: 4 });
  const marking = index.asRetriever({ k: 4, freshness: "mark" });

  await story.step(
    "two scans agree; every plan is subscribed, read, accepted and indexed",
    { scan: "SNAPSHOT_UNPROVEN", resources: 40, pushed: 40, accepted: 40 },
    async () => {
      const [source] = pool.stats().sources;
      return {
        scan: source?.scan?.verdict,
        resources: source?.scan?.resources,
        pushed: source?.pushed,
        accepted: source?.reads.accepted,
      };
    },
  );

  await story.step(`alice asks "${QUESTION}"`, "price=100", () => priceOf(current, BASIC, QUESTION, ALICE));

  await story.step(
    "the source changes to 120: once it is known no answer uses 100, and the answer becomes 120",
    { last: "price=120", wentBack: false },
    async () => {
      catalog.setPrice("basic", 120);
      const prices: (string | undefined)[] = [];
      const last = await until(
        async () => {
          const price = await priceOf(current, BASIC, QUESTION, ALICE);
          prices.push(price);
          return price;
        },
        (price) => price === "price=120",
      );
      const known = prices.findIndex((price) => price !== "price=100");
      return { last, wentBack: known < 0 || prices.slice(known).includes("price=100") };
    },
  );

  await story.step(
    "two quick changes, 121 and 122: at most two reads, the last value wins",
    { price: "price=122", atMostTwoReads: true },
    async () => {
      await pool.idle({ timeoutMs: 10_000 });
      const readsBefore = catalog.reads(BASIC);
      catalog.setPrice("basic", 121);
      catalog.setPrice("basic", 122);
      const price = await until(
        () => priceOf(current, BASIC, QUESTION, ALICE),
        (seen) => seen === "price=122",
      );
      await pool.idle({ timeoutMs: 10_000 });
      return { price, atMostTwoReads: catalog.reads(BASIC) - readsBefore <= 2 };
    },
  );

  await story.step(
    "the stream is cut: what is served is marked unverified",
    { price: "price=122", freshness: "unverified" },
    async () => {
      catalog.cutStreams();
      return until(
        async () => {
          const document = await documentOf(marking, BASIC, QUESTION, ALICE);
          return { price: price(document?.pageContent), freshness: document?.metadata["freshness"] };
        },
        (seen) => seen.freshness === "unverified",
      );
    },
  );

  await story.step("the source changes to 140 unannounced; the stream opens again: 140", "price=140", async () => {
    catalog.setPrice("basic", 140, { notify: false });
    catalog.restoreStreams();
    return until(
      () => priceOf(current, BASIC, QUESTION, ALICE),
      (seen) => seen === "price=140",
      30_000,
    );
  });
  await pool.idle({ timeoutMs: 30_000 });

  await story.step(
    "bob, who may see the other plans, asks for an enterprise plan: nothing; alice gets it",
    { bob: 0, bobOnBasic: "price=140", alice: true },
    async () => ({
      bob: (await enterprisePlans(current, BOB)).length,
      bobOnBasic: await priceOf(current, BASIC, QUESTION, BOB),
      alice: (await enterprisePlans(current, ALICE)).includes(ENTERPRISE),
    }),
  );

  await story.step(
    "trace of one entry tells where it came from",
    { uri: BASIC, source: "catalog", reader: "svc:rag", server: "price-catalog 1.0.0", state: "CURRENT" },
    async () => {
      const id = (await documentOf(current, BASIC, QUESTION, ALICE))?.id;
      const { versions } = await ledger.trace({ entry: id ?? "" });
      const [version] = versions;
      story.say(`  entry ${id}`);
      story.say(`    version ${version?.lineageId}, digest ${version?.digest}`);
      story.say(`    read ${version?.readId}, session ${version?.session}, scan ${version?.scan}`);
      return {
        uri: version?.uri,
        source: version?.source,
        reader: version?.reader,
        server: version?.server,
        state: version?.entries.find((entry) => entry.id === id)?.state,
      };
    },
  );

  await story.step(
    "alice's permission on the enterprise plans is revoked: her very next question finds none",
    { enterprise: 0, basic: "price=140" },
    async () => {
      await ledger.revoke({
        source: "catalog",
        subject: "user:alice",
        scope: { prefix: ENTERPRISE },
        reason: "left the enterprise team",
      });
      return {
        enterprise: (await enterprisePlans(current, ALICE)).length,
        basic: await priceOf(current, BASIC, QUESTION, ALICE),
      };
    },
  );

  await story.step(
    "the reader's own permission is revoked: every derived entry is purged and verified absent",
    { state: "COMPLETE", remaining: 0, inStore: 0, answers: 0, broken: 0 },
    async () => {
      const given = await ledger.revoke({ source: "catalog", subject: "svc:rag", reason: "the contract ended" });
      const status = await until(
        async () => (await ledger.revocation(given.revocationId)) ?? given,
        (seen) => seen.state !== "EFFECTIVE",
        30_000,
      );
      for (const receipt of await ledger.purgeReceipts(given.revocationId)) {
        story.say(
          `  receipt ${receipt.purgeReceiptId}: ${receipt.entries} entries of store ${receipt.store} ${receipt.claim} ` +
            `at ${receipt.absentAt.toISOString()}, ids ${receipt.idsDigest.slice(0, 16)}…`,
        );
      }
      return {
        state: status.state,
        remaining: status.stores.reduce((sum, store) => sum + store.remaining, 0),
        inStore: (await index.compare()).present,
        answers: (await marking.invoke(QUESTION, { configurable: { asker: ALICE } })).length,
        broken: (await ledger.verify()).reduce((sum, invariant) => sum + invariant.broken, 0),
      };
    },
  );
}

async function documentOf(retriever: GuardedRetriever, uri: string, question: string, asker: string[]) {
  const documents = await retriever.invoke(question, { configurable: { asker } });
  return documents.find((document) => document.metadata["uri"] === uri);
}

async function priceOf(retriever: GuardedRetriever, uri: string, question: string, asker: string[]) {
  return price((await documentOf(retriever, uri, question, asker))?.pageContent);
}

function price(text: string | undefined): string | undefined {
  return text?.match(/price=\d+/)?.[0];
}

/** URIs of the enterprise plans that the asker is shown. */
async function enterprisePlans(retriever: GuardedRetriever, asker: string[]): Promise<string[]> {
  const documents = await retriever.invoke(ENTERPRISE_QUESTION, { configurable: { asker } });
  const uris = documents.map((document) => String(document.metadata["uri"]));
  return uris.filter((uri) => uri === ENTERPRISE || uri.startsWith(`${ENTERPRISE}/`));
}
