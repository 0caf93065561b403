import type { AcceptOutcome, SettledAs, SettleOutcome } from "#src/reads.js";
import { exactTiming } from "../ledger-under-test.js";
import {
  isClosing,
  type ModelAnswer,
  type ModelRead,
  type ModelScope,
  type ModelSubscription,
  type ModelVersion,
  newSubscription,
  type Published,
  type Refused,
} from "./reading-state.js";

/**
 * What the specification says of sessions, discovery, subscriptions and reads (§2 to §4), as plain data of one source.
 * Written from the rules, not from the SQL: no locks, no batches, nothing fast.
 */
export class ReadingModel {
  readonly scopes = new Map<string, ModelScope>();

  constructor(
    readonly clock: { now: number },
    /** What a standing reader's revocation covers (P2). */
    readonly isRevoked: (reader: string, uri: string) => boolean,
  ) {}

  scope(reader: string): ModelScope {
    const known = this.scopes.get(reader);
    if (known) return known;
    const scope: ModelScope = { reader, generation: 0, epoch: 0, subscriptions: new Map() };
    this.scopes.set(reader, scope);
    return scope;
  }

  get subscriptions(): ModelSubscription[] {
    return [...this.scopes.values()].flatMap(({ subscriptions }) => [...subscriptions.values()]);
  }

  // Sessions

  openSession(reader: string, leaseMs: number): "opened" | "held" {
    const scope = this.scope(reader);
    if (this.stands(scope, scope.generation)) return "held";
    this.#leaveSession(scope);
    scope.generation += 1;
    scope.session = { expiresAt: this.clock.now + leaseMs, leaseMs };
    return "opened";
  }

  /** Ends nothing where another holder took over, or the lease ran out. */
  endSession(reader: string, generation: number): void {
    const scope = this.scope(reader);
    if (this.stands(scope, generation)) this.#leaveSession(scope);
  }

  heartbeat(reader: string, generation: number): "held" | "lost" {
    const scope = this.scope(reader);
    if (!scope.session || !this.stands(scope, generation)) return "lost";
    scope.session.expiresAt = this.clock.now + scope.session.leaseMs;
    return "held";
  }

  /** Whether this generation holds the scope and its lease stands. */
  stands(scope: ModelScope, generation: number): boolean {
    return scope.generation === generation && scope.session !== undefined && scope.session.expiresAt > this.clock.now;
  }

