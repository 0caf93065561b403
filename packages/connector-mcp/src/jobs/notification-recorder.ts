/**
 * Tells the ledger of every notification.
 *
 * Invariants:
 * 1. A notification is recorded at once, so that the guard knows; only the read waits for the coalescing window (U5).
 * 2. One statement at a time; what arrives meanwhile goes with the next.
 * 3. What arrives for a subscription that the ledger does not know as active yet waits until it does: the acknowledgement
 *    is told after it came, and the first notification may be there before (U2).
 */
import { Backoff, pause } from "../backoff.js";
import { problemOf } from "./problem.js";
import { SingleFlight } from "./single-flight.js";
import type { SourceContext } from "./source-context.js";
import type { WatchedSubscription, WatchedSubscriptions } from "./watched-subscription.js";

export interface RecorderEvents {
  /** The ledger has them; reads will be due after the coalescing window. */
  onRecorded(): void;
  onListChanged(): void;
  /** The ledger has closed these, or does not serve them: the server need not push them. */
  onClosed(subscriptions: readonly WatchedSubscription[]): void;
}

export class NotificationRecorder {
  readonly #uris = new Set<string>();
  readonly #early = new Set<string>();
  #listChanged = false;
  /** Being told now. */
  #telling: readonly string[] = [];
  readonly #recorder = new SingleFlight(() => this.#record());

  constructor(
    private readonly context: SourceContext,
    private readonly kept: WatchedSubscriptions,
    private readonly events: RecorderEvents,
  ) {}

  note(uri: string): void {
    this.#uris.add(uri);
    void this.#recorder.run();
  }

  noteListChanged(): void {
    this.#listChanged = true;
    void this.#recorder.run();
  }

  /** Some subscriptions have become active: what came early for them is told now. */
  noteActivated(): void {
    if (this.#early.size === 0) return;
    for (const uri of this.#early) this.#uris.add(uri);
    this.#early.clear();
    void this.#recorder.run();
  }

  /** Something arrived for it that the ledger may not have yet. */
  isPending(uri: string): boolean {
    return this.#uris.has(uri) || this.#early.has(uri) || this.#telling.includes(uri);
  }

  /** Resolves when everything noted so far is recorded, or cannot be. Never rejects. */
  async flushed(): Promise<void> {
    await this.#recorder.run();
  }

  /** Never rejects. */
  async #record(): Promise<void> {
    const retry = new Backoff({ minMs: 50, maxMs: 2_000 });
    while ((this.#uris.size > 0 || this.#listChanged) && this.context.lease.held) {
      const uris = [...this.#uris];
      const listChanged = this.#listChanged;
      this.#uris.clear();
      this.#listChanged = false;
      this.#telling = uris;
      try {
        if (uris.length > 0) await this.#tell(uris);
        if (listChanged) await this.#tellListChanged();
      } catch (error) {
        for (const uri of uris) this.#uris.add(uri);
        this.#listChanged ||= listChanged;
        this.context.logger.warn(problemOf(error), "a notification could not be recorded yet");
        await pause(retry.next(), this.context.lease.lost);
      } finally {
        this.#telling = [];
      }
    }
  }

  async #tell(uris: readonly string[]): Promise<void> {
    const { ledger, lease, settings } = this.context;
    const active = new Map(uris.map((uri) => [uri, this.#active(uri)]));
    const outcomes = await ledger.recordNotifications(lease.session, uris, { windowMs: settings.coalesceMs });
    this.events.onRecorded();
    const closed: WatchedSubscription[] = [];
    for (const { uri, outcome } of outcomes) {
      const kept = this.kept.get(uri);
      if (outcome !== "not_subscribed" || !kept) continue;
      if (kept === active.get(uri)) closed.push(kept);
      // Decided before it was active; by now it may be.
      else if (kept.mode === undefined) this.#early.add(uri);
      else this.#uris.add(uri);
    }
    if (closed.length > 0) this.events.onClosed(closed);
  }

  async #tellListChanged(): Promise<void> {
    await this.context.ledger.recordListChanged(this.context.lease.session);
    this.events.onListChanged();
  }

  #active(uri: string): WatchedSubscription | undefined {
    const kept = this.kept.get(uri);
    return kept?.mode === undefined ? undefined : kept;
  }
}
