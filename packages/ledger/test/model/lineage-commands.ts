import fc from "fast-check";
import { expect } from "vitest";
import type { UriScope } from "#src/uri-scope.js";
import { writeVersion } from "../whole-ledger.js";
import { command, type Step } from "./command.js";
import { keyOf, type LedgerModel, type ModelEntry, type ModelPlan } from "./ledger-model.js";
import type { ModelRevocation } from "./policy-model.js";
import { open } from "./reading-commands.js";
import type { ModelSubscription } from "./reading-state.js";
import { DIRECTORY, READERS, type RealLedger, SOURCE, URIS } from "./real-ledger.js";

const CLAIM_MS = 10_000;
const WRITER_MS = 5_000;
export const ASKERS: readonly (readonly string[])[] = [
  ["user:alice", "group:sales"],
  ["user:bea", "group:sales"],
  ["user:alice"],
  ["svc:one"],
  ["svc:two"],
];

// Indexing

/** Claims everything, records the intents and writes; confirming comes later, if at all. */
const begin: Step<Record<never, never>> = async (model, real) => {
  await begun(model, real);
};

async function begun(model: LedgerModel, real: RealLedger): Promise<RealLedger["plans"]> {
  const work = await real.ledger.claimIndexWork(real.index.ref, { limit: 100, leaseMs: CLAIM_MS });
  const expected = model.indexable();
  expect(work.map(keyOf).sort()).toEqual(expected.map(keyOf).sort());
  const plans: RealLedger["plans"] = [];
  for (const each of work) {
    const subscription = expected.find((one) => keyOf(one) === keyOf(each)) as ModelSubscription;
    const { ordinal } = model.claim(subscription, each.claimToken, CLAIM_MS);
    expect(each.ordinal).toBe(ordinal);
    expect(each.parts.map(({ uri, text }) => ({ uri, text }))).toEqual(
      (subscription.version?.parts ?? []).map(({ uri, lines }) => ({ uri, text: lines.join("\n") })),
    );
    expect(each.present.map(({ entryId }) => entryId).sort()).toEqual(
      model
        .reusable(each.uri)
        .map(({ id }) => id)
        .sort(),
    );
    const planned = await writeVersion(real.ledger, real.index, each);
    const plan: ModelPlan = {
      reader: each.reader,
      uri: each.uri,
      ordinal,
      generation: subscription.version?.generation ?? 0,
      token: each.claimToken,
      written: planned.written.flatMap(({ entryIds }) => entryIds),
      reused: planned.reused,
    };
    for (const { partId, entryIds } of planned.written) {
      const part = each.parts.find((one) => one.partId === partId)?.uri as string;
      for (const id of entryIds) model.intend(plan, part, id, real.index.entries.get(id) as string, WRITER_MS);
    }
    plans.push({ real: planned, model: plan });
  }
  real.plans.push(...plans);
  return plans;
}

async function confirmed(model: LedgerModel, real: RealLedger, plan: RealLedger["plans"][number]): Promise<void> {
  const [answer] = await real.ledger.confirmVersions(real.index.ref, [plan.real]);
  expect(answer?.outcome).toBe(model.confirm(plan.model));
}

const confirm: Step<{ pick: number }> = async (model, real, { pick }) => {
  const plan = real.plans.at(-1 - (pick % real.plans.length));
  if (plan) await confirmed(model, real, plan);
};

/** A worker gives up between two steps, in order. */
const abandon: Step<{ pick: number }> = async (model, real, { pick }) => {
  const plan = real.plans.at(-1 - (pick % real.plans.length));
  if (!plan) return;
  await real.ledger.abandonIntents(plan.real.written.map(({ groupId }) => groupId));
  await real.ledger.releaseIndexWork(real.index.ref, plan.real.work);
  model.abandon(plan.model);
  model.release(plan.model);
};

export const indexAll: Step<Record<never, never>> = async (model, real) => {
  for (const plan of await begun(model, real)) await confirmed(model, real, plan);
};

// Purge

async function claimed(model: LedgerModel, real: RealLedger): Promise<RealLedger["claims"][number]> {
  const expected = model.purgeable().map(({ id }) => id);
  const claims = await real.ledger.claimPurge({ store: real.index.ref.store, limit: 1_000, leaseMs: CLAIM_MS });
  const idsOf = (swept: boolean) =>
    claims
      .filter(({ sweptBefore }) => sweptBefore === swept)
      .flatMap(({ entries }) => entries.map(({ entryId }) => entryId));
  expect(idsOf(false).sort()).toEqual(expected.sort());
  // When exactly what never settled is looked at again is the ledger's business (P3).
  for (const id of idsOf(true)) expect(model.entries.get(id)?.state).toBe("PURGED");
  for (const { claimToken, entries } of claims) {
    for (const { entryId } of entries) model.claimPurge(model.entries.get(entryId) as ModelEntry, claimToken, CLAIM_MS);
  }
  return claims;
}

async function purged(model: LedgerModel, real: RealLedger, claims: RealLedger["claims"][number]): Promise<void> {
  for (const { entryId } of claims.flatMap(({ entries }) => entries)) real.index.entries.delete(entryId);
  await real.ledger.confirmPurge(real.index.ref.store, claims, { claim: "absent" });
  for (const { claimToken, entries } of claims) {
    for (const { entryId } of entries) model.confirmPurge(model.entries.get(entryId) as ModelEntry, claimToken);
  }
}