  #leaveSession(scope: ModelScope): void {
    delete scope.session;
    // What was pushed is pushed no longer (U4), and an unsubscription nobody answered is settled by it (U9).
    if (scope.epoch > 0) scope.epoch += 1;
    for (const each of scope.subscriptions.values()) {
      if (each.state === "UNSUBSCRIBING" || each.state === "UNSUBSCRIBE_UNKNOWN") this.close(each);
    }
  }

  /** The end of a close; what a revocation closed that was lifted meanwhile is opened again at once. */
  close(subscription: ModelSubscription): void {
    subscription.state = "CLOSED";
    subscription.pushed = false;
    delete subscription.acknowledgedEpoch;
    this.onClosed(subscription);
  }

  /** Set by the whole model. */
  onClosed: (subscription: ModelSubscription) => void = () => {};

  suspend(reader: string, generation: number): void {
    const scope = this.scope(reader);
    if (this.stands(scope, generation)) scope.suspendedAt = this.clock.now;
  }

  resume(reader: string, generation: number): void {
    const scope = this.scope(reader);
    if (this.stands(scope, generation)) delete scope.suspendedAt;
  }

  // Discovery

  /** Two equal scans, published. */
  publish(reader: string, generation: number, uris: readonly string[]): Published {
    const scope = this.scope(reader);
    if (!this.stands(scope, generation)) return "session_lost";
    const present = [...scope.subscriptions.values()].filter(
      (each) =>
        each.listed &&
        !each.vanished &&
        each.hidden !== "tombstoned" &&
        ["DISCOVERED", "SUBSCRIBING", "ACTIVE"].includes(each.state),
    );
    const vanished = present.filter(({ uri }) => !uris.includes(uri)).length;
    let discovered = 0;
    for (const uri of uris) {
      const known = scope.subscriptions.get(uri);
      if (known) this.#listAgain(known);
      else {
        scope.subscriptions.set(uri, newSubscription(reader, uri));
        discovered += 1;
      }
    }
    for (const each of scope.subscriptions.values()) if (!uris.includes(each.uri)) this.#vanish(each);
    return { resources: uris.length, discovered, vanished };
  }

  #listAgain(subscription: ModelSubscription): void {
    const returned =
      subscription.vanished || subscription.hidden === "tombstoned" || subscription.hidden === "tombstone_pending";
    const reopened = subscription.state === "CLOSED" && subscription.closedBy === undefined && subscription.vanished;
    subscription.listed = true;
    // While an unsubscribe is unsettled it stays away; a listing after that opens it again (U9).
    if (subscription.state !== "UNSUBSCRIBING" && subscription.state !== "UNSUBSCRIBE_UNKNOWN") {
      subscription.vanished = false;
    }
    if (reopened) this.reopen(subscription);
    else if (returned) this.makeDue(subscription, this.clock.now);
  }

  #vanish(subscription: ModelSubscription): void {
    if (!subscription.listed || (subscription.vanished && subscription.hidden !== "tombstone_pending")) return;
    const active = subscription.state === "ACTIVE";
    // "Not found" before the scan began, and absent from it (F7).
    const deleted =
      active && subscription.hidden === "tombstone_pending" && (subscription.notFoundAt as number) < this.clock.now;
    if (!subscription.vanished && active && subscription.hidden !== "tombstoned") {
      this.makeDue(subscription, this.clock.now);
    }
    subscription.vanished = true;
    if (deleted) this.#delete(subscription);
  }

  /** CLOSED is left with a new generation, unserved until a read is accepted (§3). */
  reopen(subscription: ModelSubscription): void {
    subscription.state = "SUBSCRIBING";
    subscription.generation += 1;
    subscription.pushed = false;
    delete subscription.openedIn;
    delete subscription.closedBy;
    delete subscription.unchanged;
    this.makeDue(subscription, this.clock.now);
  }

  // Subscriptions

  toOpen(reader: string, generation: number): ModelSubscription[] {
    const scope = this.scope(reader);
    if (!this.stands(scope, generation)) return [];
    const open = [...scope.subscriptions.values()].filter(
      (each) =>
        (each.state === "DISCOVERED" ||
          each.state === "SUBSCRIBING" ||
          (each.state === "ACTIVE" && each.hidden !== "tombstoned")) &&
        each.openedIn !== generation &&
        !this.isRevoked(reader, each.uri),
    );
    for (const each of open) if (each.state === "DISCOVERED") each.state = "SUBSCRIBING";
    return open;
  }

  activate(reader: string, generation: number, pushed: readonly string[], polled: readonly string[]): void {
    const scope = this.scope(reader);
    if (!this.stands(scope, generation)) return;
    scope.epoch = Math.max(scope.epoch, 1);
    for (const each of scope.subscriptions.values()) {
      if (each.state !== "SUBSCRIBING" && each.state !== "ACTIVE") continue;
      if (pushed.includes(each.uri)) {
        if (!each.pushed || each.acknowledgedEpoch !== scope.epoch) this.makeDue(each, this.clock.now);
        Object.assign(each, { state: "ACTIVE", openedIn: generation, pushed: true, acknowledgedEpoch: scope.epoch });
      } else if (polled.includes(each.uri)) {
        if (each.state !== "ACTIVE" || each.pushed || each.issued > each.settled) this.makeDue(each, this.clock.now);
        Object.assign(each, { state: "ACTIVE", openedIn: generation, pushed: false });
        delete each.acknowledgedEpoch;
      }
    }
  }

  /** Opened or broken: everything pushed through it has to be read again (U4). */
  raiseEpoch(reader: string, generation: number): void {
    const scope = this.scope(reader);
    if (!this.stands(scope, generation)) return;
    scope.epoch += 1;
    for (const each of scope.subscriptions.values()) {
      if (each.pushed && each.state === "ACTIVE" && each.hidden !== "tombstoned") this.makeDue(each, this.clock.now);
    }
  }

  notify(reader: string, generation: number, uris: readonly string[], windowMs: number): string[] {
    const scope = this.scope(reader);
    if (!this.stands(scope, generation)) return uris.map(() => "session_lost");
    const targets = uris.map((uri) => nearest(scope, uri));
    for (const target of new Set(targets)) {
      if (target === undefined) continue;
      target.notifications += 1;
      this.makeDue(target, this.clock.now + windowMs);
    }
    return targets.map((target) => (target === undefined ? "not_subscribed" : "invalidated"));
  }

  unsubscribe(reader: string, generation: number, uris: readonly string[]): string[] {
    const scope = this.scope(reader);
    if (!this.stands(scope, generation)) return [];
    const closing = uris.flatMap((uri) => {
      const each = scope.subscriptions.get(uri);
      return each && (each.state === "SUBSCRIBING" || each.state === "ACTIVE") ? [each] : [];
    });
    for (const each of closing) this.beginClose(each);
    return closing.map(({ uri }) => uri).sort();
  }

  /** From here on no read is issued and nothing is accepted (U7, U8). */
  beginClose(subscription: ModelSubscription): void {
    subscription.state = "UNSUBSCRIBING";
    delete subscription.unchanged;
    delete subscription.dueAt;
    delete subscription.leaseEnd;
  }

  settleUnsubscribe(reader: string, generation: number, uris: readonly string[], answer: "acknowledged" | "unknown") {
    const scope = this.scope(reader);
    if (!this.stands(scope, generation)) return;
    for (const uri of uris) {
      const each = scope.subscriptions.get(uri);
      if (each?.state === "UNSUBSCRIBING" && answer === "unknown") each.state = "UNSUBSCRIBE_UNKNOWN";
      else if (
        answer === "acknowledged" &&
        (each?.state === "UNSUBSCRIBING" || each?.state === "UNSUBSCRIBE_UNKNOWN")
      ) {
        this.close(each);
      }
    }
  }

  // Reads

  /** A read in flight is looked at again when its lease ends; what comes before that counts before it. */
  makeDue(subscription: ModelSubscription, at: number): void {
    const { dueAt = Number.POSITIVE_INFINITY, leaseEnd = Number.POSITIVE_INFINITY } = subscription;
    const inFlight = subscription.issued > subscription.settled;
    subscription.dueAt = Math.min(dueAt, at, inFlight ? leaseEnd - INSTANT : Number.POSITIVE_INFINITY);
  }

  /** Of the ACTIVE family, not revoked, and nobody waits for an earlier read (U5, U7, P2). */
  mayRead(subscription: ModelSubscription): boolean {
    const scope = this.scope(subscription.reader);
    const { issued, settled, leaseEnd = 0 } = subscription;
    const waitedFor =
      issued > settled && leaseEnd > this.clock.now && subscription.reads.get(issued)?.session === scope.generation;
    return subscription.state === "ACTIVE" && !waitedFor && !this.isRevoked(subscription.reader, subscription.uri);
  }

  /** What is due and may be read, in no order. */
  due(reader: string, generation: number): ModelSubscription[] {
    const scope = this.scope(reader);
    if (!this.stands(scope, generation)) return [];
    if (scope.suspendedAt !== undefined && scope.suspendedAt > this.clock.now - exactTiming.polledIntervalMs) return [];
    return [...scope.subscriptions.values()].filter(
      (each) => each.dueAt !== undefined && each.dueAt <= this.clock.now && this.mayRead(each),
    );
  }

  issue(subscription: ModelSubscription, leaseMs: number): ModelRead {
    const scope = this.scope(subscription.reader);
    subscription.issued += 1;
    subscription.leaseEnd = this.clock.now + leaseMs;
    subscription.dueAt = subscription.leaseEnd;
    const acknowledged = subscription.pushed && subscription.acknowledgedEpoch === scope.epoch;
    const read: ModelRead = {
      ordinal: subscription.issued,
      generation: subscription.generation,
      session: scope.generation,
      notifications: subscription.notifications,
      issuedAt: this.clock.now,
      settled: false,
      ...(acknowledged && { epoch: scope.epoch }),
    };
    subscription.reads.set(read.ordinal, read);
    return read;
  }

  /** Why evidence does not count, in the order of the rules (F3, U8). A holder that slept through its lease writes nothing. */
  refusal(reader: string, generation: number, uri: string, ordinal: number, known: boolean): Refused | undefined {
    const scope = this.scope(reader);
    const subscription = scope.subscriptions.get(uri);
    const read = subscription?.reads.get(ordinal);
    if (!subscription || !read || !known || read.settled) return "not_issued";
    if (isClosing(subscription.state)) return "stale_after_close";
    const fits =
      this.stands(scope, generation) &&
      read.session === generation &&
      read.generation === subscription.generation &&
      subscription.state === "ACTIVE" &&
      ordinal > subscription.accepted;
    return fits ? undefined : "stale";
  }

  /** @returns the outcome, and the version that came of it */
  accept(reader: string, generation: number, answer: ModelAnswer): { outcome: AcceptOutcome; version?: ModelVersion } {
    const { uri, ordinal, contents } = answer;
    const refused = this.refusal(reader, generation, uri, ordinal, answer.known);
    if (refused) return { outcome: refused };
    if (this.isRevoked(reader, uri)) return { outcome: "revoked" };
    const scope = this.scope(reader);
    const subscription = scope.subscriptions.get(uri) as ModelSubscription;
    const read = subscription.reads.get(ordinal) as ModelRead;
    const current =
      read.notifications === subscription.notifications && (!subscription.pushed || read.epoch === scope.epoch);
    const unchanged =
      subscription.unchanged === contents.digest && subscription.acceptedGeneration === subscription.generation;
    const announced = (subscription.dueAt ?? Number.POSITIVE_INFINITY) < (subscription.leaseEnd ?? 0);
    const interval = subscription.pushed && current ? exactTiming.pushedIntervalMs : exactTiming.polledIntervalMs;
    subscription.dueAt = Math.min(
      announced ? (subscription.dueAt as number) : Number.POSITIVE_INFINITY,
      this.clock.now + interval,
    );
    subscription.accepted = ordinal;
    subscription.settled = Math.max(subscription.settled, ordinal);
    subscription.acceptedGeneration = subscription.generation;
    subscription.seenNotifications = read.notifications;
    subscription.seenEpoch = read.epoch;
    subscription.failures = 0;
    subscription.unchanged = contents.digest;
    if (current) subscription.verifiedAt = read.issuedAt;
    delete subscription.hidden;
    delete subscription.notFoundAt;
    delete scope.suspendedAt;
    const suffix = current ? "" : "_not_current";
    if (unchanged) return { outcome: `unchanged${suffix}` as AcceptOutcome };
    const parts = contents.parts.filter((part) => !this.isRevoked(reader, part.uri));
    // A part was left out: the next read makes a version again (F6).
    if (parts.length < contents.parts.length) delete subscription.unchanged;
    const version = { ordinal, generation: subscription.generation, parts };
    subscription.version = version;
    return { outcome: `accepted${suffix}` as AcceptOutcome, version };
  }

  settle(
    reader: string,
    generation: number,
    read: { uri: string; ordinal: number; known: boolean },
    as: SettledAs,
  ): SettleOutcome {
    const refused = this.refusal(reader, generation, read.uri, read.ordinal, read.known);
    if (refused) return refused === "not_issued" ? "not_issued" : "stale";
    const scope = this.scope(reader);
    const subscription = scope.subscriptions.get(read.uri) as ModelSubscription;
    const issued = subscription.reads.get(read.ordinal) as ModelRead;
    const outcome = this.#judgeEnding(subscription, issued, as);
    const pendingSince = subscription.hidden === "tombstone_pending" ? subscription.notFoundAt : undefined;
    issued.settled = true;
    subscription.settled = Math.max(subscription.settled, read.ordinal);
    // "Not found" and "forbidden" are evidence like content.
    if (as === "not_found" || as === "forbidden") subscription.accepted = read.ordinal;
    const { now } = this.clock;
    if (as === "lost") subscription.dueAt = Math.min(subscription.dueAt ?? Number.POSITIVE_INFINITY, now);
    else if (outcome === "tombstone_pending")
      subscription.dueAt = (pendingSince ?? now) + exactTiming.notFoundSpacingMs;
    else {
      const backoff = Math.min(exactTiming.retryMaxMs, exactTiming.retryMs * 2 ** subscription.failures);
      subscription.dueAt = now + backoff;
    }
    if (as !== "lost") subscription.failures += 1;
    if (outcome === "hidden") subscription.hidden = "forbidden";
    if (outcome === "tombstone_pending") {
      subscription.notFoundAt = pendingSince ?? now;
      subscription.hidden = "tombstone_pending";
    }
    if (outcome === "tombstoned") this.#delete(subscription);
    if (as === "unauthorized") scope.suspendedAt = now;
    return outcome;
  }

  #judgeEnding(subscription: ModelSubscription, read: ModelRead, as: SettledAs): SettleOutcome {
    if (as === "forbidden") return "hidden";
    if (as !== "not_found") return "settled";
    if (subscription.hidden === "tombstoned") return "tombstoned";
    const since = subscription.hidden === "tombstone_pending" ? subscription.notFoundAt : undefined;
    const spaced = since !== undefined && read.issuedAt >= since + exactTiming.notFoundSpacingMs;
    return spaced ? "tombstoned" : "tombstone_pending";
  }

  #delete(subscription: ModelSubscription): void {
    subscription.hidden = "tombstoned";
    delete subscription.version;
    delete subscription.unchanged;
    delete subscription.dueAt;
    this.onDeleted(subscription);
  }

  /** Set by the whole model. */
  onDeleted: (subscription: ModelSubscription) => void = () => {};
}

/** Below the resolution of the ledger's clock. */
const INSTANT = 0.001;

/** The subscribed resource that a notification is about: itself, or the nearest it lies below (U11). */
function nearest(scope: ModelScope, uri: string): ModelSubscription | undefined {
  const enclosing = [...scope.subscriptions.values()].filter(
    (each) => each.state === "ACTIVE" && (uri === each.uri || uri.startsWith(`${each.uri}/`)),
  );
  return enclosing.sort((one, other) => other.uri.length - one.uri.length)[0];
}
