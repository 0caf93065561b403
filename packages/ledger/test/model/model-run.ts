import fc from "fast-check";
import { expect } from "vitest";
import { brokenInvariants, type WholeLedger } from "../whole-ledger.js";
import { LedgerModel, type ModelEntry } from "./ledger-model.js";
import { ASKERS, advance, ask, indexAll, lineageCommands, purgeAll } from "./lineage-commands.js";
import { open, openSession, publishCatalog, readAll, readingCommands } from "./reading-commands.js";
import { READERS, RealLedger, URIS } from "./real-ledger.js";

const LONGEST_RUN = 50;

/** Random commands for the ledger and its model, and what has to be equal when they have all run. */
export function modelProperty(ledger: WholeLedger, count: { commands: number }) {
  const runs = fc.commands([...readingCommands, ...lineageCommands], {
    maxCommands: LONGEST_RUN,
    size: "max",
  });
  return fc.asyncProperty(runs, async (commands) => {
    const model = new LedgerModel();
    const real = await RealLedger.empty(ledger, count);
    await begin(model, real);
    await fc.asyncModelRun(() => ({ model, real }), commands);
    await compare(model, real);
    await settle(model, real);
    await compare(model, real);
  });
}

/** Both readers hold a session, know the catalogue and have read it once. */
async function begin(model: LedgerModel, real: RealLedger): Promise<void> {
  for (const reader of READERS) {
    await openSession(model, real, { reader, leaseMs: 86_400_000 });
    await publishCatalog(model, real, { reader, uris: URIS });
    await open(model, real, { reader, pushed: URIS.slice(1) });
    await readAll(model, real, {
      reader,
      contents: { lines: ["alpha", "beta"], parts: [["alpha"], ["beta", "gamma"]] },
    });
    // One after the other, so that the second attaches to what the first wrote (L5).
    await indexAll(model, real, {});
  }
}

/** The states of the subscriptions, what every asker sees and how fresh it is, and the ledger's own invariants. */
async function compare(model: LedgerModel, real: RealLedger): Promise<void> {
  const rows = await real.ledger.sql(
    `select u.name as reader, s.uri, s.lifecycle as state, s.generation, s.issued_ordinal as issued,
       s.accepted_ordinal as accepted, s.notification_number as notifications, s.hidden_because as hidden,
       s.version_ordinal as version, s.due_at <= fenceline.now() as due
     from fenceline.subscription s join fenceline.policy_scope p using (scope_id) join fenceline.subject u using (subject_id)
     order by 1, 2`,
  );
  const expected = model.reading.subscriptions.map((each) => ({
    reader: each.reader,
    uri: each.uri,
    state: each.state,
    generation: each.generation,
    issued: each.issued,
    accepted: each.accepted,
    notifications: each.notifications,
    hidden: each.hidden ?? null,
    version: each.version?.ordinal ?? null,
    due: each.dueAt === undefined ? null : each.dueAt <= model.clock.now,
  }));
  const key = ({ reader, uri }: { reader: string; uri: string }) => `${reader} ${uri}`;
  expect(rows).toEqual(expected.sort((one, other) => (key(one) < key(other) ? -1 : 1)));
  for (const asker of ASKERS) await ask(model, real, { asker });
  expect(await brokenInvariants(real.ledger)).toEqual([]);
}

/** When every writer has ended and everything due was removed, the store holds what is present, and nothing else. */
async function settle(model: LedgerModel, real: RealLedger): Promise<void> {
  for (const { number } of model.policy.revocations) await advance(model, real, { pick: number });
  await real.ledger.advanceClock(60_000);
  model.clock.now += 60_000;
  await purgeAll(model, real, {});
  const present = [...model.entries.values()].filter((entry: ModelEntry) => entry.state === "PRESENT");
  expect([...real.index.entries.keys()].sort()).toEqual(present.map(({ id }) => id).sort());
  for (const revocation of model.policy.revocations) {
    const status = await real.ledger.revocation(real.revocations[revocation.number] as number);
    expect(status?.state).toBe(model.stateOf(revocation));
  }
}
