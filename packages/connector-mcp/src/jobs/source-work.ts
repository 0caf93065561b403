/**
 * What is done over one connection: keep the catalogue, keep the subscriptions, read what is due, and know when to look
 * again. Wakes go through the queue, so that they show there; the reading itself stays with the holder of the session.
 */
import { connectorError } from "../errors.js";
import { type CatalogOutcome, type CatalogWalk, reconcileCatalog } from "./catalog-walk.js";
import { DiscoveryPace } from "./discovery-pace.js";
import { pagesToOpen } from "./pages-to-open.js";
import { problemOf } from "./problem.js";
import { type DrainEnd, ReadDrain } from "./read-drain.js";
import type { SourceContext } from "./source-context.js";
import { Subscriptions } from "./subscriptions.js";
import { WakeTimer } from "./wake-timer.js";
import { WokenTask } from "./woken-task.js";
import type { SourceProblem } from "./worker-pool-options.js";

/** At least, after a catalogue that could not be had or did not settle. */
const RETRY_DISCOVERY_MS = 15_000;
/** After a drain that was stopped by a failure, and the longest wait for a read that is due at an unknown time. */
const RETRY_READS_MS = 5_000;
const LOOK_AGAIN_MS = 60_000;
/** Versions accepted within this time of the first are indexed by one job, or few. */
const INDEX_WINDOW_MS = 10;
/** Closing takes the scope fence; more at once would make a revocation wait. */
const MAX_CLOSED = 500;

export interface SourceWakes {
  read(): void;
  discovery(): void;
  index(): void;
}

export class SourceWork {
  readonly #reads: ReadDrain;
  readonly #subscriptions: Subscriptions;
  readonly #discovering: WokenTask<CatalogOutcome["outcome"]>;
  readonly #pace: DiscoveryPace;
  readonly #paceTimer: WakeTimer;
  readonly #draining: WokenTask<DrainEnd>;
  readonly #indexTimer: WakeTimer;

  /** Mode `once`: subscriptions by URI; the ledger names each only once in a session. */
  readonly #watched = new Map<string, number>();
  #watchNew: () => Promise<void>;
  /** The server's snapshot ids count for nothing until the session ends (S3). */
  #distrusted: SourceProblem | undefined;

