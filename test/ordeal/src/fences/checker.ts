import type { Queryable } from "@fenceline/ledger";
import type { Gates } from "../ordeal.js";
import { type ClientLog, raisedWatermark, type SentAnswer, wasRefused } from "./client-log.js";
import {
  type HistoryRow,
  type SubscriptionFacts,
  type SubscriptionHistory,
  scopeHistory,
  subscriptionHistories,
} from "./history.js";
import { type IssuedRow, issuedReads, type ScopeFacts, scopeFactsOf } from "./scope-facts.js";
import type { AskedRevocation } from "./scope-under-fire.js";

/**
 * The promises of the ordeal, judged apart from the ledger: from the history of the raw rows and from what the clients sent and
 * were answered. Nothing here calls a function of the ledger.
 */
export const gateRules = {
  version_never_goes_back: ["F3", "F4"],
  counters_never_fall: ["F1", "F3"],
  tombstone_only_by_a_newer_read: ["F7", "U8"],
  no_outbox_row_outside_the_active_family: ["U8"],
  nothing_accepted_outside_the_active_family: ["F3", "U7", "U8"],
  no_read_issued_outside_the_active_family: ["U7"],
  no_invalidation_outside_the_active_family: ["U11"],
  reopened_only_with_a_new_generation: ["U9", "F3"],
  accepted_only_in_its_session_and_generation: ["F3"],
  nothing_accepted_under_a_revocation: ["P2"],
  current_only_without_newer_notice: ["F3", "U4"],
  each_ordinal_accepted_once: ["F3"],
  what_was_answered_is_what_was_written: ["F3"],
  version_holds_what_was_accepted: ["F2"],
  deviating_answer_is_refused: ["F1", "F3"],
  refusals_leave_receipts: ["F4", "U8"],
  no_deadlock: ["P2"],
} as const;

const CLOSING = new Set(["UNSUBSCRIBING", "CLOSED", "UNSUBSCRIBE_UNKNOWN"]);

/** Puts every gate to the whole history. */
export async function checkHistory(
  database: Queryable,
  schema: string,
  { log, revocations }: { readonly log: ClientLog; readonly revocations: readonly AskedRevocation[] },
  gates: Gates,
): Promise<void> {
  const scopes = scopeFactsOf(await scopeHistory(database, schema), revocations, await scopeNames(database, schema));
  const sent = groupBy(log, ({ subscriptionId }) => subscriptionId);
  for await (const history of subscriptionHistories(database, schema)) {
    const reads = await issuedReads(database, schema, history.subscriptionId);
    checkSubscription(history, scopes, reads, sent.get(history.subscriptionId) ?? [], gates);
  }
  checkDeviations(log, gates);
  await checkReceipts(database, schema, log, gates);
}

function checkSubscription(
  history: SubscriptionHistory,
  scopes: ScopeFacts,
  reads: ReadonlyMap<number, IssuedRow>,
  sent: readonly SentAnswer[],
  gates: Gates,
): void {
  const { subscriptionId } = history;
  const raised = new Map<number, HistoryRow<SubscriptionFacts>>();
  let lifecycle = "";
  let newestVersion = 0;
  for (const row of history.rows) {
    const at = (what: string) => () => `subscription ${subscriptionId} at ${row.position}: ${what}`;
    const active = lifecycle === "ACTIVE";
    switch (row.relation) {
      case "subscription":
        checkChange(row, gates, at);
        if (row.after.accepted > (row.before?.accepted ?? 0)) raised.set(row.after.accepted, row);
        lifecycle = row.after.lifecycle;
        break;
      case "resource_version":
        if (row.before !== null) break;
        gates.check(
          "version_never_goes_back",
          row.after.ordinal > newestVersion,
          at(`version ${row.after.ordinal} after ${newestVersion}`),
        );
        gates.check("nothing_accepted_outside_the_active_family", active, at(`a version while ${lifecycle}`));
        newestVersion = Math.max(newestVersion, row.after.ordinal);
        checkContent(row.after.ordinal, row.after.digest, sent, gates, at);
        break;
      case "outbox": {
        const { before, after } = row;
        const due = after.pending && (before === null || after.ordinal > before.ordinal || !before.pending);
        if (due) {
          gates.check("no_outbox_row_outside_the_active_family", active, at(`an outbox row while ${lifecycle}`));
        }
      }
    }
  }
  checkAccepted(history, raised, scopes, reads, sent, gates);
}

