import { FencelineError, type Ledger } from "@fenceline/ledger";
import { Gates, type Ordeal, type OrdealOptions, reportOf, Trials } from "../ordeal.js";
import { inSchemaOfItsOwn } from "../own-schema.js";
import { Random } from "../random.js";
import { checkHistory, gateRules } from "./checker.js";
import type { ClientLog } from "./client-log.js";
import { keepHistory } from "./history.js";
import { type Fire, ScopeUnderFire } from "./scope-under-fire.js";
import { type Battlefield, steps, takeClock, weights } from "./steps.js";

/** Few, so that batches of eight connections meet in them. */
const SOURCES = 2;
const READERS = ["svc:one", "svc:two"];
const FOLDERS = 4;
const PER_FOLDER = 6;

/** The outcomes without which a run proves nothing. */
const required: Readonly<Record<string, readonly string[]>> = {
  notify: ["invalidated", "not_subscribed"],
  "notify, old_session": ["session_lost"],
  issue: ["first", "notified", "stream_opened", "timer", "vanished", "reopened", "demand"],
  "answer, none": [
    "accepted",
    "accepted_not_current",
    "unchanged",
    "unchanged_not_current",
    "stale",
    "stale_after_close",
    "revoked",
  ],
  "answer, again": ["stale", "stale_after_close", "not_issued"],
  "answer, wrong_request_id": ["not_issued"],
  "answer, never_issued": ["not_issued"],
  "answer, old_session": ["stale"],
  "answer, request_of_old_session": ["stale"],
  "answer, old_generation": ["stale"],
  "settle, none": ["settled", "tombstone_pending", "tombstoned", "hidden", "stale"],
  "settle, again": ["stale", "not_issued"],
  "settle, wrong_request_id": ["not_issued"],
  "settle, never_issued": ["not_issued"],
  "settle, old_session": ["stale"],
  "settle, request_of_old_session": ["stale"],
  "settle, old_generation": ["stale"],
  "settled as not_found": ["tombstone_pending", "tombstoned"],
  "settled as lost": ["settled"],
  "settled as failed": ["settled"],
  "settled as forbidden": ["hidden"],
  "settled as unauthorized": ["settled"],
  unsubscribe: ["begun", "refused"],
  "settle unsubscribe": ["acknowledged", "unknown"],
  open: ["pushed", "polled"],
  list: ["published", "list_changed"],
  stream: ["broken", "acknowledged anew"],
  "session after an end": ["opened"],
  "session after a lease": ["opened"],
  revoke: ["uri", "prefix"],
  advance: ["more", "done"],
  lift: ["lifted"],
  heartbeat: ["held"],
};

/** Notifications, reads and closes in random order on several connections (spec §11). */
export const fences: Ordeal = {
  name: "fences",
  summary: "notifications, reads and closes in random order: no version goes back, nothing is accepted after a close",
  defaultEvents: 100_000,
  defaultConnections: 8,
  run: (options) => inSchemaOfItsOwn(options, (ledgers, schema) => run(options, ledgers, schema)),
};

async function run(options: OrdealOptions, ledgers: readonly Ledger[], schema: string) {
  const { seed, events, connections } = options;
  const started = performance.now();
  const [ledger] = ledgers as [Ledger];
  const field: Battlefield = { schema, trials: new Trials(required), log: [] satisfies ClientLog, revocations: [] };
  const gates = new Gates(gateRules);
  const scopes = await prepare(ledger, schema, field, seed);

  let done = 0;
  await Promise.all(
    ledgers.map(async (own, number) => {
      const fire: Fire = { ledger: own, random: new Random(seed + number + 1), owner: `worker-${number}` };
      while (done < events) {
        const step = steps[fire.random.weighted(weights)];
        const scope = fire.random.pick(scopes);
        const more = await withoutDeadlock(gates, () => step(fire, scope, field));
        done += more;
        options.progress(Math.min(done, events));
      }
    }),
  );

  await checkHistory(ledger.database, schema, field, gates);
  const invariants = (await ledger.verify()).map(({ name, checked, broken }) => ({ name, checked, broken }));
  return reportOf({
    ordeal: fences.name,
    seed,
    events: done,
    connections,
    seconds: (performance.now() - started) / 1000,
    tried: field.trials.tried,
    missing: [...field.trials.missing, ...gates.idle],
    gates: gates.all,
    invariants,
  });
}

/** Every scope with a session, a catalogue and open subscriptions. */
async function prepare(ledger: Ledger, schema: string, field: Battlefield, seed: number): Promise<ScopeUnderFire[]> {
  await takeClock(ledger, schema);
  await ledger.registerStore({ name: "ordeal", kind: "none" });
  for (const name of ["one", "other"]) {
    const configurationDigest = Buffer.from(name);
    await ledger.registerIndex({ name, version: 1, store: "ordeal", embeddings: "none", configurationDigest });
  }
  await keepHistory(ledger.database, schema);
  const scopes: ScopeUnderFire[] = [];
  for (let number = 0; number < SOURCES; number += 1) {
    const source = `source${number}`;
    await ledger.registerSource({ name: source });
    const uris = Array.from(
      { length: FOLDERS * PER_FOLDER },
      (_, place) => `${source}://shelf/${place % FOLDERS}/${place}`,
    );
    scopes.push(...READERS.map((reader) => new ScopeUnderFire(source, reader, uris)));
  }
  const fire: Fire = { ledger, random: new Random(seed), owner: "worker-0" };
  for (const scope of scopes) {
    await steps.takeOver(fire, scope, field);
    for (let round = 0; round < 2; round += 1) await steps.list(fire, scope, field);
    await steps.open(fire, scope, field);
  }
  return scopes;
}

const DEADLOCK_DETECTED = "40P01";

/** A deadlock is a finding, and no end of the run; every other failure ends it. */
async function withoutDeadlock(gates: Gates, step: () => Promise<number>): Promise<number> {
  try {
    const done = await step();
    gates.check("no_deadlock", true, () => "");
    return done;
  } catch (error) {
    const cause =
      error instanceof FencelineError
        ? (error.cause as { code?: string; where?: string; detail?: string } | undefined)
        : undefined;
    if (cause?.code !== DEADLOCK_DETECTED) throw error;
    gates.check(
      "no_deadlock",
      false,
      () => `${cause.where?.replaceAll(/\s+/g, " ")}; ${cause.detail?.replaceAll(/\s+/g, " ")}`,
    );
    return 0;
  }
}
