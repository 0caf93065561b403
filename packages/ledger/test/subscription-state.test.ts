import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  answerTo,
  type Cell,
  isClosing,
  type LifecycleState,
  lifecycleStates,
  type SubscriptionEvent,
  shownState,
  subscriptionEvents,
  subscriptionTable,
} from "#src/subscription-state.js";

const cells = lifecycleStates.flatMap((from) =>
  subscriptionEvents.map((event) => ({ from, event, cell: answerTo(event, from) })),
);
const moves = cells.flatMap(({ from, event, cell }) => ("to" in cell ? [{ from, event, ...cell }] : []));
const describeMove = ({ from, event, to }: { from: LifecycleState; event: SubscriptionEvent; to: LifecycleState }) =>
  `${from} -${event}-> ${to}`;

describe("the table of subscription states", () => {
  it("answers every event in every state, and knows no other (spec section 3)", () => {
    expect(Object.keys(subscriptionTable).sort()).toEqual([...lifecycleStates].sort());
    for (const state of lifecycleStates) {
      expect(Object.keys(subscriptionTable[state]).sort()).toEqual([...subscriptionEvents].sort());
    }
    expect(cells).toHaveLength(lifecycleStates.length * subscriptionEvents.length);
    for (const { cell } of cells) expect(Object.keys(cell)[0]).toMatch(/^(to|refused|ignored)$/);
  });

  it("moves along the diagram of the spec and nowhere else (spec section 3)", () => {
    expect(moves.filter(({ from, to }) => from !== to).map(describeMove)).toEqual([
      "DISCOVERED -subscribe_sent-> SUBSCRIBING",
      "DISCOVERED -revoked-> CLOSED",
      "DISCOVERED -identity_unclear-> RECONCILIATION_REQUIRED",
      "SUBSCRIBING -acknowledged-> ACTIVE",
      "SUBSCRIBING -not_acknowledged-> ACTIVE",
      "SUBSCRIBING -unsubscribe_begun-> UNSUBSCRIBING",
      "SUBSCRIBING -revoked-> UNSUBSCRIBING",
      "SUBSCRIBING -identity_unclear-> RECONCILIATION_REQUIRED",
      "ACTIVE -unsubscribe_begun-> UNSUBSCRIBING",
      "ACTIVE -revoked-> UNSUBSCRIBING",
      "ACTIVE -identity_unclear-> RECONCILIATION_REQUIRED",
      "UNSUBSCRIBING -unsubscribe_acknowledged-> CLOSED",
      "UNSUBSCRIBING -unsubscribe_ack_lost-> UNSUBSCRIBE_UNKNOWN",
      "UNSUBSCRIBING -session_lost-> UNSUBSCRIBE_UNKNOWN",
      "UNSUBSCRIBING -session_closed-> CLOSED",
      "CLOSED -listed-> SUBSCRIBING",
      "CLOSED -lifted-> SUBSCRIBING",
      "UNSUBSCRIBE_UNKNOWN -unsubscribe_acknowledged-> CLOSED",
      "UNSUBSCRIBE_UNKNOWN -session_closed-> CLOSED",
      "RECONCILIATION_REQUIRED -unsubscribe_begun-> UNSUBSCRIBING",
      "RECONCILIATION_REQUIRED -revoked-> UNSUBSCRIBING",
      "RECONCILIATION_REQUIRED -scan_settled-> ACTIVE",
    ]);
  });

  it("issues and accepts reads, invalidates and tombstones in ACTIVE alone (F3, F7)", () => {
    const fenced = new Set<SubscriptionEvent>(["read_issued", "read_accepted", "not_found", "tombstoned", "notified"]);
    for (const { from, event, cell } of cells) {
      if (fenced.has(event)) expect("to" in cell, `${event} in ${from}`).toBe(from === "ACTIVE");
    }
  });

  it("leaves of late content and a late 404 only a receipt, STALE_AFTER_CLOSE (U8)", () => {
    for (const state of lifecycleStates.filter(isClosing)) {
      for (const event of ["read_accepted", "not_found", "tombstoned", "acknowledged"] as const) {
        expect(answerTo(event, state)).toEqual({ refused: "stale_after_close" });
      }
    }
  });

  it("issues no read after the beginning of a close (U7)", () => {
    for (const state of lifecycleStates.filter(isClosing)) {
      expect(answerTo("read_issued", state)).toEqual({ refused: "closed" });
    }
  });

  it("lets a close be left by nothing but a lift or a new listing of what is CLOSED (U9)", () => {
    const reopenings = moves.filter(({ from, to }) => isClosing(from) && !isClosing(to));
    expect(reopenings.map(describeMove)).toEqual(["CLOSED -listed-> SUBSCRIBING", "CLOSED -lifted-> SUBSCRIBING"]);
    for (const event of ["listed", "lifted"] as const) {
      expect(answerTo(event, "UNSUBSCRIBE_UNKNOWN")).toEqual({ refused: "unsubscribe_unsettled" });
    }
  });

  it("raises the generation exactly where it reopens or reconciles (spec section 3)", () => {
    for (const move of moves) {
      const fresh =
        move.from === "CLOSED" || (move.from === "RECONCILIATION_REQUIRED" && move.event === "scan_settled");
      expect(move.generation, describeMove(move)).toBe(fresh ? "next" : "same");
    }
  });

  it("closes whatever a revocation covers, in every state, and needs no second one (P2)", () => {
    for (const state of lifecycleStates) {
      const cell = answerTo("revoked", state);
      expect(isClosing("to" in cell ? cell.to : state)).toBe(true);
    }
  });

  it("ends no subscription with its session (F6)", () => {
    for (const { from, event, cell } of cells) {
      if (event !== "session_lost" && event !== "session_closed") continue;
      if (!isClosing(from))
        expect("to" in cell ? cell : { to: from, generation: "same" }).toEqual({ to: from, generation: "same" });
    }
  });

  it("brings every state back to ACTIVE by some sequence, so that none is a dead end", () => {
    const reached = new Set<LifecycleState>(["ACTIVE"]);
    for (let before = -1; before < reached.size; ) {
      before = reached.size;
      for (const { from, to } of moves) if (reached.has(to)) reached.add(from);
    }
    expect([...reached].sort()).toEqual([...lifecycleStates].sort());
  });
});

