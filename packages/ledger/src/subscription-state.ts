/**
 * The life of a subscription (spec section 3) as a total table.
 *
 * Invariants, each tested over every cell and over random sequences:
 *
 * 1. A read is issued and accepted, and a tombstone set, in ACTIVE alone (F3, F7).
 * 2. From the beginning of a close no read is issued (U7), and what comes late leaves only an audit record (U8).
 * 3. CLOSED is left only by a lift or a new listing; UNSUBSCRIBE_UNKNOWN is left only for CLOSED, never reopened (U9).
 * 4. The generation rises exactly when a closed subscription is opened again and when an unclear one is reconciled.
 * 5. The end of a session ends no subscription (F6).
 *
 * The table knows what follows from the state. What follows from other facts stays with who asks: that no standing
 * revocation covers the resource, that generation, ordinal and session are equal, that a listing is new.
 */

/** The stored states. The middle row of the spec's diagram is not stored: see `shownState`. */
export const lifecycleStates = [
  "DISCOVERED",
  "SUBSCRIBING",
  "ACTIVE",
  "UNSUBSCRIBING",
  "CLOSED",
  "UNSUBSCRIBE_UNKNOWN",
  "RECONCILIATION_REQUIRED",
] as const;
export type LifecycleState = (typeof lifecycleStates)[number];

/** The states as shown: ACTIVE spelled out. */
export const shownStates = [...lifecycleStates, "UPDATE_SEEN", "READ_PENDING", "VERSION_ACCEPTED"] as const;
export type ShownState = (typeof shownStates)[number];

export const subscriptionEvents = [
  /** A settled scan begun after the close lists the URI anew. */
  "listed",
  /** The server was asked to push, also once more under a new session; for a polled resource: it goes on the timer. */
  "subscribe_sent",
  /** The server acknowledged this URI: pushed (U2). */
  "acknowledged",
  /** The server did not, or cannot: polled (U3). */
  "not_acknowledged",
  "notified",
  "read_issued",
  /** Inside its fence, with new or unchanged content (F3, F6). */
  "read_accepted",
  /** Its worker died, or it failed without an answer about the resource (F9). */
  "read_lost",
  /** The server answered that there is no such resource: hidden, not yet deleted (F7). */
  "not_found",
  /** The deletion was confirmed (F7). */
  "tombstoned",
  "unsubscribe_begun",
  /** Acknowledged by the server, or nothing had to be asked (polled). */
  "unsubscribe_acknowledged",
  "unsubscribe_ack_lost",
  /** A standing revocation of the reader covers it; it is closed (P2). */
  "revoked",
  /** What closed it was lifted, and nothing else that stands covers it. */
  "lifted",
  /** A read or write whose identity is unclear, or two spellings of one key that differ in content (F10). */
  "identity_unclear",
  /** A settled scan lists the URI. */
  "scan_settled",
  /** The session broke, and may still be alive at the server. */
  "session_lost",
  /** The session ended for certain, and with it whatever it was subscribed to. */
  "session_closed",
] as const;
export type SubscriptionEvent = (typeof subscriptionEvents)[number];

/** Why an event must not happen in this state; it leaves a receipt and changes nothing. */
export type Refusal =
  /** It came from a request that the close has overtaken (U8). */
  | "stale_after_close"
  /** After the beginning of a close no read is issued and nothing is subscribed (U7). */
  | "closed"
  /** Its unsubscribe is not settled yet; it may be reopened after that (U9). */
  | "unsubscribe_unsettled"
  /** Not of the ACTIVE family: no version, tombstone or invalidation (F3). */
  | "not_active"
  /** Not served and not read until a settled scan has cleared it. */
  | "reconciliation_required"
  /** The server was never asked to push it. */
  | "not_subscribed"
  /** No unsubscribe is under way. */
  | "not_unsubscribing";

/** Why an event that may well happen has no effect in this state. */
export type Indifference =
  /** What the event would bring about is so already. */
  | "already_so"
  /** Counted, and nothing more (U11). */
  | "not_subscribed"
  /** The acknowledgement is followed by a read anyway (U4). */
  | "read_follows"
  /** The request ended without content, and nobody waits for it. */
  | "nothing_to_settle"
  /** Nothing of this subscription depends on the session. */
  | "independent_of_session"
  /** The state was not closed, so there is nothing to reopen. */
  | "not_closed"
  /** Only an unclear identity is cleared by a scan. */
  | "nothing_to_reconcile";

/** The table's answer. `generation: "next"`: the state is entered under a new generation. */
export type Cell =
  | { readonly to: LifecycleState; readonly generation: "same" | "next" }
  | { readonly refused: Refusal }
  | { readonly ignored: Indifference };

