import type { ConfirmOutcome } from "#src/lineage.js";
import type { Freshness } from "#src/visibility.js";
import { covers, type ModelRevocation, PolicyModel } from "./policy-model.js";
import { ReadingModel } from "./reading-model.js";
import { type ModelAnswer, type ModelSubscription, mayBeIndexed } from "./reading-state.js";

/** How long what was read counts as verified (§9). */
const STALENESS_MS = 900_000;

/**
 * The whole ledger as the specification tells it, for one source and one index: beside `ReadingModel` and `PolicyModel`, the
 * lineage (§7), what an asker sees (G2, §9), and what a revocation takes (§8). Entries stand for themselves: that the
 * ledger keeps those with the same roots as one group must not show.
 */
export class LedgerModel {
  readonly clock = { now: 0 };
  readonly policy = new PolicyModel();
  readonly reading = new ReadingModel(this.clock, (reader, uri) => this.policy.isRevokedAsReader(reader, uri));
  readonly entries = new Map<string, ModelEntry>();
  /** What waits to be indexed, by `reader uri`. */
  readonly outbox = new Map<string, ModelWork>();

  constructor() {
    this.reading.onDeleted = (subscription) => this.#tombstone(subscription);
    this.reading.onClosed = (subscription) => this.#reopenIfLifted(subscription);
  }

  accept(reader: string, generation: number, answer: ModelAnswer) {
    const { outcome, version } = this.reading.accept(reader, generation, answer);
    if (version) {
      const key = keyOf({ reader, uri: answer.uri });
      const known = this.outbox.get(key);
      if (known) Object.assign(known, { ordinal: version.ordinal, pending: true });
      else this.outbox.set(key, { ordinal: version.ordinal, confirmed: 0, pending: true });
    }
    return outcome;
  }

  // Indexing (L2, L3)

  /** What may be indexed now: neither claimed nor hidden nor revoked. */
  indexable(): ModelSubscription[] {
    return this.reading.subscriptions.filter((each) => {
      const work = this.outbox.get(keyOf(each));
      return (
        work?.pending &&
        (work.claimedUntil ?? 0) <= this.clock.now &&
        mayBeIndexed(each) &&
        !this.policy.isRevokedAsReader(each.reader, each.uri)
      );
    });
  }

  claim(subscription: ModelSubscription, token: string, leaseMs: number): ModelWork {
    const work = this.outbox.get(keyOf(subscription)) as ModelWork;
    Object.assign(work, { token, claimedUntil: this.clock.now + leaseMs });
    return work;
  }

  release(plan: ModelPlan): void {
    const work = this.outbox.get(keyOf(plan));
    if (work?.token !== plan.token) return;
    delete work.token;
    delete work.claimedUntil;
  }

  /** An entry is recorded before it is written (L2); under a standing revocation it is dead from the start. */
  intend(plan: ModelPlan, part: string, id: string, line: string, writerLeaseMs: number): void {
    const { reader, uri, ordinal, token } = plan;
    const covered = this.policy.isRevokedAsReader(reader, uri) || this.policy.isRevokedAsReader(reader, part);
    this.entries.set(id, {
      id,
      uri,
      part,
      line,
      state: "INTENT",
      writerUntil: this.clock.now + writerLeaseMs,
      token,
      edges: [{ reader, ordinal, state: covered ? "REVOKED" : "PENDING" }],
    });
  }

  /** The entries of a resource that a new version may reuse, whoever read it (L5). */
  reusable(uri: string): ModelEntry[] {
    return [...this.entries.values()].filter((each) => each.uri === uri && each.state === "PRESENT");
  }

