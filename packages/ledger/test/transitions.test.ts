import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import type { IssuedRead } from "#src/reads.js";
import type { Session } from "#src/sessions.js";
import {
  answerTo,
  type LifecycleState,
  lifecycleStates,
  type SubscriptionEvent,
  subscriptionEvents,
  subscriptionTable,
} from "#src/subscription-state.js";
import { activate, answer, digest, LEASE_MS, openSession, publish, READ_LEASE_MS } from "./ledger-under-test.js";
import { brokenInvariants, describeWholeLedger, type WholeLedger } from "./whole-ledger.js";

const URI = "catalog://plans/basic";
const OTHER_SPELLING = "catalog://plans/%62asic";
/** Longer than what has to lie between the two answers that prove a deletion (F7). */
const SPACING_MS = 86_400_000;

/** One subscription of one source, as its holder knows it. */
interface World {
  readonly ledger: WholeLedger;
  readonly session: Session;
  id: number;
  /** Issued while it was ACTIVE. */
  read?: IssuedRead;
  /** What closed it. */
  revocationId?: number;
}

/** How a holder brings a subscription into each state; `revoked`: the close is a revocation's. */
const reach: Readonly<Record<LifecycleState, (world: World, revoked: boolean) => Promise<void>>> = {
  async DISCOVERED({ ledger, session }) {
    await publish(ledger, session, [URI]);
  },
  async SUBSCRIBING(world) {
    await reach.DISCOVERED(world, false);
    await world.ledger.subscriptionsToOpen(world.session, { limit: 10 });
  },
  async ACTIVE({ ledger, session }) {
    await activate(ledger, session, [URI]);
  },
  async UNSUBSCRIBING(world, revoked) {
    await reach.ACTIVE(world, false);
    await issue(world);
    if (revoked) await happen.revoked(world, "ACTIVE");
    else await world.ledger.beginUnsubscribe(world.session, [URI]);
  },
  async UNSUBSCRIBE_UNKNOWN(world, revoked) {
    await reach.UNSUBSCRIBING(world, revoked);
    await world.ledger.settleUnsubscribe(world.session, [await idOf(world)], "unknown");
  },
  async CLOSED(world, revoked) {
    await reach.UNSUBSCRIBING(world, revoked);
    await world.ledger.settleUnsubscribe(world.session, [await idOf(world)], "acknowledged");
  },
  async RECONCILIATION_REQUIRED(world) {
    await reach.ACTIVE(world, false);
    await issue(world);
    await happen.identity_unclear(world, "ACTIVE");
  },
};

/** How each event comes about through the facade. */
const happen: Readonly<Record<SubscriptionEvent, (world: World, state: LifecycleState) => Promise<void>>> = {
  async listed({ ledger, session }) {
    await publish(ledger, session, []);
    await publish(ledger, session, [URI]);
  },
  async scan_settled({ ledger, session }) {
    await publish(ledger, session, [URI]);
  },
  async identity_unclear({ ledger, session }) {
    const scans = [];
    for (let attempt = 0; attempt < 2; attempt += 1) scans.push(await scanOfTwoSpellings(ledger, session));
    const [first, second] = scans as [number, number];
    expect(await ledger.publishCatalog(session, { first, second })).toMatchObject({ outcome: "published" });
  },
  async subscribe_sent({ ledger, session }) {
    await ledger.subscriptionsToOpen(session, { limit: 10 });
  },
  async acknowledged({ ledger, session, id }) {
    await ledger.activateSubscriptions(session, { shard: 0, pushed: [id], polled: [] });
  },
  async not_acknowledged({ ledger, session, id }) {
    await ledger.activateSubscriptions(session, { shard: 0, pushed: [], polled: [id] });
  },
  async notified({ ledger, session }) {
    await ledger.recordNotifications(session, [URI]);
  },
  async read_issued(world, state) {
    expect((await issue(world)) !== undefined).toBe(state === "ACTIVE");
  },
  async read_accepted(world, state) {
    const read = world.read ?? (await issue(world)) ?? forged(world);
    const [accepted] = await world.ledger.acceptResourceVersions(world.session, [answer(read, "content")]);
    expect(accepted?.outcome === "accepted").toBe(state === "ACTIVE");
  },
  async read_lost(world) {
    await settle(world, "lost");
  },
  async not_found(world) {
    await settle(world, "not_found");
  },
  async tombstoned(world, state) {
    await settle(world, "not_found");
    if (state !== "ACTIVE") return;
    await world.ledger.advanceClock(SPACING_MS - 1);
    delete world.read;
    expect(await settle(world, "not_found")).toBe("tombstoned");
  },
  async unsubscribe_begun({ ledger, session }) {
    await ledger.beginUnsubscribe(session, [URI]);
  },
  async unsubscribe_acknowledged({ ledger, session, id }) {
    await ledger.settleUnsubscribe(session, [id], "acknowledged");
  },
  async unsubscribe_ack_lost({ ledger, session, id }) {
    await ledger.settleUnsubscribe(session, [id], "unknown");
  },
  async revoked(world) {
    world.revocationId = (await revoke(world)).revocationId;
    while ((await world.ledger.advanceRevocation(world.revocationId, { limit: 10 })) === "more");
  },
  async lifted(world) {
    const { revocationId } = world.revocationId === undefined ? await revoke(world) : world;
    await world.ledger.lift(revocationId as number);
  },
  /** Only a takeover tells that a session was lost; it then ends that session for its holder. */
  async session_lost({ ledger, session: { source, reader } }) {
    await ledger.advanceClock(LEASE_MS);
    const taken = await ledger.openSession({ source, reader, owner: "worker-2", leaseMs: LEASE_MS });
    expect(taken.outcome).toBe("opened");
  },
  async session_closed({ ledger, session }) {
    await ledger.endSession(session);
  },
};