const to = (state: LifecycleState): Cell => ({ to: state, generation: "same" });
const reopen = (state: LifecycleState): Cell => ({ to: state, generation: "next" });
const refuse = (refused: Refusal): Cell => ({ refused });
const ignore = (ignored: Indifference): Cell => ({ ignored });

/** Events by which a close goes on or ends: the three states after its beginning answer them differently. */
type ClosingEvent =
  | "listed"
  | "lifted"
  | "unsubscribe_acknowledged"
  | "unsubscribe_ack_lost"
  | "session_lost"
  | "session_closed";

/** What all three answer to every other event (U7, U8). */
const afterClose: Readonly<Record<Exclude<SubscriptionEvent, ClosingEvent>, Cell>> = {
  notified: ignore("not_subscribed"),
  read_issued: refuse("closed"),
  read_accepted: refuse("stale_after_close"),
  read_lost: ignore("nothing_to_settle"),
  not_found: refuse("stale_after_close"),
  tombstoned: refuse("stale_after_close"),
  identity_unclear: refuse("stale_after_close"),
  scan_settled: ignore("nothing_to_reconcile"),
  subscribe_sent: refuse("closed"),
  acknowledged: refuse("stale_after_close"),
  not_acknowledged: refuse("stale_after_close"),
  unsubscribe_begun: ignore("already_so"),
  revoked: ignore("already_so"),
};

/** Every state's answer to every event. */
export const subscriptionTable: Readonly<Record<LifecycleState, Readonly<Record<SubscriptionEvent, Cell>>>> = {
  DISCOVERED: {
    listed: ignore("already_so"),
    subscribe_sent: to("SUBSCRIBING"),
    acknowledged: refuse("not_subscribed"),
    not_acknowledged: refuse("not_subscribed"),
    notified: ignore("not_subscribed"),
    read_issued: refuse("not_active"),
    read_accepted: refuse("not_active"),
    read_lost: ignore("nothing_to_settle"),
    not_found: refuse("not_active"),
    tombstoned: refuse("not_active"),
    unsubscribe_begun: refuse("not_subscribed"),
    unsubscribe_acknowledged: refuse("not_unsubscribing"),
    unsubscribe_ack_lost: refuse("not_unsubscribing"),
    // The server was asked for nothing, so nothing has to be taken back.
    revoked: to("CLOSED"),
    lifted: ignore("not_closed"),
    identity_unclear: to("RECONCILIATION_REQUIRED"),
    scan_settled: ignore("nothing_to_reconcile"),
    session_lost: ignore("independent_of_session"),
    session_closed: ignore("independent_of_session"),
  },
  SUBSCRIBING: {
    listed: ignore("already_so"),
    subscribe_sent: to("SUBSCRIBING"),
    acknowledged: to("ACTIVE"),
    not_acknowledged: to("ACTIVE"),
    notified: ignore("read_follows"),
    read_issued: refuse("not_active"),
    read_accepted: refuse("not_active"),
    read_lost: ignore("nothing_to_settle"),
    not_found: refuse("not_active"),
    tombstoned: refuse("not_active"),
    // The request may have reached the server: it is closed like an ACTIVE one.
    unsubscribe_begun: to("UNSUBSCRIBING"),
    unsubscribe_acknowledged: refuse("not_unsubscribing"),
    unsubscribe_ack_lost: refuse("not_unsubscribing"),
    revoked: to("UNSUBSCRIBING"),
    lifted: ignore("not_closed"),
    identity_unclear: to("RECONCILIATION_REQUIRED"),
    scan_settled: ignore("nothing_to_reconcile"),
    // The next session asks again.
    session_lost: to("SUBSCRIBING"),
    session_closed: to("SUBSCRIBING"),
  },
  ACTIVE: {
    listed: ignore("already_so"),
    // A new session, or a stream that grows: what was accepted stays, unverified where a stream broke (U4).
    subscribe_sent: to("ACTIVE"),
    acknowledged: to("ACTIVE"),
    not_acknowledged: to("ACTIVE"),
    notified: to("ACTIVE"),
    read_issued: to("ACTIVE"),
    read_accepted: to("ACTIVE"),
    read_lost: to("ACTIVE"),
    not_found: to("ACTIVE"),
    tombstoned: to("ACTIVE"),
    unsubscribe_begun: to("UNSUBSCRIBING"),
    unsubscribe_acknowledged: refuse("not_unsubscribing"),
    unsubscribe_ack_lost: refuse("not_unsubscribing"),
    revoked: to("UNSUBSCRIBING"),
    lifted: ignore("not_closed"),
    identity_unclear: to("RECONCILIATION_REQUIRED"),
    scan_settled: ignore("nothing_to_reconcile"),
    session_lost: to("ACTIVE"),
    session_closed: to("ACTIVE"),
  },
  UNSUBSCRIBING: {
    ...afterClose,
    listed: refuse("unsubscribe_unsettled"),
    unsubscribe_acknowledged: to("CLOSED"),
    unsubscribe_ack_lost: to("UNSUBSCRIBE_UNKNOWN"),
    lifted: refuse("unsubscribe_unsettled"),
    session_lost: to("UNSUBSCRIBE_UNKNOWN"),
    session_closed: to("CLOSED"),
  },
  UNSUBSCRIBE_UNKNOWN: {
    ...afterClose,
    listed: refuse("unsubscribe_unsettled"),
    unsubscribe_acknowledged: to("CLOSED"),
    unsubscribe_ack_lost: ignore("already_so"),
    lifted: refuse("unsubscribe_unsettled"),
    session_lost: ignore("already_so"),
    session_closed: to("CLOSED"),
  },
  CLOSED: {
    ...afterClose,
    listed: reopen("SUBSCRIBING"),
    unsubscribe_acknowledged: ignore("already_so"),
    unsubscribe_ack_lost: ignore("already_so"),
    lifted: reopen("SUBSCRIBING"),
    session_lost: ignore("independent_of_session"),
    session_closed: ignore("independent_of_session"),
  },
  RECONCILIATION_REQUIRED: {
    listed: ignore("already_so"),
    subscribe_sent: refuse("reconciliation_required"),
    acknowledged: refuse("reconciliation_required"),
    not_acknowledged: refuse("reconciliation_required"),
    notified: ignore("read_follows"),
    read_issued: refuse("reconciliation_required"),
    read_accepted: refuse("reconciliation_required"),
    read_lost: ignore("nothing_to_settle"),
    not_found: refuse("reconciliation_required"),
    tombstoned: refuse("reconciliation_required"),
    unsubscribe_begun: to("UNSUBSCRIBING"),
    unsubscribe_acknowledged: refuse("not_unsubscribing"),
    unsubscribe_ack_lost: refuse("not_unsubscribing"),
    revoked: to("UNSUBSCRIBING"),
    lifted: ignore("not_closed"),
    identity_unclear: ignore("already_so"),
    // Unserved until a read of the new generation is accepted.
    scan_settled: reopen("ACTIVE"),
    session_lost: ignore("independent_of_session"),
    session_closed: ignore("independent_of_session"),
  },
};