type At = (what: string) => () => string;

/** One change of a subscription's row. */
function checkChange({ before, after }: HistoryRow<SubscriptionFacts>, gates: Gates, at: At): void {
  if (before === null) return;
  const counters = ["generation", "issued", "accepted", "notification"] as const;
  const fallen = counters.filter((counter) => after[counter] < before[counter]);
  gates.check("counters_never_fall", fallen.length === 0, at(`${fallen.join(", ")} fell`));
  const active = before.lifecycle === "ACTIVE" && after.lifecycle === "ACTIVE";
  if (after.issued !== before.issued) {
    gates.check(
      "no_read_issued_outside_the_active_family",
      active && after.issued === before.issued + 1,
      at(`ordinal ${after.issued} issued after ${before.issued} while ${before.lifecycle}`),
    );
  }
  if (after.notification !== before.notification) {
    gates.check("no_invalidation_outside_the_active_family", active, at(`a notification while ${before.lifecycle}`));
  }
  if (after.accepted !== before.accepted) {
    gates.check(
      "nothing_accepted_outside_the_active_family",
      active,
      at(`ordinal ${after.accepted} while ${before.lifecycle}`),
    );
  }
  const deleted = after.hidden === "tombstone_pending" || after.hidden === "tombstoned";
  if (deleted && after.hidden !== before.hidden) {
    // Pending: by a read that raises the watermark in the same change. Confirmed: only what is pending.
    const proven =
      after.hidden === "tombstoned" ? before.hidden === "tombstone_pending" : after.accepted > before.accepted;
    gates.check(
      "tombstone_only_by_a_newer_read",
      active && proven,
      at(`${after.hidden} after ${before.hidden} while ${before.lifecycle}`),
    );
  }
  if (CLOSING.has(before.lifecycle) && !CLOSING.has(after.lifecycle)) {
    const reopened = before.lifecycle === "CLOSED" && after.generation > before.generation;
    gates.check(
      "reopened_only_with_a_new_generation",
      reopened,
      at(`${before.lifecycle} to ${after.lifecycle}, generation ${before.generation} to ${after.generation}`),
    );
  }
}

/** What raised the watermark, beside what the clients were told and what was issued. */
function checkAccepted(
  { subscriptionId, scopeId, uri }: SubscriptionHistory,
  raised: ReadonlyMap<number, HistoryRow<SubscriptionFacts>>,
  scopes: ScopeFacts,
  reads: ReadonlyMap<number, IssuedRow>,
  sent: readonly SentAnswer[],
  gates: Gates,
): void {
  const told = groupBy(sent.filter(raisedWatermark), ({ ordinal }) => ordinal);
  for (const ordinal of new Set([...raised.keys(), ...told.keys()])) {
    const name = `${subscriptionId}.${ordinal}`;
    const row = raised.get(ordinal);
    const answers = told.get(ordinal) ?? [];
    gates.check("each_ordinal_accepted_once", answers.length <= 1, () => `${name}: ${answers.length} times`);
    gates.check(
      "what_was_answered_is_what_was_written",
      row !== undefined && answers.length > 0,
      () =>
        `${name}: ${row ? "written" : "not written"}, answered ${answers.map(({ outcome }) => outcome).join() || "never"}`,
    );
    const read = reads.get(ordinal);
    const [answer] = answers;
    if (row === undefined || answer === undefined) continue;
    const { position, after } = row;
    const session = scopes.sessionAt(scopeId, position);
    gates.check(
      "accepted_only_in_its_session_and_generation",
      read?.sessionGeneration === session && read.generation === after.generation,
      () =>
        `${name}: read of session ${read?.sessionGeneration}, generation ${read?.generation}; then ${session}, ${after.generation}`,
    );
    if (typeof answer.content !== "string") continue;
    const covering = scopes.revocationAt(scopeId, uri, position);
    gates.check("nothing_accepted_under_a_revocation", covering === undefined, () => `${name}: revocation ${covering}`);
    const epoch = after.shard === null ? null : scopes.epochAt(scopeId, after.shard, position);
    const current =
      read?.notificationNumber === after.notification &&
      (!after.pushed || (epoch !== null && read.streamEpoch === epoch));
    gates.check(
      "current_only_without_newer_notice",
      current === !answer.outcome.endsWith("_not_current"),
      () =>
        `${name}: ${answer.outcome}; notification ${read?.notificationNumber} of ${after.notification}, epoch ${read?.streamEpoch} of ${epoch}`,
    );
  }
}

