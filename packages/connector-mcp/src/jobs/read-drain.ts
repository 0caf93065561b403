/**
 * Sends the reads that are due, and hands what comes back to the ledger.
 *
 * Invariants:
 * 1. A read is issued shortly before it is sent: whatever is announced while it waits in line would count as "after it was
 *    sent" and cause one more (U5). So no more wait in line than are sent within {@link LINE_MS}. One by one would be worse:
 *    finding what is due costs a look at every subscription of the source (measured: 375 looks for 1,000 reads).
 * 2. One drain at a time; another waits for its turn. They share what tells one that something ended or became due, and a
 *    wake that reached the other would leave the first waiting for ever.
 * 3. Every issued read is answered to the ledger, as content or as how it ended; what a crash leaves open runs out there (F9).
 */
import { setMaxListeners } from "node:events";
import type { AcceptedRead, AcceptOutcome, IssuedRead, ReadAnswer, SettledAs } from "@fenceline/ledger";
import { connectorError } from "../errors.js";
import { withoutExcludedParts } from "../mcp/chosen-parts.js";
import { type ReadContent, type ReadOutcome, readResource } from "../mcp/fenced-read.js";
import type { ServerPatience } from "../mcp/server-patience.js";
import { CoalescedCalls } from "./coalesced-calls.js";
import { problemOf } from "./problem.js";
import { RateLimit } from "./rate-limit.js";
import type { SourceContext } from "./source-context.js";

/** At most this many answers share one transaction under the scope fence; more would make a revocation wait. */
const MAX_ANSWERS = 100;

/** Issued reads wait in line for about this long at most. */
const LINE_MS = 500;
const MAX_LINE = 100;

/** Answers that wait to be accepted, per read that may be under way: their bodies are in memory. */
const ANSWERS_PER_READ = 3;

/** Times that a server may refuse one read of a drain for named URIs because it is asked too often. */
const MAX_THROTTLED = 10;

/** Reads in a row whose credential was refused, until no more are sent: what is refused once may be one resource's own matter. */
const MAX_UNAUTHORIZED = 3;

/** Beyond the request's own timeout, until another holder may send the read again. */
const CLAIM_MARGIN_MS = 10_000;

