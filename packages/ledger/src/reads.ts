import { setImmediate as nextRound } from "node:timers/promises";
import { readArguments } from "./arguments/reads.js";
import { Coalescer } from "./coalescer.js";
import type { Queryable } from "./database/database.js";
import { assert, FencelineError } from "./errors.js";
import { call, fenceOf, PREPARED } from "./fenced-call.js";
import { checkedCalls } from "./input.js";
import { lineageIdOf } from "./lineage-id.js";
import { defaultReadTiming, type ReadTiming } from "./read-timing.js";
import { ensureResources, keyDigest } from "./resource-rows.js";
import { resourceKey } from "./resource-uri.js";
import type { Session } from "./sessions.js";

export type ReadReason = "first" | "notified" | "stream_opened" | "timer" | "vanished" | "reopened" | "demand";

/** A read that took its ordinal (F1). The ordinal is also the claim: at most one is in flight per URI (U5). */
export interface IssuedRead {
  readonly subscriptionId: number;
  readonly ordinal: number;
  /** UUID; the answer has to name it. */
  readonly requestId: string;
  /** The server's own spelling. */
  readonly uri: string;
  readonly generation: number;
  readonly reason: ReadReason;
}

/** One content of an answer; its URI may differ from the one asked for (F5). */
export interface ReadPart {
  readonly uri: string;
  readonly mimeType?: string;
  readonly text?: string;
  readonly bytes?: Uint8Array;
}

export interface ReadAnswer {
  readonly subscriptionId: number;
  readonly ordinal: number;
  readonly requestId: string;
  /** SHA-256 over the canonical encoding of all parts. */
  readonly digest: Uint8Array;
  readonly mimeType?: string;
  /**
   * The server's hint how long the content may stay as it is, in milliseconds. It stretches the interval of a polled resource, to
   * half of its source's staleness bound at most, and never shortens it (U3).
   */
  readonly ttlMs?: number;
  readonly parts: readonly ReadPart[];
}

export type AcceptOutcome =
  /** A new version, current. */
  | "accepted"
  /** A new version, but something was announced after its read was sent: kept, not served as fresh, due again (F3). */
  | "accepted_not_current"
  /** Same content: watermark and `verifiedAt` move, nothing is indexed again (F6). */
  | "unchanged"
  | "unchanged_not_current"
  /** Older than what was accepted, or of an older session or generation: a stale receipt and nothing else (F4). */
  | "stale"
  /** The subscription was closed: audit only (U8). */
  | "stale_after_close"
  /** A standing revocation covers it (P2). */
  | "revoked"
  /** No such read was issued, or it was settled before (F9). */
  | "not_issued";

export interface AcceptedRead {
  readonly subscriptionId: number;
  readonly ordinal: number;
  readonly outcome: AcceptOutcome;
  /** Of the newest version, where the outcome accepted one or confirmed it unchanged. */
  readonly lineageId?: string;
}

/** How a read ended without content. */
export type SettledAs = "lost" | "failed" | "empty" | "too_large" | "not_found" | "forbidden" | "unauthorized";

export type SettleOutcome = "settled" | "tombstone_pending" | "tombstoned" | "hidden" | "stale" | "not_issued";

export interface ReadLedger {
  /** Claims what is due, oldest first, and issues each its ordinal, in one round trip. `[]` also when the session is lost. */
  issueDueReads(session: Session, page: { readonly limit: number; readonly leaseMs: number }): Promise<IssuedRead[]>;
  /** Issues reads for these URIs whether due or not (on demand); those in flight, closed or revoked are left out. */
  issueReads(
    session: Session,
    request: { readonly uris: readonly string[]; readonly reason: ReadReason; readonly leaseMs: number },
  ): Promise<IssuedRead[]>;
  /** Milliseconds until the next read of this scope is due; 0 when one is, `undefined` when none will be. */
  millisecondsToNextRead(session: Session): Promise<number | undefined>;
  /**
   * The one place that accepts (F3): the whole fence, versions, bodies, receipts and outbox in one round trip. Calls of
   * a few answers that are made at once share statements, and each gets its own outcomes or its own error. The outcomes
   * are in the order of the answers.
   */
  acceptResourceVersions(session: Session, answers: readonly ReadAnswer[]): Promise<readonly AcceptedRead[]>;
  /** Ends reads that brought no content (F7, F9, P7). */
  settleReads(
    session: Session,
    reads: readonly {
      readonly subscriptionId: number;
      readonly ordinal: number;
      readonly requestId: string;
      readonly as: SettledAs;
      readonly message?: string;
    }[],
  ): Promise<{ readonly subscriptionId: number; readonly ordinal: number; readonly outcome: SettleOutcome }[]>;
}

