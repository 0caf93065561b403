import { assert } from "@fenceline/ledger";
import type { Measure } from "../measure.js";
import { beside } from "../rounds.js";
import { ReadDrain, reconcileCatalog, type SourceContext } from "./connector-parts.js";
import type { McpBench } from "./mcp-bench.js";

const RESOURCES = 1_000;
/** Of one drain. */
const BATCH = 1_000;

/** Every read brings new content, so that each accept writes a version, its body and an outbox row. */
export const fencedReads: Measure<McpBench> = {
  name: "fenced reads (issue, read, accept) beside a bare readResource loop, HTTP, 8 at once",
  unit: "ratio",
  goal: { atLeast: 0.8 },
  async run(bench) {
    const server = await bench.startServer(RESOURCES);
    await server.ask({ do: "change_with_every_read" });
    const context = await bench.hold(server);
    const uris = await activate(context);
    const client = await bench.connectBare(server);
    const drain = new ReadDrain(context, () => undefined);
    let at = 0;
    const next = (count: number) => Array.from({ length: count }, () => uris[at++ % uris.length] ?? "");

    const { fenced } = await beside(
      {
        concurrency: context.settings.readConcurrency,
        async call() {
          await client.readResource({ uri: next(1)[0] ?? "" }, { cacheMode: "bypass" });
          return 1;
        },
      },
      {
        fenced: {
          async call() {
            const before = context.counts.snapshot().reads.accepted;
            assert((await drain.drainUris(next(BATCH))) === "drained", "Nothing stops the reading.");
            const accepted = context.counts.snapshot().reads.accepted - before;
            assert(accepted === BATCH, `Every read of a drain is accepted, not ${accepted} of ${BATCH}.`);
            return accepted;
          },
        },
      },
      { rounds: 15, roundMs: 500 },
    );
    return fenced.throughputRatio;
  },
};

/** Scans the list, and puts everything on it on the timer. */
async function activate(context: SourceContext): Promise<string[]> {
  const { ledger, lease } = context;
  const published = await reconcileCatalog(context);
  assert(published.outcome === "published", `The catalogue is published, not ${published.outcome}.`);
  const uris: string[] = [];
  for (let afterId = 0; ; ) {
    const page = await ledger.subscriptionsToOpen(lease.session, { limit: 1_000, afterId });
    if (page.length === 0) return uris;
    const polled = page.map(({ subscriptionId }) => subscriptionId);
    await ledger.activateSubscriptions(lease.session, { shard: 0, pushed: [], polled });
    uris.push(...page.map(({ uri }) => uri));
    afterId = polled.at(-1) ?? afterId;
  }
}