describe("the name of a transition's event", () => {
  it("moves no subscription twice in a row, so that a statement that forgets to name its own is refused (§3)", () => {
    const twice = cells.filter(({ from, event, cell }) => {
      if (!("to" in cell) || (cell.to === from && cell.generation === "same")) return false;
      const next = answerTo(event, cell.to);
      return "to" in next && (next.to !== cell.to || next.generation === "next");
    });
    expect(twice).toEqual([]);
  });
});

describe("a subscription under any sequence of events", () => {
  interface Subscription {
    state: LifecycleState;
    generation: number;
    issued: number;
    accepted: number;
    closeOrdinal: number | undefined;
  }
  const apply = (subscription: Subscription, event: SubscriptionEvent): [Subscription, Cell] => {
    const cell = answerTo(event, subscription.state);
    if (!("to" in cell)) return [subscription, cell];
    const next = { ...subscription, state: cell.to };
    if (cell.generation === "next") next.generation++;
    if (event === "read_issued") next.issued++;
    if (event === "read_accepted") next.accepted = next.issued;
    next.closeOrdinal = isClosing(cell.to) ? (subscription.closeOrdinal ?? next.issued) : undefined;
    return [next, cell];
  };

  it("keeps the close ordinal, reopens only with a new generation, and reaches every cell (U7, U8, U9)", () => {
    const visited = new Set<string>();
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...subscriptionEvents), { minLength: 20, maxLength: 60 }), (events) => {
        let subscription: Subscription = {
          state: "DISCOVERED",
          generation: 1,
          issued: 0,
          accepted: 0,
          closeOrdinal: undefined,
        };
        for (const event of events) {
          visited.add(`${subscription.state}/${event}`);
          const [next, cell] = apply(subscription, event);
          if (!("to" in cell)) expect(next).toBe(subscription);
          if (isClosing(next.state)) expect(next.issued).toBe(next.closeOrdinal);
          const wasClosed = isClosing(subscription.state);
          if (wasClosed && isClosing(next.state)) expect(next).toEqual({ ...subscription, state: next.state });
          if (wasClosed && !isClosing(next.state)) {
            expect(event === "listed" || event === "lifted").toBe(true);
            expect(next.generation).toBe(subscription.generation + 1);
          }
          expect(next.generation - subscription.generation).toBeLessThanOrEqual(1);
          subscription = next;
        }
      }),
      { numRuns: 2_000, seed: 7 },
    );
    expect(cells.map(({ from, event }) => `${from}/${event}`).filter((cell) => !visited.has(cell))).toEqual([]);
  });
});

describe("the state as shown", () => {
  const quiet = {
    notificationNumber: 3,
    seenNotificationNumber: 3,
    issuedOrdinal: 5,
    acceptedOrdinal: 5,
    lostOrdinal: 4,
  };

  it("walks the middle row by its counters (spec section 3)", () => {
    const fresh = { ...quiet, notificationNumber: 0, seenNotificationNumber: -1, issuedOrdinal: 0, acceptedOrdinal: 0 };
    expect(shownState("ACTIVE", { ...fresh, lostOrdinal: 0 })).toBe("ACTIVE");
    expect(shownState("ACTIVE", quiet)).toBe("VERSION_ACCEPTED");
    expect(shownState("ACTIVE", { ...quiet, notificationNumber: 4 })).toBe("UPDATE_SEEN");
    expect(shownState("ACTIVE", { ...quiet, notificationNumber: 4, issuedOrdinal: 6 })).toBe("READ_PENDING");
    expect(shownState("ACTIVE", { ...quiet, issuedOrdinal: 6, lostOrdinal: 6 })).toBe("ACTIVE");
  });

  it("shows an update that came while its read was in flight, once that read was accepted (U5, F3)", () => {
    const later = { ...quiet, notificationNumber: 5, seenNotificationNumber: 4, issuedOrdinal: 6, acceptedOrdinal: 6 };
    expect(shownState("ACTIVE", later)).toBe("UPDATE_SEEN");
  });

  it("is the stored state outside the ACTIVE family, whatever the counters say", () => {
    for (const state of lifecycleStates.filter((state) => state !== "ACTIVE")) {
      expect(shownState(state, { ...quiet, notificationNumber: 9, issuedOrdinal: 9 })).toBe(state);
    }
  });
});