/** The version holds the digest of the one answer that was accepted for it. */
function checkContent(ordinal: number, digest: string | null, sent: readonly SentAnswer[], gates: Gates, at: At): void {
  const accepted = sent.find((answer) => answer.ordinal === ordinal && answer.outcome.startsWith("accepted"));
  gates.check(
    "version_holds_what_was_accepted",
    accepted !== undefined && accepted.content === digest,
    at(`version ${ordinal} holds ${digest}, accepted was ${accepted?.content}`),
  );
}

const neverAccepted = new Set<SentAnswer["deviation"]>([
  "wrong_request_id",
  "never_issued",
  "old_session",
  "request_of_old_session",
  "old_generation",
]);

/** What nothing can put right is refused, always, and with the code that says why. */
function checkDeviations(log: ClientLog, gates: Gates): void {
  for (const answer of log) {
    const { deviation, outcome, subscriptionId, ordinal } = answer;
    if (!neverAccepted.has(deviation)) continue;
    const unknown = deviation === "wrong_request_id" || deviation === "never_issued";
    gates.check(
      "deviating_answer_is_refused",
      unknown ? outcome === "not_issued" : wasRefused(answer),
      () => `${subscriptionId}.${ordinal}: ${deviation} was ${outcome}`,
    );
  }
}

/** Every refusal the clients were told of left its one receipt, and there is no other. */
async function checkReceipts(database: Queryable, schema: string, log: ClientLog, gates: Gates): Promise<void> {
  const kinds = { not_issued: "not_issued", revoked: "refused_revoked", stale: "stale", stale_after_close: "stale" };
  const rows = await database.query<{ name: string; count: number }>(
    `select concat(subscription_id, '.', ordinal, ' ', replace(kind, 'stale_after_close', 'stale')) as name, count(*)
     from ${schema}.receipt where kind in ('not_issued', 'refused_revoked', 'stale', 'stale_after_close') group by 1`,
  );
  const written = new Map(rows.map(({ name, count }) => [name, count]));
  // A settlement says `stale` for both kinds, so they are compared as one.
  const told = groupBy(
    log.filter(wasRefused),
    ({ subscriptionId, ordinal, outcome }) => `${subscriptionId}.${ordinal} ${kinds[outcome as keyof typeof kinds]}`,
  );
  for (const name of new Set([...written.keys(), ...told.keys()])) {
    const count = told.get(name)?.length ?? 0;
    gates.check(
      "refusals_leave_receipts",
      written.get(name) === count,
      () => `${name}: ${written.get(name) ?? 0} receipts for ${count} refusals`,
    );
  }
}

async function scopeNames(database: Queryable, schema: string): Promise<Map<number, string>> {
  const rows = await database.query<{ scope: number; name: string }>(
    `select p.scope_id as scope, concat(src.name, ' ', subj.name) as name from ${schema}.policy_scope p
     join ${schema}.source src using (source_id) join ${schema}.subject subj using (subject_id)`,
  );
  return new Map(rows.map(({ scope, name }) => [scope, name]));
}

function groupBy<Item, Key>(items: readonly Item[], keyOf: (item: Item) => Key): Map<Key, Item[]> {
  const groups = new Map<Key, Item[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group) group.push(item);
    else groups.set(key, [item]);
  }
  return groups;
}
