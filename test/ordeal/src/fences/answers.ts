import { createHash, randomUUID } from "node:crypto";
import type { Session, SettledAs } from "@fenceline/ledger";
import type { Trials } from "../ordeal.js";
import type { ClientLog, Deviation, SentAnswer } from "./client-log.js";
import type { Fire, ScopeUnderFire, SentRead } from "./scope-under-fire.js";

/** Far above every ordinal of a run. */
const NEVER_ISSUED = 1_000_000;

interface Aimed {
  readonly read: SentRead;
  readonly deviation: Deviation;
  readonly ordinal: number;
  readonly requestId: string;
}

/**
 * Answers reads with content: late, reordered, again, to the wrong session, generation, request or ordinal.
 *
 * @returns how many answers were sent
 */
export async function answerReads(fire: Fire, scope: ScopeUnderFire, trials: Trials, log: ClientLog): Promise<number> {
  const { session, aimed } = aim(fire, scope);
  if (session === undefined || aimed.length === 0) return 0;
  const answers = aimed.map(({ read, ordinal, requestId }) => {
    // Few contents, so that many answers bring what is there already.
    const text = `${read.uri} ${fire.random.between(1, 3)}`;
    const { subscriptionId, uri } = read;
    return { subscriptionId, ordinal, requestId, digest: digestOf(text), parts: [{ uri, text }] };
  });
  const results = await fire.ledger.acceptResourceVersions(session, answers);
  const digests = new Map(answers.map(({ subscriptionId, digest }) => [subscriptionId, digest.toString("hex")]));
  note(scope, "answer", aimed, results, trials, log, (subscriptionId) => digests.get(subscriptionId) as string);
  return aimed.length;
}

/** How the ordeal's reads end without content, and how often. */
const endings: Readonly<Record<SettledAs, number>> = {
  not_found: 10,
  lost: 8,
  failed: 6,
  forbidden: 3,
  empty: 2,
  too_large: 1,
  unauthorized: 0.3,
};

/** Ends reads without content, with the same deviations. */
export async function settleReads(fire: Fire, scope: ScopeUnderFire, trials: Trials, log: ClientLog): Promise<number> {
  const { session, aimed } = aim(fire, scope);
  if (session === undefined || aimed.length === 0) return 0;
  const reads = aimed.map(({ read, ordinal, requestId }) => {
    const as = fire.random.weighted(endings);
    return { subscriptionId: read.subscriptionId, ordinal, requestId, as };
  });
  const results = await fire.ledger.settleReads(session, reads);
  const asOf = new Map(reads.map(({ subscriptionId, as }) => [subscriptionId, as]));
  note(scope, "settle", aimed, results, trials, log, (subscriptionId) => ({
    settledAs: asOf.get(subscriptionId) as SettledAs,
  }));
  for (const [position, { as }] of reads.entries()) {
    if (aimed[position]?.deviation === "none") {
      trials.note(
        `settled as ${as}`,
        results.find(
          ({ ordinal, subscriptionId }) =>
            subscriptionId === reads[position]?.subscriptionId && ordinal === reads[position]?.ordinal,
        )?.outcome ?? "unanswered",
      );
    }
  }
  return aimed.length;
}

/** Which reads are answered under which session, and what is wrong with each. */
function aim({ random }: Fire, scope: ScopeUnderFire): { session: Session | undefined; aimed: Aimed[] } {
  const past = scope.pastSessions.length > 0 && random.chance(0.05) ? random.pick(scope.pastSessions) : undefined;
  const session = past ?? scope.session;
  if (session === undefined) return { session, aimed: [] };
  const aimed = scope.toAnswer(random, random.between(1, 14)).map((read): Aimed => {
    const right = { read, ordinal: read.ordinal, requestId: read.requestId };
    const again = read.answered;
    if (random.chance(0.04)) return { ...right, requestId: randomUUID(), deviation: "wrong_request_id" };
    if (random.chance(0.04)) return { ...right, ordinal: read.ordinal + NEVER_ISSUED, deviation: "never_issued" };
    read.answered = true;
    if (scope.isOld(read)) return { ...right, deviation: "old_generation" };
    if (past) return { ...right, deviation: "old_session" };
    if (read.session.generation !== session.generation) return { ...right, deviation: "request_of_old_session" };
    return { ...right, deviation: again ? "again" : "none" };
  });
  return { session, aimed };
}

function note(
  scope: ScopeUnderFire,
  verb: "answer" | "settle",
  aimed: readonly Aimed[],
  results: readonly { subscriptionId: number; ordinal: number; outcome: SentAnswer["outcome"] }[],
  trials: Trials,
  log: ClientLog,
  contentOf: (subscriptionId: number) => SentAnswer["content"],
): void {
  const outcomes = new Map(results.map(({ subscriptionId, outcome }) => [subscriptionId, outcome]));
  for (const { read, ordinal, deviation } of aimed) {
    const { subscriptionId } = read;
    const outcome = outcomes.get(subscriptionId);
    if (outcome === undefined) throw new Error(`The ledger left out the ${verb} of ${subscriptionId}.${ordinal}.`);
    trials.note(`${verb}, ${deviation}`, outcome);
    const { scopeId } = scope.session as Session;
    log.push({ scopeId, subscriptionId, ordinal, deviation, content: contentOf(subscriptionId), outcome });
  }
}

function digestOf(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
