import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadConfig, openIndex } from "@fenceline/connector-mcp";
import { startPriceCatalog } from "@fenceline/example-price-catalog/server";
import { openDatabase, openLedger } from "@fenceline/ledger";
import { copyDatabase, describeWithPostgres } from "@fenceline/test-services";
import pg from "pg";
import { expect, it, onTestFinished } from "vitest";
import { CliProcess } from "./cli-process.js";
import { eventually } from "./eventually.js";
import { startHoldingProxy } from "./holding-proxy.js";

const BASIC = "catalog://plans/basic";

describeWithPostgres("two workers on one PostgreSQL", (url) => {
  it("a worker stopped past its claim leaves a stale receipt and nothing else when its answer comes late (F1, F3, F4, F9)", async () => {
    const directory = await mkdtemp(join(tmpdir(), "fenceline-stopped-"));
    onTestFinished(() => rm(directory, { recursive: true, force: true }));
    const address = await createDatabase(url);
    const catalog = await startPriceCatalog({ token: "t" });
    onTestFinished(() => catalog.close());
    const proxy = await startHoldingProxy(catalog.url);
    onTestFinished(() => proxy.close());

    const file = join(directory, "fenceline.config.json");
    await writeFile(
      file,
      JSON.stringify({
        ledger: address,
        queue: address,
        mcpServers: { catalog: { url: proxy.url, headers: { Authorization: "Bearer t" }, reader: "svc:rag" } },
        indexes: { main: { store: { type: "pgvector", address: `file:${join(directory, "vectors")}` } } },
        settings: { leaseMs: 2_000 },
      }),
    );
    await copyDatabase("database", openDatabase, join(directory, "vectors"));
    const config = await loadConfig(file);
    const ledger = await openLedger(address);
    onTestFinished(() => ledger.close());
    const index = await openIndex({ config, ledger });
    onTestFinished(() => index.close());
    const retriever = index.asRetriever({ k: 4 });
    const price = async () => {
      const documents = await retriever.invoke("what does the basic plan cost?", {
        configurable: { asker: ["svc:rag"] },
      });
      const document = documents.find(({ metadata }) => metadata["uri"] === BASIC);
      return document?.pageContent.match(/price=\d+/)?.[0];
    };
    const holder = async () => (await ledger.status()).sources[0]?.holder;

    const first = new CliProcess(["worker", "--config", file]);
    onTestFinished(async () => void (await first.stop()));
    await eventually("the first worker ingests the catalogue", price, (seen) => seen === "price=100", 40_000);
    const firstHolder = await eventually("the first worker holds the session", holder, (seen) => seen !== undefined);
    await eventually(
      "every plan is pushed and nothing waits",
      () => ledger.status(),
      ({ sources, waiting }) => sources[0]?.pushed === 40 && waiting.reads === 0 && waiting.indexing === 0,
    );
    const second = new CliProcess(["worker", "--config", file]);
    onTestFinished(async () => void (await second.stop()));
    await second.says("worker ready");

    proxy.hold(BASIC);
    catalog.setPrice("basic", 120);
    await eventually(
      "the answer with 120 is under way",
      () => proxy.held,
      (held) => held === 1,
    );
    first.kill("SIGSTOP");
    proxy.passLater();
    catalog.setPrice("basic", 130, { notify: false });
    await eventually(
      "the second worker takes the session over",
      holder,
      (seen) => seen !== undefined && seen !== firstHolder,
    );
    await eventually("the second worker's read is accepted and indexed", price, (seen) => seen === "price=130");
    await eventually(
      "nothing waits",
      () => ledger.status(),
      ({ waiting }) => waiting.reads + waiting.indexing + waiting.purging === 0,
    );
    const before = await footprint();

    proxy.release();
    first.kill("SIGCONT");
    const stale = await eventually("the late answer leaves a receipt", staleReceipts, (rows) => rows.length > 0);

    expect(stale).toHaveLength(1);
    expect(await footprint()).toEqual(before);
    expect(await price()).toBe("price=130");
    expect((await ledger.verify()).filter(({ broken }) => broken > 0)).toEqual([]);
    expect(await holder()).not.toBe(firstHolder);

    /** All that a late answer could have changed. */
    async function footprint() {
      const [row] = await ledger.database.query(
        `select s.accepted_ordinal, s.version_ordinal, encode(s.digest, 'hex') as digest, s.generation,
                (select count(*)::int from fenceline.resource_version v where v.subscription_id = s.subscription_id) as versions,
                (select json_agg(o) from (select ordinal, confirmed_ordinal from fenceline.outbox o
                                          where o.subscription_id = s.subscription_id) o) as outbox
         from fenceline.subscription s where s.uri = $1`,
        [BASIC],
      );
      return row;
    }

    async function staleReceipts() {
      return ledger.database.query(
        `select r.ordinal, r.kind from fenceline.receipt r join fenceline.subscription s using (subscription_id)
         where s.uri = $1 and r.kind = 'stale'`,
        [BASIC],
      );
    }
  }, 120_000);
});

/** A database of its own: BullMQ's tables live in its `public` schema. */
async function createDatabase(url: string): Promise<string> {
  const name = `fenceline_stopped_${process.pid}`;
  const admin = new pg.Client(url);
  await admin.connect();
  await admin.query(`create database ${name}`);
  onTestFinished(async () => {
    await admin.query(`drop database if exists ${name} with (force)`);
    await admin.end();
  });
  const address = new URL(url);
  address.pathname = `/${name}`;
  return address.href;
}