/** Fenced reads; see `ReadLedger`. The rules are in `functions/reads.sql` and `functions/settled-reads.sql`. */
export function readLedger(database: Queryable, timing: ReadTiming = defaultReadTiming): ReadLedger {
  const accepting = acceptance(database, timing);
  return checkedCalls(readArguments, {
    async issueDueReads(session, { limit, leaseMs }) {
      const issued: IssuedRead[] = [];
      for (;;) {
        const reads = await issuedReads(database, "select * from fenceline.issue_due_reads($1, $2, $3, $4, $5)", [
          ...fenceOf(session),
          limit - issued.length,
          leaseMs,
          timing.polledIntervalMs,
        ]);
        const isMoreToLookAt = reads.at(-1)?.subscriptionId === null;
        issued.push(...(isMoreToLookAt ? reads.slice(0, -1) : reads));
        if (!isMoreToLookAt) return issued;
      }
    },

    async issueReads(session, { uris, reason, leaseMs }) {
      return issuedReads(database, "select * from fenceline.issue_reads($1, $2, $3, $4, $5, $6)", [
        ...fenceOf(session),
        session.sourceId,
        uris.map((uri) => keyDigest(resourceKey(uri))),
        reason,
        leaseMs,
      ]);
    },

    async millisecondsToNextRead(session) {
      const parameters = [...fenceOf(session), timing.polledIntervalMs];
      for (;;) {
        const ms = await call<number | null>(database, "fenceline.milliseconds_to_next_read($1, $2, $3)", parameters);
        // Some were put off, in a transaction of their own.
        if (ms !== -1) return ms ?? undefined;
      }
    },

    async acceptResourceVersions(session, answers) {
      if (answers.length === 0) return [];
      return answers.length <= SMALL_CALL ? accepting.small(session, answers) : accepting.now(session, answers);
    },

    async settleReads(session, reads) {
      if (reads.length === 0) return [];
      const rows = await database.query<SettledRow>(
        SETTLE,
        [
          ...fenceOf(session),
          reads.map((read) => read.subscriptionId),
          reads.map((read) => read.ordinal),
          reads.map((read) => read.requestId),
          reads.map((read) => read.as),
          reads.map((read) => read.message ?? null),
          timing.retryMs,
          timing.retryMaxMs,
          timing.jitter,
          timing.notFoundSpacingMs,
          timing.removalFloorCount,
          timing.removalFloorShare,
        ],
        PREPARED,
      );
      return rows.map(({ subscription_id: subscriptionId, ordinal, outcome }) => ({
        subscriptionId,
        ordinal,
        outcome,
      }));
    },
  });
}

/** Answers of a call that is grouped with others, at most. */
const SMALL_CALL = 10;
/** Answers in a group: what holds the fence at a time is kept short (P2). */
const GROUP = 100;
/** Bytes of a group's bodies, in answers' weight: a group stays below some 8 MiB. */
const BYTES_PER_WEIGHT = 80_000;

interface Acceptance {
  /** In a statement of its own. */
  now(session: Session, answers: readonly ReadAnswer[]): Promise<AcceptedRead[]>;
  /** Together with what other callers of the session hand in while statements are under way. */
  small(session: Session, answers: readonly ReadAnswer[]): Promise<readonly AcceptedRead[]>;
}