/** What cannot be told apart through the facade. */
const notAttempted: Readonly<Record<string, string>> = {
  "RECONCILIATION_REQUIRED/listed": "the settled scan that lists it is the one that clears it: scan_settled",
};

/** What comes about with an event in the same call. */
const followedBy: Partial<Record<SubscriptionEvent, SubscriptionEvent>> = { session_lost: "session_closed" };

describeWholeLedger("transitions", (ledger) => {
  for (const state of lifecycleStates) {
    test(`in ${state} every event does what the table says, and nothing else (§3, U7, U8, U9, reliability 4)`, async () => {
      for (const event of subscriptionEvents) {
        if (`${state}/${event}` in notAttempted) continue;
        const world: World = { ledger, session: await openSession(ledger), id: 0 };
        await reach[state](world, event === "lifted");
        world.id = await idOf(world);
        const before = await stateOf(world);
        expect(before.lifecycle, `before ${event}`).toBe(state);
        await happen[event](world, state);
        expect(await stateOf(world), `${state}/${event}`).toEqual(afterwards(before, event));
      }
    }, 120_000);
  }

  test("every transition of the table was recorded, and no other, each subscription's in a chain (reliability 4)", async () => {
    const rows = await ledger.sql<{ cell: string }>(
      `select distinct from_state || ' ' || event || ' ' || to_state as cell
       from fenceline.receipt where from_state is not null`,
    );
    const moves = lifecycleStates.flatMap((from) =>
      subscriptionEvents.flatMap((event) => {
        const cell = subscriptionTable[from][event];
        const isMove = "to" in cell && (cell.to !== from || cell.generation === "next");
        return isMove ? [`${from} ${event} ${cell.to}`] : [];
      }),
    );
    expect(rows.map(({ cell }) => cell).sort()).toEqual(moves.sort());
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("what is listed anew before its unsubscribe is settled is opened by the first scan after that, never before (U9)", async () => {
    const world: World = { ledger, session: await openSession(ledger), id: 0 };
    await reach.UNSUBSCRIBE_UNKNOWN(world, false);
    world.id = await idOf(world);
    await happen.listed(world, "UNSUBSCRIBE_UNKNOWN");
    expect(await stateOf(world)).toEqual({ lifecycle: "UNSUBSCRIBE_UNKNOWN", generation: 1 });
    await happen.unsubscribe_acknowledged(world, "UNSUBSCRIBE_UNKNOWN");
    expect(await stateOf(world)).toEqual({ lifecycle: "CLOSED", generation: 1 });
    await publish(ledger, world.session, [URI]);
    expect(await stateOf(world)).toEqual({ lifecycle: "SUBSCRIBING", generation: 2 });
  });

  test("what a lift found unsettled is opened when it is settled, never before (U9, P2)", async () => {
    for (const settle of ["unsubscribe_acknowledged", "session_closed", "session_lost"] as const) {
      const world: World = { ledger, session: await openSession(ledger), id: 0 };
      await reach.UNSUBSCRIBING(world, true);
      world.id = await idOf(world);
      await happen.lifted(world, "UNSUBSCRIBING");
      expect(await stateOf(world)).toEqual({ lifecycle: "UNSUBSCRIBING", generation: 1 });
      await happen[settle](world, "UNSUBSCRIBING");
      expect(await stateOf(world), settle).toEqual({ lifecycle: "SUBSCRIBING", generation: 2 });
    }
  });

  test("a transition that is no cell, or that forgets to name its event, is refused and leaves nothing (§3)", async () => {
    const world: World = { ledger, session: await openSession(ledger), id: 0 };
    await reach.ACTIVE(world, false);
    world.id = await idOf(world);
    const before = await footprint(world);
    for (const change of [
      "lifecycle = 'DISCOVERED', lifecycle_event = 'listed'",
      "lifecycle = 'RECONCILIATION_REQUIRED'",
      "lifecycle = 'RECONCILIATION_REQUIRED', lifecycle_event = null",
      "generation = generation + 1, lifecycle_event = 'lifted'",
      "lifecycle = 'UNSUBSCRIBING', lifecycle_event = 'revoked', close_ordinal = 0, generation = 2",
    ]) {
      const refused = ledger.sql(`update fenceline.subscription set ${change} where subscription_id = $1`, [world.id]);
      await expect(refused, change).rejects.toMatchObject({
        cause: { code: "23514", constraint: "transition_is_a_cell" },
      });
    }
    const created = ledger.sql(
      `insert into fenceline.subscription (scope_id, resource_id, uri, lifecycle, lifecycle_event)
       select scope_id, -1, 'x', 'ACTIVE', 'listed' from fenceline.subscription where subscription_id = $1`,
      [world.id],
    );
    await expect(created).rejects.toMatchObject({ cause: { constraint: "transition_is_a_cell" } });
    expect(await footprint(world)).toEqual(before);
  });
});

interface Standing {
  readonly lifecycle: LifecycleState;
  readonly generation: number;
}

/** The table's answer, to what follows in the same call as well. */
function afterwards(before: Standing, event: SubscriptionEvent): Standing {
  const cell = answerTo(event, before.lifecycle);
  const after =
    "to" in cell
      ? { lifecycle: cell.to, generation: before.generation + (cell.generation === "next" ? 1 : 0) }
      : before;
  const next = followedBy[event];
  return next === undefined ? after : afterwards(after, next);
}

async function idOf({ ledger, session }: World): Promise<number> {
  const [row] = await ledger.sql<{ id: number }>(
    "select subscription_id as id from fenceline.subscription where scope_id = $1",
    [session.scopeId],
  );
  return row?.id as number;
}

async function stateOf({ ledger, id }: World): Promise<Standing> {
  const [row] = await ledger.sql<Standing & Record<string, unknown>>(
    "select lifecycle::text as lifecycle, generation from fenceline.subscription where subscription_id = $1",
    [id],
  );
  return row as Standing;
}

function footprint({ ledger, id }: World): Promise<unknown[]> {
  return ledger.sql(
    `select s.*, (select count(*) from fenceline.receipt) as receipts, (select count(*) from fenceline.subscription) as rows
     from fenceline.subscription s where subscription_id = $1`,
    [id],
  );
}

async function issue(world: World): Promise<IssuedRead | undefined> {
  const request = { uris: [URI], reason: "demand" as const, leaseMs: READ_LEASE_MS };
  const [read] = await world.ledger.issueReads(world.session, request);
  if (read) world.read = read;
  return read;
}

/** An answer to a read that was never issued: all there is where none can be. */
function forged({ id }: World): IssuedRead {
  return {
    subscriptionId: id,
    ordinal: 1,
    requestId: randomUUID(),
    uri: URI,
    generation: 1,
    reason: "demand",
  } as IssuedRead;
}

async function settle(world: World, as: "lost" | "not_found"): Promise<string | undefined> {
  const read = world.read ?? (await issue(world)) ?? forged(world);
  return (await world.ledger.settleReads(world.session, [{ ...read, as }]))[0]?.outcome;
}

function revoke({ ledger, session: { source, reader } }: World) {
  return ledger.revoke({ source, subject: reader, scope: { uri: URI }, reason: "left the team" });
}

async function scanOfTwoSpellings(ledger: WholeLedger, session: Session): Promise<number> {
  const begun = await ledger.beginScan(session);
  if (typeof begun === "string") return expect.fail(begun);
  await ledger.recordScanPage(session, begun.scanId, {
    cursorDigest: digest("cursor"),
    entries: [URI, OTHER_SPELLING].map((uri) => ({ uri, name: uri, descriptorDigest: digest(uri) })),
  });
  expect(await ledger.finishScan(session, begun.scanId, { complete: true })).toBe("complete");
  return begun.scanId;
}
