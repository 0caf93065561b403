/**
 * Sends the reads that are due, and hands what comes back to the ledger.
 *
 * Invariants:
 * 1. A read is issued only when it can be sent at once: whatever is announced while it waits in line would count as "after
 *    it was sent" and cause one more (U5).
 * 2. Every issued read is answered to the ledger, as content or as how it ended; what a crash leaves open runs out there (F9).
 */
import type { AcceptedRead, IssuedRead, ReadAnswer, SettledAs } from "@fenceline/ledger";
import { type ReadContent, type ReadOutcome, readResource } from "../mcp/fenced-read.js";
import { CoalescedCalls } from "./coalesced-calls.js";
import { RateLimit } from "./rate-limit.js";
import type { SourceContext } from "./source-context.js";

/** At most this many answers share one transaction under the scope fence; more would make a revocation wait. */
const MAX_ANSWERS = 100;

/** Beyond the request's own timeout, until another holder may send the read again. */
const CLAIM_MARGIN_MS = 10_000;

const SETTLED_AS: Record<Exclude<ReadOutcome["outcome"], "content">, SettledAs> = {
  empty: "empty",
  too_large: "too_large",
  not_found: "not_found",
  unauthorized: "unauthorized",
  forbidden: "forbidden",
  session_lost: "lost",
  aborted: "lost",
  unreachable: "failed",
  timed_out: "failed",
  invalid: "failed",
  failed: "failed",
};

interface SettledRead {
  readonly subscriptionId: number;
  readonly ordinal: number;
  readonly requestId: string;
  readonly as: SettledAs;
  readonly message?: string;
}

/** `drained`: nothing was due at the end. `stopped`: the connection, the lease, the credential or the ledger failed. */
export type DrainEnd = "drained" | "stopped";

export class ReadDrain {
  /** Subscriptions with at least one read since this connection began. */
  readonly read = new Set<number>();

  readonly #accepting: CoalescedCalls<ReadAnswer, AcceptedRead>;
  readonly #settling: CoalescedCalls<SettledRead, undefined>;
  readonly #rate: RateLimit;
  readonly #claim: { readonly leaseMs: number };
  #done = 0;
  #total = 0;
  #failure: unknown;