const claimPurge: Step<Record<never, never>> = async (model, real) => {
  real.claims.push(await claimed(model, real));
};

const confirmPurge: Step<{ pick: number }> = async (model, real, { pick }) => {
  const claims = real.claims[pick % real.claims.length];
  if (claims) await purged(model, real, claims);
};

export const purgeAll: Step<Record<never, never>> = async (model, real) => {
  for (;;) {
    const claims = await claimed(model, real);
    if (claims.length === 0) return;
    await purged(model, real, claims);
  }
};

// Grants and revocations

const grant: Step<{ reader: string; audience: string; scope: UriScope; withdrawn: boolean }> = async (
  model,
  real,
  args,
) => {
  const { reader, audience, scope, withdrawn } = args;
  const given = { reader, audience, scope };
  if (withdrawn) {
    expect(await real.ledger.withdrawGrant({ source: SOURCE, ...given })).toBe(model.policy.withdraw(given));
  } else {
    await real.ledger.grant({ source: SOURCE, ...given });
    model.policy.grant(given);
  }
};

const revoke: Step<{ subject: string; role: ModelRevocation["role"]; scope: UriScope; everySource: boolean }> = async (
  model,
  real,
  { everySource, ...asked },
) => {
  const status = await real.ledger.revoke({ ...asked, ...(!everySource && { source: SOURCE }), reason: "model" });
  expect(status.state).toBe("EFFECTIVE");
  const { number } = model.policy.revoke(asked);
  real.revocations[number] = status.revocationId;
};

export const advance: Step<{ pick: number }> = async (model, real, { pick }) => {
  const revocation = model.policy.revocations[pick % model.policy.revocations.length];
  if (!revocation) return;
  const id = real.revocations[revocation.number] as number;
  while ((await real.ledger.advanceRevocation(id, { limit: 2 })) === "more");
  model.advance(revocation);
};

const lift: Step<{ pick: number }> = async (model, real, { pick }) => {
  const revocation = model.policy.revocations[pick % model.policy.revocations.length];
  if (!revocation) return;
  expect((await real.ledger.lift(real.revocations[revocation.number] as number)).state).toBe("LIFTED");
  model.lift(revocation);
};

/** Revoked, carried out, lifted and opened again at once: what came before it must not reach past it (F6, P2). */
const revokeAndLift: Step<{ subject: string; scope: UriScope }> = async (model, real, { subject, scope }) => {
  await revoke(model, real, { subject, role: "reader", scope, everySource: false });
  const pick = model.policy.revocations.length - 1;
  await advance(model, real, { pick });
  await lift(model, real, { pick });
  await open(model, real, { reader: subject, pushed: URIS });
};

export const ask: Step<{ asker: readonly string[] }> = async (model, real, { asker }) => {
  const entryIds = [...model.entries.keys()];
  const seen = await real.ledger.visibleEntries({ index: real.index.ref.name, entryIds, asker });
  const byId = (one: { id: string }, other: { id: string }) => (one.id < other.id ? -1 : 1);
  expect(seen.map(({ entryId, freshness }) => ({ id: entryId, freshness })).sort(byId)).toEqual(
    model.visible(asker).sort(byId),
  );
};

const pick = fc.nat({ max: 20 });
const none = fc.constant({});
const audiences = ["user:alice", "user:bea", "group:sales"];
const scope = fc.oneof(
  fc.constantFrom(...URIS, `${DIRECTORY}/0`).map((uri): UriScope => ({ uri })),
  fc.constantFrom("catalog://a", "catalog://b", DIRECTORY).map((prefix): UriScope => ({ prefix })),
  fc.constant<UriScope>({ everything: true }),
);

/** Indexing, purging, grants and revocations; what leads further is there more than once. */
export const lineageCommands = [
  command("begin", none, begin),
  ...twice(command("confirm", fc.record({ pick }), confirm)),
  command("abandon", fc.record({ pick }), abandon),
  ...twice(command("indexAll", none, indexAll)),
  command("claimPurge", none, claimPurge),
  command("confirmPurge", fc.record({ pick }), confirmPurge),
  command("purgeAll", none, purgeAll),
  ...twice(
    command(
      "grant",
      fc.record({
        reader: fc.constantFrom(...READERS),
        audience: fc.constantFrom(...audiences),
        scope,
        withdrawn: fc.boolean(),
      }),
      grant,
    ),
  ),
  ...twice(
    command(
      "revoke",
      fc.record({
        subject: fc.constantFrom(...READERS, ...audiences),
        role: fc.constantFrom("reader", "audience", "both"),
        scope,
        everySource: fc.boolean(),
      }),
      revoke,
    ),
  ),
  ...twice(command("advance", fc.record({ pick }), advance)),
  ...twice(command("lift", fc.record({ pick }), lift)),
  command("revokeAndLift", fc.record({ subject: fc.constantFrom(...READERS), scope }), revokeAndLift),
  command("ask", fc.record({ asker: fc.constantFrom(...ASKERS) }), ask),
];

function twice<Item>(item: Item): [Item, Item] {
  return [item, item];
}