  /** All or nothing per version (L3). */
  confirm(plan: ModelPlan): ConfirmOutcome {
    const { reader, uri, ordinal, token } = plan;
    const subscription = this.reading.scope(reader).subscriptions.get(uri) as ModelSubscription;
    const work = this.outbox.get(keyOf(plan)) as ModelWork;
    const written = plan.written.map((id) => this.entries.get(id) as ModelEntry);
    const leftOut = (entry: ModelEntry) => this.policy.isRevokedAsReader(reader, entry.part);
    const edgeOf = (entry: ModelEntry) =>
      entry.edges.find((edge) => edge.reader === reader && edge.ordinal === ordinal);
    const stands =
      mayBeIndexed(subscription) &&
      plan.generation === subscription.generation &&
      !this.policy.isRevokedAsReader(reader, uri);
    if (!stands) return "revoked";
    const done = written.every(
      (entry) => leftOut(entry) || (entry.state === "PRESENT" && edgeOf(entry)?.state === "CURRENT"),
    );
    if (work.confirmed === ordinal && done) return "confirmed";
    if (work.confirmed >= ordinal) return "superseded";
    if (work.token !== token || (work.claimedUntil ?? 0) <= this.clock.now) return "claim_lost";
    const reused = plan.reused.map((id) => this.entries.get(id));
    const gone =
      written.some((entry) => !leftOut(entry) && (entry.state !== "INTENT" || edgeOf(entry)?.state !== "PENDING")) ||
      reused.some((entry) => entry?.state !== "PRESENT");
    if (gone) return "group_gone";
    this.#swap(subscription, ordinal, written, reused as ModelEntry[], leftOut);
    Object.assign(work, { confirmed: ordinal, pending: work.ordinal > ordinal });
    delete work.token;
    delete work.claimedUntil;
    return "confirmed";
  }