  constructor(
    private readonly context: SourceContext,
    wake: SourceWakes,
  ) {
    this.#indexTimer = new WakeTimer(wake.index);
    this.#reads = new ReadDrain(context, (read, outcome) => {
      this.#indexTimer.within(INDEX_WINDOW_MS);
      if (read.reason === "timer" && outcome === "accepted") this.#subscriptions.foundChanged(read.uri);
    });
    this.#draining = new WokenTask(wake.read, () => this.#drain());
    this.#discovering = new WokenTask(wake.discovery, () => this.#discover());
    this.#pace = new DiscoveryPace(context.settings.reviewMs);
    this.#paceTimer = new WakeTimer(() => this.#followListChanged());
    this.#subscriptions = new Subscriptions(context, {
      onReadsDue: (inMs) => this.#draining.within(inMs),
      onListChanged: () => {
        this.#pace.announced();
        this.#followListChanged();
      },
    });
    this.#watchNew = () => this.#subscriptions.watchNew();
  }

  /** Opens the streams, then walks the list: what changes meanwhile is announced on them (S4). */
  async start(): Promise<void> {
    this.#requireResources();
    await this.#leaveOutKnown();
    await this.#subscriptions.open();
    await this.discover();
    await this.drainReads();
  }

  /** Scans and reads everything once, and what failed a second time, without subscribing (mode `once`). */
  async runOnce(): Promise<void> {
    this.#requireResources();
    this.#watchNew = () => this.#putOnTimer();
    await this.#leaveOutKnown();
    await this.discover();
    // What was known before is read also where the list could not be had.
    await this.#putOnTimer();
    // Not what is due: what fails is due again soon, and a source of which some hangs would never be done.
    if ((await this.#reads.drainUris([...this.#watched.keys()])) === "stopped") return;
    await this.#reads.drainUris([...this.#reads.failed]);
  }

  /** @param jobAddedAt when the job was added that asks for it, if one does */
  discover(jobAddedAt?: number): Promise<CatalogOutcome["outcome"]> {
    return jobAddedAt === undefined ? this.#discovering.run() : this.#discovering.runForJob(jobAddedAt);
  }

  drainReads(): Promise<DrainEnd> {
    this.#reads.nudge();
    return this.#draining.run();
  }

  /** Scanning or reading. */
  get busy(): boolean {
    return this.#discovering.running || this.#draining.running;
  }

  /** Ends timers and streams. What is in flight ends by the context's signal. Never rejects. */
  async stop(): Promise<void> {
    this.#indexTimer.clear();
    this.#paceTimer.clear();
    await Promise.all([this.#discovering.stop(), this.#draining.stop(), this.#subscriptions.close()]);
  }

  async #drain(): Promise<DrainEnd> {
    void this.#subscriptions.settleClosed();
    const end = await this.#reads.drainDue();
    if (this.context.signal.aborted) return end;
    this.#draining.within(end === "stopped" ? RETRY_READS_MS : await this.#millisecondsToNextRead());
    return end;
  }

  async #millisecondsToNextRead(): Promise<number> {
    const { ledger, lease, logger } = this.context;
    try {
      const next = await ledger.millisecondsToNextRead(lease.session);
      return Math.min(next ?? LOOK_AGAIN_MS, LOOK_AGAIN_MS);
    } catch (error) {
      logger.warn(problemOf(error), "the next read is unknown");
      return RETRY_READS_MS;
    }
  }

  async #discover(): Promise<CatalogOutcome["outcome"]> {
    const { signal } = this.context;
    let outcome: CatalogWalk;
    this.#pace.begun();
    try {
      outcome = await reconcileCatalog(this.context, {
        has: (uri) => this.#watched.has(uri) || this.#subscriptions.has(uri),
        leaveOut: (uris) => this.#leaveOut(uris),
      });
      this.#note(outcome);
      if (outcome.outcome !== "session_lost" && outcome.outcome !== "unknown") {
        await this.#leaveOutKnown();
        await this.#watchNew();
      }
    } catch (error) {
      const { code: reason, message } = problemOf(error);
      outcome = { outcome: "unknown", reason, message, faults: [], distrusted: undefined };
      this.#note(outcome);
    }
    this.#pace.ended(cameTo(outcome));
    if (!signal.aborted) await this.#plan(outcome);
    return outcome.outcome;
  }

  /** When the next discovery is: after a `list_changed`, or as the ledger has it (S5). */
  async #plan({ outcome }: CatalogOutcome): Promise<void> {
    const { reviewMs } = this.context.settings;
    const retryMs = Math.min(reviewMs, RETRY_DISCOVERY_MS);
    const unpromptedMs = outcome === "published" ? await this.#millisecondsToNextReview(retryMs) : retryMs;
    const promptedMs = this.#pace.untilNext;
    if (promptedMs !== undefined) this.#paceTimer.within(promptedMs);
    this.#discovering.next(promptedMs === undefined ? Math.max(unpromptedMs, this.#pace.pauseMs) : reviewMs);
  }

  /** The end of a discovery looks again, so that one under way is never followed by another without a pause. */
  #followListChanged(): void {
    const inMs = this.#pace.untilNext;
    if (inMs === undefined || this.#discovering.running) return;
    if (inMs > 0) this.#paceTimer.within(inMs);
    else this.#discovering.within(0);
  }

  /** As the ledger has it (S5): a `list_changed` that came while the catalogue was published makes it now. */
  async #millisecondsToNextReview(otherwiseMs: number): Promise<number> {
    const { ledger, lease, logger } = this.context;
    try {
      return (await ledger.millisecondsToNextReview(lease.session)) ?? otherwiseMs;
    } catch (error) {
      logger.warn(problemOf(error), "the next review is unknown");
      return otherwiseMs;
    }
  }

  #note(outcome: CatalogWalk): void {
    const { counts, logger } = this.context;
    const { faults: list } = outcome;
    this.#distrusted ??= outcome.distrusted;
    const discovered = (listEnded: boolean, ...scan: SourceProblem[]) =>
      counts.discovered({ scan: [...(this.#distrusted ? [this.#distrusted] : []), ...scan], list, listEnded });
    switch (outcome.outcome) {
      case "published": {
        const { verdict, resources, vanished, held } = outcome;
        counts.scan = { verdict, resources };
        logger.info({ verdict, resources, vanished, held, discovered: outcome.discovered }, "catalogue published");
        const message = `${vanished} resources vanished at once; their removal is held back until it is confirmed`;
        discovered(true, ...(held ? [{ code: "removal_held", message }] : []));
        return;
      }
      case "unsettled":
        counts.scan = { verdict: "UNSETTLED", resources: outcome.resources };
        discovered(true, { code: "catalog_unsettled", message: "the list changed with every scan" });
        return;
      case "unknown": {
        counts.scan ??= { verdict: "INCOMPLETE", resources: 0 };
        const { reason, message } = outcome;
        discovered(false, { code: `scan_${reason}`, message });
        logger.warn({ reason }, `the list could not be had: ${message}`);
        return;
      }
      case "session_lost":
        return;
      default:
        outcome satisfies never;
    }
  }

  /** Unknown, never empty (S9). @throws {FencelineError} `resources_not_offered` */
  #requireResources(): void {
    if (this.context.connection.capabilities.resources) return;
    throw connectorError("resources_not_offered", "the server declares no resources capability");
  }

  /** Of what is known and not subscribed yet, closes what the configuration leaves out by now, also after a lift. */
  async #leaveOutKnown(): Promise<void> {
    const { ledger, lease, choice } = this.context;
    if (choice.isEverything) {
      const templates = await ledger.templatesInUse(lease.session);
      if (templates.every((template) => Object.hasOwn(choice.templates, template))) return;
    }
    for await (const page of pagesToOpen(this.context)) {
      await this.#leaveOut(page.filter((known) => !choice.takes(known)).map(({ uri }) => uri));
    }
  }

  /** What was accepted of it stays and ages (U10); a catalogue that lists it while it is chosen opens it again. */
  async #leaveOut(uris: readonly string[]): Promise<void> {
    const { ledger, lease, logger } = this.context;
    if (uris.length === 0) return;
    for (let at = 0; at < uris.length; at += MAX_CLOSED) {
      await ledger.beginUnsubscribe(lease.session, uris.slice(at, at + MAX_CLOSED), { excluded: true });
    }
    for (const uri of uris) this.#watched.delete(uri);
    await this.#subscriptions.settleClosed();
    logger.info({ closed: uris.length }, "what is not chosen any more is closed");
  }

  /** Every subscription of this source becomes a polled one. */
  async #putOnTimer(): Promise<void> {
    const { ledger, lease, counts } = this.context;
    for await (const page of pagesToOpen(this.context)) {
      const polled = page.map(({ subscriptionId }) => subscriptionId);
      await ledger.activateSubscriptions(lease.session, { shard: 0, pushed: [], polled });
      for (const { uri, subscriptionId } of page) this.#watched.set(uri, subscriptionId);
    }
    counts.polled = this.#watched.size;
  }
}

function cameTo(outcome: CatalogOutcome): Parameters<DiscoveryPace["ended"]>[0] {
  if (outcome.outcome !== "published") return "to_nothing";
  return outcome.discovered + outcome.vanished > 0 ? "news" : "same";
}