  /** @param onAccepted a read made a new version */
  constructor(
    private readonly context: SourceContext,
    private readonly onAccepted: () => void,
  ) {
    const { ledger, lease, settings } = context;
    const { session } = lease;
    this.#accepting = new CoalescedCalls(async (answers) => {
      const accepted = await ledger.acceptResourceVersions(session, answers);
      return inOrderOf(answers, accepted);
    }, MAX_ANSWERS);
    this.#settling = new CoalescedCalls(async (reads) => {
      await ledger.settleReads(session, reads);
      return reads.map(() => undefined);
    }, MAX_ANSWERS);
    this.#rate = new RateLimit(settings.readsPerSecond);
    this.#claim = { leaseMs: Math.max(settings.leaseMs, settings.requestTimeoutMs + CLAIM_MARGIN_MS) };
  }

  /** Reads until nothing is due. */
  drainDue(): Promise<DrainEnd> {
    const { ledger, lease } = this.context;
    return this.#drain((limit) => ledger.issueDueReads(lease.session, { limit, ...this.#claim }));
  }

  /** Reads these whether due or not. Those in flight, closed or revoked are left out. */
  drainUris(uris: readonly string[]): Promise<DrainEnd> {
    const { ledger, lease } = this.context;
    let sent = 0;
    return this.#drain(async (limit) => {
      // A page may come back short, because some of it is closed or revoked; only the end of the list is the end.
      while (sent < uris.length) {
        const page = uris.slice(sent, sent + limit);
        sent += page.length;
        const issued = await ledger.issueReads(lease.session, { uris: page, reason: "demand", ...this.#claim });
        if (issued.length > 0) return issued;
      }
      return [];
    });
  }

  async #drain(issue: (limit: number) => Promise<IssuedRead[]>): Promise<DrainEnd> {
    const { settings } = this.context;
    const inFlight = new Set<Promise<void>>();
    this.#failure = undefined;
    let more = true;
    try {
      while (!this.#stopped && (more || inFlight.size > 0)) {
        const free = settings.readConcurrency - inFlight.size;
        if (more && free > 0) {
          const allowed = await this.#rate.take(free, this.context.signal);
          const issued = await issue(allowed);
          this.#rate.giveBack(allowed - issued.length);
          more = issued.length > 0;
          this.#note(issued);
          for (const read of issued) {
            const sent: Promise<void> = this.#send(read).finally(() => inFlight.delete(sent));
            inFlight.add(sent);
          }
        } else {
          await Promise.race(inFlight);
          // What was announced while it was in flight is due again.
          more = true;
        }
      }
    } catch (error) {
      this.#fail(error);
    }
    await Promise.all(inFlight);
    return this.#stopped ? "stopped" : "drained";
  }

  get #stopped(): boolean {
    return this.#failure !== undefined || this.context.signal.aborted || !this.context.lease.held;
  }

  #note(issued: readonly IssuedRead[]): void {
    if (issued.length === 0) return;
    this.#total += issued.length;
    this.context.counts.issued(issued.length);
    this.context.onProgress({ phase: "read", done: this.#done, total: this.#total });
  }

  /** Never rejects. */
  async #send(read: IssuedRead): Promise<void> {
    const { connection, settings, signal } = this.context;
    this.read.add(read.subscriptionId);
    try {
      const outcome = await readResource(connection, read.uri, { maxBodyBytes: settings.maxBodyBytes, signal });
      if (outcome.outcome === "content") await this.#accept(read, outcome);
      else await this.#settle(read, outcome);
    } catch (error) {
      this.#fail(error);
    }
    this.#done += 1;
    this.context.onProgress({ phase: "read", done: this.#done, total: this.#total });
  }

  async #accept(read: IssuedRead, content: ReadContent): Promise<void> {
    const { subscriptionId, ordinal, requestId } = read;
    const mimeType = content.parts[0]?.mimeType;
    const accepted = await this.#accepting.add({
      subscriptionId,
      ordinal,
      requestId,
      digest: content.digest,
      parts: content.parts,
      ...(mimeType !== undefined && { mimeType }),
    });
    this.context.counts.answered(read.uri, accepted.outcome);
    if (accepted.outcome === "accepted" || accepted.outcome === "accepted_not_current") this.onAccepted();
    this.context.logger.debug({ uri: read.uri, ordinal, reason: read.reason, outcome: accepted.outcome }, "read");
  }

  async #settle(read: IssuedRead, outcome: Exclude<ReadOutcome, ReadContent>): Promise<void> {
    const { ledger, lease, counts, logger } = this.context;
    const { subscriptionId, ordinal, requestId, uri } = read;
    const as = SETTLED_AS[outcome.outcome];
    const message = "message" in outcome ? outcome.message : "the answer had no contents";
    await this.#settling.add({ subscriptionId, ordinal, requestId, as, message });
    logger.debug({ uri, ordinal, reason: read.reason, outcome: outcome.outcome }, "read without content");
    counts.failed({ uri, code: `read_${outcome.outcome}`, message });
    if (as === "unauthorized") {
      // The credential, not the resource: every other read would fail the same way (P7).
      await ledger.suspendScope(lease.session, message);
      counts.problem({ code: "source_unauthorized", message });
      this.#fail(outcome);
    }
  }

  #fail(error: unknown): void {
    this.#failure ??= error ?? "unknown";
    if (!this.context.signal.aborted) this.context.logger.warn({ err: error }, "reading stopped");
  }
}

function inOrderOf(answers: readonly ReadAnswer[], accepted: readonly AcceptedRead[]): AcceptedRead[] {
  const keyOf = (read: { subscriptionId: number; ordinal: number }) => `${read.subscriptionId} ${read.ordinal}`;
  const byKey = new Map(accepted.map((read) => [keyOf(read), read]));
  return answers.map(
    ({ subscriptionId, ordinal }) =>
      byKey.get(keyOf({ subscriptionId, ordinal })) ?? { subscriptionId, ordinal, outcome: "not_issued" },
  );
}