  #swap(
    subscription: ModelSubscription,
    ordinal: number,
    written: readonly ModelEntry[],
    reused: readonly ModelEntry[],
    leftOut: (entry: ModelEntry) => boolean,
  ): void {
    const { reader, uri } = subscription;
    // What is left out is read again once the revocation is lifted (F6).
    if ([...written, ...reused].some(leftOut)) delete subscription.unchanged;
    for (const entry of this.entries.values()) {
      for (const edge of entry.edges) {
        if (entry.uri === uri && edge.reader === reader && edge.state === "CURRENT") edge.state = "SUPERSEDED";
      }
    }
    for (const entry of written) {
      const edge = entry.edges.find((each) => each.reader === reader && each.ordinal === ordinal) as ModelEdge;
      if (leftOut(entry)) {
        if (entry.state === "INTENT") entry.state = "ABANDONED";
        if (edge.state === "PENDING") edge.state = "REVOKED";
      } else {
        entry.state = "PRESENT";
        edge.state = "CURRENT";
      }
    }
    for (const entry of reused) {
      if (leftOut(entry)) continue;
      const edge = entry.edges.find((each) => each.reader === reader && each.ordinal === ordinal);
      if (edge) edge.state = "CURRENT";
      else entry.edges.push({ reader, ordinal, state: "CURRENT" });
    }
  }

  abandon(plan: ModelPlan): void {
    for (const id of plan.written) {
      const entry = this.entries.get(id) as ModelEntry;
      if (entry.state === "INTENT") entry.state = "ABANDONED";
    }
  }

  /** F7: a confirmed deletion takes the content, and what a worker still holds of it is superseded. */
  #tombstone(subscription: ModelSubscription): void {
    this.#endEdges(subscription, "TOMBSTONED", () => true);
    const work = this.outbox.get(keyOf(subscription));
    if (!work) return;
    const seen = Math.max(work.ordinal, subscription.accepted);
    Object.assign(work, { ordinal: seen, confirmed: Math.max(work.confirmed, subscription.accepted), pending: false });
  }

  #endEdges(
    subscription: ModelSubscription,
    as: ModelEdge["state"],
    which: (entry: ModelEntry) => boolean,
  ): ModelEntry[] {
    const touched: ModelEntry[] = [];
    for (const entry of this.entries.values()) {
      if (entry.uri !== subscription.uri || !which(entry)) continue;
      for (const edge of entry.edges) {
        if (edge.reader !== subscription.reader) continue;
        touched.push(entry);
        if (edge.state === "PENDING" || edge.state === "CURRENT") edge.state = as;
      }
    }
    return touched;
  }

  // Revocation (P2, P3)

  /** What follows from a revocation: closes, marks, and notes what has to be purged. */
  advance(revocation: ModelRevocation): void {
    if (revocation.lifted || revocation.advanced) return;
    revocation.advanced = true;
    if (revocation.role === "audience") return;
    for (const subscription of this.reading.scope(revocation.subject).subscriptions.values()) {
      const taken = this.#takeFrom(subscription, revocation);
      for (const entry of taken) if (isDead(entry) && entry.state !== "PURGED") revocation.waitsFor.add(entry.id);
    }
  }

  #takeFrom(subscription: ModelSubscription, revocation: ModelRevocation): ModelEntry[] {
    const { uri } = subscription;
    const covered = (one: string) => covers(revocation.scope, one);
    if (covered(uri)) {
      this.#closeRevoked(subscription, revocation);
      delete subscription.unchanged;
      if (subscription.version) subscription.version.parts = [];
      const work = this.outbox.get(keyOf(subscription));
      if (work?.pending) {
        work.pending = false;
        delete work.token;
        delete work.claimedUntil;
      }
      return this.#endEdges(subscription, "REVOKED", () => true);
    }
    const kept = subscription.version?.parts ?? [];
    const ended = this.#endEdges(subscription, "REVOKED", (entry) => covered(entry.part));
    if (ended.length === 0 && !kept.some((part) => covered(part.uri))) return [];
    delete subscription.unchanged;
    revocation.took.add(keyOf(subscription));
    if (subscription.version) subscription.version.parts = kept.filter((part) => !covered(part.uri));
    return ended;
  }

  /** What the standing session may have asked its server to push is for the holder to take back first (U7, U9). */
  #closeRevoked(subscription: ModelSubscription, revocation: ModelRevocation): void {
    const { state, pushed, openedIn } = subscription;
    if (!["DISCOVERED", "SUBSCRIBING", "ACTIVE"].includes(state)) return;
    const scope = this.reading.scope(subscription.reader);
    const nobodyToAsk =
      state === "DISCOVERED" ||
      (!pushed && openedIn === scope.generation) ||
      !this.reading.stands(scope, scope.generation);
    this.reading.beginClose(subscription);
    subscription.closedBy = revocation.number;
    if (nobodyToAsk) this.reading.close(subscription);
  }

  /** Reopens what it closed and nothing else covers, and reads again what it took a part of (P2, F6). */
  lift(revocation: ModelRevocation): void {
    if (revocation.lifted) return;
    revocation.lifted = true;
    for (const subscription of this.reading.subscriptions) {
      if (subscription.closedBy === revocation.number && subscription.state === "CLOSED") {
        this.#reopenIfLifted(subscription);
      }
      const took = revocation.took.has(keyOf(subscription));
      if (took && subscription.state === "ACTIVE" && subscription.hidden !== "tombstoned") {
        this.reading.makeDue(subscription, this.clock.now);
      }
    }
  }

  #reopenIfLifted(subscription: ModelSubscription): void {
    const { closedBy, reader, uri } = subscription;
    if (closedBy === undefined || !this.policy.revocations[closedBy]?.lifted) return;
    const successor = this.policy.covering(reader, uri);
    if (successor) subscription.closedBy = successor.number;
    else this.reading.reopen(subscription);
  }

  /** `EFFECTIVE` while something of it is left to do in the ledger or in a store (P5). */
  stateOf(revocation: ModelRevocation): "EFFECTIVE" | "COMPLETE" | "LIFTED" {
    if (revocation.lifted) return "LIFTED";
    const waits = [...revocation.waitsFor].some((id) => {
      const entry = this.entries.get(id) as ModelEntry;
      return entry.state !== "PURGED" && (entry.state !== "PRESENT" || isDead(entry));
    });
    return revocation.advanced && !waits ? "COMPLETE" : "EFFECTIVE";
  }

  // Purge (P3, P4)

  /** What has to go now: given up, or held by nothing; not what a writer may still be writing. */
  purgeable(): ModelEntry[] {
    return [...this.entries.values()].filter((entry) => {
      if (entry.state === "PURGED" || (entry.purge && entry.purge.until > this.clock.now)) return false;
      if (entry.state === "PRESENT") return isDead(entry);
      if (entry.state !== "INTENT") return true;
      return entry.writerUntil <= this.clock.now && !this.#mayStillConfirm(entry);
    });
  }

  claimPurge(entry: ModelEntry, token: string, leaseMs: number): void {
    if (entry.state !== "PURGED") entry.state = "PURGING";
    entry.purge = { token, until: this.clock.now + leaseMs };
  }

  /** Verified absent, by whoever claimed it last. */
  confirmPurge(entry: ModelEntry, token: string): void {
    if (entry.purge?.token !== token) return;
    entry.state = "PURGED";
    delete entry.purge;
  }

  #mayStillConfirm(entry: ModelEntry): boolean {
    const [edge] = entry.edges;
    if (edge?.state !== "PENDING") return false;
    const work = this.outbox.get(keyOf({ reader: edge.reader, uri: entry.uri }));
    return work?.token === entry.token && (work.claimedUntil ?? 0) > this.clock.now;
  }

  // What an asker sees (G2, §9)

  visible(asker: readonly string[]): VisibleInModel[] {
    return [...this.entries.values()].flatMap((entry) => {
      if (entry.state !== "PRESENT") return [];
      const ranks = entry.edges
        .filter((edge) => edge.state === "CURRENT" && this.#maySee(asker, edge.reader, entry))
        .map((edge) => this.#rank(edge, entry));
      return ranks.length === 0 ? [] : [{ id: entry.id, freshness: freshnesses[Math.min(...ranks)] as Freshness }];
    });
  }

  #maySee(asker: readonly string[], reader: string, { uri, part }: ModelEntry): boolean {
    const subscription = this.reading.scope(reader).subscriptions.get(uri) as ModelSubscription;
    if (subscription.hidden !== undefined || subscription.acceptedGeneration !== subscription.generation) return false;
    const denied = (subject: string) =>
      this.policy.isRevokedAsAudience(subject, uri) || this.policy.isRevokedAsAudience(subject, part);
    if (this.policy.isRevokedAsReader(reader, uri) || this.policy.isRevokedAsReader(reader, part)) return false;
    const users = asker.filter((name, place) => place === 0 || /^(user|svc):/.test(name));
    if (users.some(denied)) return false;
    return asker.some((subject) => this.policy.isGranted(reader, subject, uri, part) && !denied(subject));
  }

  #rank({ reader, ordinal }: ModelEdge, { uri }: ModelEntry): number {
    const scope = this.reading.scope(reader);
    const subscription = scope.subscriptions.get(uri) as ModelSubscription;
    const newer = subscription.version !== undefined && ordinal < subscription.version.ordinal;
    if (subscription.notifications > subscription.seenNotifications || newer) return 3;
    const pushing = subscription.seenEpoch === scope.epoch && this.reading.stands(scope, scope.generation);
    // On the timer: read since it was put there.
    const heard = subscription.pushed ? pushing : subscription.seenEpoch === undefined;
    if (scope.suspendedAt !== undefined || !heard) return 2;
    const { verifiedAt } = subscription;
    return verifiedAt === undefined || verifiedAt + STALENESS_MS <= this.clock.now ? 1 : 0;
  }
}