/** The table's answer to an event. */
export function answerTo(event: SubscriptionEvent, state: LifecycleState): Cell {
  return subscriptionTable[state][event];
}

/** From the beginning of a close on: the close ordinal is frozen exactly in these states (U7). */
export function isClosing(state: LifecycleState): boolean {
  return state === "UNSUBSCRIBING" || state === "CLOSED" || state === "UNSUBSCRIBE_UNKNOWN";
}

/** ACTIVE under any of its shown names: the only states in which anything is accepted (F3). */
export function isOfActiveFamily(state: ShownState): boolean {
  return state === "ACTIVE" || state === "UPDATE_SEEN" || state === "READ_PENDING" || state === "VERSION_ACCEPTED";
}

/** What `shownState` derives the middle row from. Each rises for ever within a subscription. */
export interface SubscriptionCounters {
  readonly notificationNumber: number;
  /** `notificationNumber` at the issue of the last accepted read; below 0 if none was accepted. */
  readonly seenNotificationNumber: number;
  readonly issuedOrdinal: number;
  readonly acceptedOrdinal: number;
  /** The highest ordinal that was settled without acceptance (F9); 0 if none. */
  readonly lostOrdinal: number;
}

/**
 * The state under the spec's names. In ACTIVE:
 *
 * - `READ_PENDING`: a read is in flight, whatever was announced before or since;
 * - `UPDATE_SEEN`: something was announced that no accepted read has seen;
 * - `VERSION_ACCEPTED`: the last read was accepted and nothing was announced since;
 * - `ACTIVE`: none of these: not read yet, or the last read was lost.
 */
export function shownState(lifecycle: LifecycleState, counters: SubscriptionCounters): ShownState {
  if (lifecycle !== "ACTIVE") return lifecycle;
  const { notificationNumber, seenNotificationNumber, issuedOrdinal, acceptedOrdinal, lostOrdinal } = counters;
  if (issuedOrdinal > Math.max(acceptedOrdinal, lostOrdinal)) return "READ_PENDING";
  // Before the first accepted read nothing was seen, but notification 0 is none.
  if (notificationNumber > Math.max(seenNotificationNumber, 0)) return "UPDATE_SEEN";
  return issuedOrdinal > 0 && acceptedOrdinal === issuedOrdinal ? "VERSION_ACCEPTED" : "ACTIVE";
}