const SETTLED_AS: Record<Exclude<ReadOutcome["outcome"], "content">, SettledAs> = {
  empty: "empty",
  too_large: "too_large",
  not_found: "not_found",
  unauthorized: "unauthorized",
  forbidden: "forbidden",
  throttled: "lost",
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
  /** URIs whose last read the server answered with an error that may have been of the moment. */
  readonly failed = new Set<string>();

  readonly #accepting: CoalescedCalls<ReadAnswer, AcceptedRead>;
  readonly #settling: CoalescedCalls<SettledRead, undefined>;
  readonly #rate: RateLimit;
  readonly #claim: { readonly leaseMs: number };
  #turn: Promise<unknown> = Promise.resolve();
  #done = 0;
  #total = 0;
  #failure: unknown;
  /** Something may be due that was not looked for yet. */
  #more = false;
  /** Requests at the server. */
  #reading = 0;
  /** Running average of a request's duration, in milliseconds; pessimistic at first. */
  #readMs = 200;
  /** Takes a URI back that the drain under way has issued and the server did not take. */
  #unsent: (uri: string) => void = () => undefined;
  readonly #throttled = new Map<string, number>();
  #unauthorized = 0;
  #somethingEnded: () => void = () => undefined;

  /** @param onAccepted a read made a new version */
  constructor(
    private readonly context: SourceContext,
    private readonly onAccepted: (read: IssuedRead, outcome: AcceptOutcome) => void,
  ) {
    const { ledger, lease, settings } = context;
    const { session } = lease;
    // Each read in flight listens to it; Node takes more than ten for a leak.
    setMaxListeners(0, context.signal);
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
    const left = [...uris];
    const issue = async (limit: number) => {
      // A page may come back short, because some of it is closed or revoked; only the end of the list is the end.
      while (left.length > 0) {
        const page = left.splice(0, limit);
        const issued = await ledger.issueReads(lease.session, { uris: page, reason: "demand", ...this.#claim });
        if (issued.length > 0) return issued;
      }
      return [];
    };
    return this.#drain(issue, (uri) => left.push(uri));
  }

  /** Something became due: a drain under way looks again, also while it waits for slow answers. */
  nudge(): void {
    this.#more = true;
    this.#somethingEnded();
  }

  /** Does not reject. */
  #drain(issue: (limit: number) => Promise<IssuedRead[]>, unsent?: (uri: string) => void): Promise<DrainEnd> {
    const drained = this.#turn.then(() => {
      this.#unsent = unsent ?? (() => undefined);
      this.#throttled.clear();
      return this.#drainAlone(issue);
    });
    this.#turn = drained;
    return drained;
  }

  async #drainAlone(issue: (limit: number) => Promise<IssuedRead[]>): Promise<DrainEnd> {
    const line: IssuedRead[] = [];
    const pending = new Set<Promise<void>>();
    this.#failure = undefined;
    this.#unauthorized = 0;
    this.#more = true;
    try {
      while (!this.#stopped && (this.#more || line.length + pending.size > 0)) {
        const ended = this.#nextEnd();
        if (this.#patience?.remainingMs) {
          // What waits in line is issued anew afterwards: what is announced until then would cause one more read (U5).
          for (const read of line) this.#unsent(read.uri);
          await Promise.all(line.splice(0).map((read) => this.#giveUp(read)));
          this.#more = true;
          await this.#patience.wait(this.context.signal);
          continue;
        }
        while (line.length > 0 && this.#hasRoom(pending.size)) {
          const sent: Promise<void> = this.#send(line.shift() as IssuedRead).finally(() => {
            pending.delete(sent);
            this.#somethingEnded();
          });
          pending.add(sent);
        }
        if (line.length > 0 || !this.#hasRoom(pending.size)) await ended;
        else if (this.#more) line.push(...(await this.#issue(issue)));
        else {
          await ended;
          // What was announced while they were in flight is due again; one look when all are in finds it.
          this.#more ||= pending.size === 0;
        }
      }
    } catch (error) {
      this.#fail(error);
    }
    await Promise.all([...pending, ...line.map((read) => this.#giveUp(read))]);
    return this.#stopped ? "stopped" : "drained";
  }

  async #issue(issue: (limit: number) => Promise<IssuedRead[]>): Promise<IssuedRead[]> {
    const { readConcurrency, readsPerSecond } = this.context.settings;
    const free = readConcurrency - this.#reading;
    const ahead = Math.floor((readConcurrency * LINE_MS) / Math.max(1, this.#readMs));
    const limit = readsPerSecond === undefined ? Math.min(MAX_LINE, Math.max(free, ahead)) : free;
    const allowed = await this.#rate.take(limit, this.context.signal);
    this.#more = false;
    const issued = await issue(allowed);
    this.#rate.giveBack(allowed - issued.length);
    if (issued.length > 0) this.#more = true;
    this.#note(issued);
    return issued;
  }

  #hasRoom(pending: number): boolean {
    const { readConcurrency } = this.context.settings;
    return this.#reading < readConcurrency && pending < readConcurrency * ANSWERS_PER_READ;
  }

  /** Resolves at the next end of a read or an acceptance, or at a nudge. */
  #nextEnd(): Promise<void> {
    return new Promise((resolve) => {
      this.#somethingEnded = resolve;
    });
  }

  get #stopped(): boolean {
    return this.#failure !== undefined || this.context.signal.aborted || !this.context.lease.held;
  }

  get #patience(): ServerPatience | undefined {
    return this.context.connection.wire.http?.patience;
  }

  #note(issued: readonly IssuedRead[]): void {
    if (issued.length === 0) return;
    this.#total += issued.length;
    this.context.counts.issued(issued.length);
    this.context.onProgress({ phase: "read", done: this.#done, total: this.#total });
  }

  /** Never rejects. */
  async #send(read: IssuedRead): Promise<void> {
    try {
      const outcome = await this.#request(read.uri);
      if (outcome.outcome === "failed" || outcome.outcome === "unreachable") this.failed.add(read.uri);
      else this.failed.delete(read.uri);
      if (outcome.outcome === "throttled") this.#sendAgain(read.uri);
      if (outcome.outcome === "content") await this.#accept(read, outcome);
      else await this.#settle(read, outcome);
    } catch (error) {
      this.#fail(error);
    }
    this.#done += 1;
    this.context.onProgress({ phase: "read", done: this.#done, total: this.#total });
  }

  /** It is due again at once; where the drain is for named URIs, it is named again, but not for ever. */
  #sendAgain(uri: string): void {
    const times = (this.#throttled.get(uri) ?? 0) + 1;
    this.#throttled.set(uri, times);
    if (times < MAX_THROTTLED) this.#unsent(uri);
    this.#more = true;
  }

  async #request(uri: string): Promise<ReadOutcome> {
    const { connection, settings, choice, signal } = this.context;
    const startedAt = performance.now();
    this.#reading += 1;
    try {
      const read = await readResource(connection, uri, { maxBodyBytes: settings.maxBodyBytes, signal });
      return withoutExcludedParts(uri, read, choice);
    } finally {
      this.#reading -= 1;
      this.#readMs += (performance.now() - startedAt - this.#readMs) / 16;
      this.#somethingEnded();
    }
  }

  /** It was never sent; where the ledger does not take that, its claim runs out. */
  async #giveUp({ subscriptionId, ordinal, requestId }: IssuedRead): Promise<void> {
    await this.#settling.add({ subscriptionId, ordinal, requestId, as: "lost" }).catch(() => undefined);
  }

  async #accept(read: IssuedRead, content: ReadContent): Promise<void> {
    this.#unauthorized = 0;
    const { subscriptionId, ordinal, requestId } = read;
    const mimeType = content.parts[0]?.mimeType;
    const { ttlMs } = content;
    const accepted = await this.#accepting.add({
      subscriptionId,
      ordinal,
      requestId,
      digest: content.digest,
      parts: content.parts,
      ...(mimeType !== undefined && { mimeType }),
      ...(ttlMs !== undefined && { ttlMs }),
    });
    this.context.counts.answered(read.uri, accepted.outcome);
    if (accepted.outcome === "accepted" || accepted.outcome === "accepted_not_current") {
      this.onAccepted(read, accepted.outcome);
    }
    if (accepted.outcome.endsWith("_not_current")) this.#more = true;
    this.context.logger.debug({ uri: read.uri, ordinal, reason: read.reason, outcome: accepted.outcome }, "read");
  }

  async #settle(read: IssuedRead, outcome: Exclude<ReadOutcome, ReadContent>): Promise<void> {
    const { ledger, lease, settings, counts, logger } = this.context;
    const { subscriptionId, ordinal, requestId, uri } = read;
    const { message } = outcome;
    const as = SETTLED_AS[outcome.outcome];
    await this.#settling.add({ subscriptionId, ordinal, requestId, as, message });
    logger.debug({ uri, ordinal, reason: read.reason, outcome: outcome.outcome }, "read without content");
    counts.failed({ uri, code: `read_${outcome.outcome}`, message });
    if (as === "forbidden" && settings.revokeForbidden) {
      await ledger.revokeForbidden(lease.session, [{ subscriptionId, ordinal }]);
    }
    if (as !== "unauthorized") return;
    this.#unauthorized += 1;
    // The credential, not the resource: every other read would fail the same way (P7).
    if (this.#unauthorized >= MAX_UNAUTHORIZED) this.#fail(connectorError("source_unauthorized", message));
  }

  #fail(error: unknown): void {
    this.#failure ??= error ?? "unknown";
    if (!this.context.signal.aborted) this.context.logger.warn(problemOf(error), "reading stopped");
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