function acceptance(database: Queryable, timing: ReadTiming): Acceptance {
  const coalescers = new Map<string, Coalescer<readonly ReadAnswer[], readonly AcceptedRead[]>>();
  const now = async (session: Session, unordered: readonly ReadAnswer[]) => {
    // As the function locks them, which then finds a part that is the resource itself without looking it up.
    const answers = unordered.toSorted((a, b) => a.subscriptionId - b.subscriptionId);
    const parameters = [
      ...fenceOf(session),
      session.sourceId,
      ...answerParameters(answers),
      ...partParameters(answers),
      timing.polledIntervalMs,
      timing.pushedIntervalMs,
      timing.jitter,
    ];
    let rows = await acceptKnownResources(database, parameters);
    if (rows === "resources_missing") {
      const uris = answers.flatMap((answer) => answer.parts.map((part) => part.uri));
      await ensureResources(database, session, uris);
      rows = await acceptKnownResources(database, parameters);
    }
    assert(rows !== "resources_missing", "Resources are never deleted.");
    const rowOf = new Map(rows.map((row) => [row.subscription_id, row]));
    return unordered.map(({ subscriptionId, ordinal }) => {
      const row = rowOf.get(subscriptionId);
      assert(row !== undefined, "Every answer has an outcome.");
      const { outcome, version_ordinal: version } = row;
      return {
        subscriptionId,
        ordinal,
        outcome,
        ...(version === null ? {} : { lineageId: lineageIdOf(subscriptionId, version) }),
      };
    });
  };
  const coalescerOf = (session: Session) =>
    new Coalescer<readonly ReadAnswer[], readonly AcceptedRead[]>({
      // One statement's commit is waited for while the next one works.
      lanes: 2,
      maxWeight: GROUP,
      weightOf: (answers) =>
        answers.reduce((sum, answer) => sum + 1 + Math.floor(bytesOf(answer) / BYTES_PER_WEIGHT), 0),
      keysOf: (answers) => answers.map((answer) => answer.subscriptionId),
      async run(group) {
        const accepted = await now(session, group.flat());
        let end = 0;
        return group.map(({ length }) => {
          end += length;
          return accepted.slice(end - length, end);
        });
      },
      isOneCallsFault: (error) => error instanceof FencelineError && error.code === "statement_failed",
      pause: nextRound,
    });
  return {
    now,
    async small(session, answers) {
      const key = [...fenceOf(session), session.sourceId].join(" ");
      const coalescer = coalescers.get(key) ?? coalescerOf(session);
      coalescers.set(key, coalescer);
      try {
        return await coalescer.submit(answers);
      } finally {
        // A session that is over leaves nothing behind.
        for (const [other, { isIdle }] of coalescers) if (isIdle && other !== key) coalescers.delete(other);
      }
    },
  };
}

const ACCEPT = `select * from fenceline.accept_resource_versions(${placeholders(22)})`;
const SETTLE = `select * from fenceline.settle_reads(${placeholders(13)})`;

interface AcceptedRow {
  readonly subscription_id: number;
  readonly ordinal: number;
  readonly outcome: AcceptOutcome;
  readonly version_ordinal: number | null;
}

interface SettledRow {
  readonly subscription_id: number;
  readonly ordinal: number;
  readonly outcome: SettleOutcome;
}

/** `resources_missing`: a part has a URI that was never seen, so its resource comes first; nothing was decided (F5). */
async function acceptKnownResources(
  database: Queryable,
  parameters: readonly unknown[],
): Promise<AcceptedRow[] | "resources_missing"> {
  const rows = await database.query<AcceptedRow | { outcome: "resources_missing" }>(ACCEPT, parameters, PREPARED);
  const accepted = rows.filter((row) => row.outcome !== "resources_missing");
  return accepted.length === rows.length ? accepted : "resources_missing";
}

function placeholders(count: number): string {
  return Array.from({ length: count }, (_, index) => `$${index + 1}`).join(", ");
}

async function issuedReads(database: Queryable, text: string, values: readonly unknown[]): Promise<IssuedRead[]> {
  const rows = await database.query<{
    subscription_id: number;
    ordinal: number;
    request_id: string;
    uri: string;
    generation: number;
    reason: ReadReason;
  }>(text, values, PREPARED);
  return rows.map(({ subscription_id: subscriptionId, request_id: requestId, ...rest }) => ({
    subscriptionId,
    requestId,
    ...rest,
  }));
}

function answerParameters(answers: readonly ReadAnswer[]): unknown[] {
  return [
    answers.map((answer) => answer.subscriptionId),
    answers.map((answer) => answer.ordinal),
    answers.map((answer) => answer.requestId),
    answers.map((answer) => Buffer.from(answer.digest)),
    answers.map((answer) => answer.mimeType ?? null),
    answers.map(bytesOf),
    answers.map((answer) => answer.parts.length),
    answers.map((answer) => answer.ttlMs ?? 0),
  ];
}

function partParameters(answers: readonly ReadAnswer[]): unknown[] {
  const parts = answers.flatMap(({ subscriptionId, ordinal, parts }) =>
    parts.map((part, position) => ({ ...part, position, subscriptionId, ordinal })),
  );
  return [
    parts.map((part) => part.subscriptionId),
    parts.map((part) => part.ordinal),
    parts.map((part) => part.position),
    parts.map((part) => keyDigest(resourceKey(part.uri))),
    parts.map((part) => part.uri),
    parts.map((part) => part.mimeType ?? null),
    parts.map((part) => part.text ?? null),
    parts.map((part) => (part.bytes === undefined ? null : Buffer.from(part.bytes))),
  ];
}

function bytesOf(answer: ReadAnswer): number {
  return answer.parts.reduce((sum, part) => sum + sizeOf(part), 0);
}

function sizeOf(part: ReadPart): number {
  return part.bytes?.byteLength ?? Buffer.byteLength(part.text ?? "");
}
