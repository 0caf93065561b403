import { randomUUID } from "node:crypto";
import type { Measure } from "../measure.js";
import { beside, type Variant } from "../rounds.js";
import { assertAccepted, IssuedReads } from "./issued-reads.js";
import { activeSource, type LedgerBench } from "./ledger-bench.js";
import { bytesOf } from "./sizes.js";

const ENTRIES = 1_000;

/** The record of the entries of one version before they are written (L2), beside as many rows of two numbers. */
export const registered: Measure<LedgerBench> = {
  name: "register 1,000 entries beside a raw unnest insert",
  unit: "ratio",
  goal: { atLeast: 0.5 },
  async run(bench) {
    const { registerAgain } = await intended(bench);
    const register: Variant = { call: registerAgain };
    const figures = await beside(await rawInsert(bench), { register });
    return figures.register.throughputRatio;
  },
};

/** A version that waits for an index; its entries are recorded as often as asked, each time as entries of their own. */
async function intended(bench: LedgerBench): Promise<{ registerAgain(): Promise<number> }> {
  const { ledger } = bench;
  const { session, uris } = await activeSource(bench, 10);
  const reads = new IssuedReads(ledger, session, uris);
  await reads.stockUp();
  const answers = reads.take(1);
  assertAccepted(await ledger.acceptResourceVersions(session, answers), 1);
  const store = `store-${randomUUID()}`;
  await ledger.registerStore({ name: store, kind: "bench" });
  const index = await ledger.registerIndex({
    name: "registered",
    version: 1,
    store,
    embeddings: "bench",
    configurationDigest: Buffer.from("bench"),
  });
  const [work] = await ledger.claimIndexWork(index, { limit: 1, leaseMs: 10_000 });
  if (work === undefined) throw new Error("A version waits in a new index.");
  const [part] = work.parts;
  const chunkDigests = Array.from({ length: ENTRIES }, (_, number) => ledger.digestChunk(`chunk ${number}`));
  const intents = [{ work, partId: part?.partId as number, chunkDigests }];
  return {
    async registerAgain() {
      await ledger.recordIntents(index, intents, { writerLeaseMs: 5_000 });
      return ENTRIES;
    },
  };
}

const TIMES = 20;

/** What an entry takes in the ledger: its row and its share of its group's. */
export const bytesPerEntry: Measure<LedgerBench> = {
  name: "bytes per entry: its row, and its part of its group's, with indexes",
  unit: "bytes",
  async run(bench) {
    const { registerAgain } = await intended(bench);
    const tables = ["entry", "entry_group", "group_root"];
    const before = await bytesOf(bench, tables);
    for (let time = 0; time < TIMES; time++) await registerAgain();
    return ((await bytesOf(bench, tables)) - before) / (TIMES * ENTRIES);
  },
};

async function rawInsert(bench: LedgerBench): Promise<Variant> {
  await bench.sql("create table fenceline.raw_entry (entry bigint primary key, of bigint not null)");
  const client = await bench.connect();
  const text = `insert into ${bench.schema}.raw_entry select * from unnest($1::bigint[], $2::bigint[])`;
  const named = bench.platform === "postgres" ? { name: "raw_insert" } : {};
  let next = 0;
  return {
    async call() {
      const numbers = Array.from({ length: ENTRIES }, () => next++);
      await client.query({ ...named, text, values: [numbers, numbers] });
      return ENTRIES;
    },
  };
}