const freshnesses: readonly Freshness[] = ["fresh", "expired", "unverified", "changed"];

export interface ModelEdge {
  readonly reader: string;
  readonly ordinal: number;
  state: "PENDING" | "CURRENT" | "SUPERSEDED" | "TOMBSTONED" | "REVOKED";
}

export interface ModelEntry {
  readonly id: string;
  readonly uri: string;
  readonly part: string;
  readonly line: string;
  state: "INTENT" | "PRESENT" | "ABANDONED" | "PURGING" | "PURGED";
  readonly writerUntil: number;
  /** Of the claim under which it was intended. */
  readonly token: string;
  readonly edges: ModelEdge[];
  /** Of the purge that claimed it last. */
  purge?: { token: string; until: number };
}

export interface ModelWork {
  ordinal: number;
  confirmed: number;
  pending: boolean;
  token?: string;
  claimedUntil?: number;
}

/** A version a worker is about to confirm. */
export interface ModelPlan {
  readonly reader: string;
  readonly uri: string;
  readonly ordinal: number;
  readonly generation: number;
  readonly token: string;
  readonly written: readonly string[];
  readonly reused: readonly string[];
}

export interface VisibleInModel {
  readonly id: string;
  readonly freshness: Freshness;
}

/** No edge holds it any more: neither served nor about to be (P3). */
function isDead(entry: ModelEntry): boolean {
  return entry.edges.every(({ state }) => state !== "CURRENT" && state !== "PENDING");
}

export function keyOf({ reader, uri }: { readonly reader: string; readonly uri: string }): string {
  return `${reader} ${uri}`;
}
