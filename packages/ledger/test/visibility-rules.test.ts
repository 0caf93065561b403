import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { expect, test } from "vitest";
import { parseEntryId } from "#src/entry-id.js";
import { denialCovers, grantCovers, type UriScope } from "#src/uri-scope.js";
import { activate, openSession, READ_LEASE_MS } from "./ledger-under-test.js";
import {
  advance,
  createDerivedIndex,
  createIndex,
  derive,
  describeWholeLedger,
  type IndexUnderTest,
  indexDue,
  readNow,
  type WholeLedger,
} from "./whole-ledger.js";

const DIRECTORY = "catalog://d";
const PARTS = [`${DIRECTORY}/1`, `${DIRECTORY}/2`, "catalog://a/1"];
const URIS = ["catalog://a/1", "catalog://a/2", "catalog://b/x%20y", DIRECTORY];
const READERS = ["svc:one", "svc:two"];
const AUDIENCES = ["user:alice", "user:bob", "group:sales", "svc:two"];
const ASKERS = [
  ["user:alice"],
  ["user:alice", "group:sales"],
  ["user:bob", "group:sales"],
  ["group:sales"],
  ["group:sales", "user:bob"],
  ["svc:one"],
  ["svc:two", "group:sales"],
  ["user:carol"],
];

const scope: fc.Arbitrary<UriScope> = fc.oneof(
  { weight: 1, arbitrary: fc.constant({ everything: true as const }) },
  {
    weight: 2,
    arbitrary: fc
      .constantFrom("catalog://a", "catalog://d/", "catalog://b", "catalog://B/")
      .map((prefix) => ({ prefix })),
  },
  {
    weight: 4,
    arbitrary: fc.constantFrom(...URIS, ...PARTS, "catalog://b/x y", "catalog://A/2").map((uri) => ({ uri })),
  },
);
const source = fc.constantFrom(0, 1);
const readers = fc.constantFrom(...READERS);
const change = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("grant" as const),
      source,
      reader: readers,
      audience: fc.constantFrom(...AUDIENCES),
      scope,
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("withdraw" as const), nth: fc.nat() }) },
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant("revoke" as const),
      source: fc.option(source),
      subject: fc.constantFrom(...READERS, ...AUDIENCES),
      role: fc.constantFrom("reader" as const, "audience" as const, "both" as const),
      scope,
      isAdvanced: fc.oneof({ weight: 5, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) }),
    }),
  },
  { weight: 8, arbitrary: fc.record({ kind: fc.constant("lift" as const), nth: fc.nat() }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("settle" as const),
      source,
      uri: fc.constantFrom(...URIS),
      as: fc.constantFrom("not_found" as const, "forbidden" as const),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("read" as const), source, reader: readers }) },
);
type Change = typeof change extends fc.Arbitrary<infer Value> ? Value : never;

const CHANGES = 150;

describeWholeLedger("what the guard shows", (ledger) => {
  test("is what the rules say of the texts of grants and revocations, whatever is granted, revoked and lifted (G1, G2, P2, L1)", async () => {
    const seed = Math.floor(Math.random() * 2 ** 31);
    const world = await createWorld(ledger);
    const changes = fc.sample(change, { numRuns: CHANGES, seed });
    for (const [place, each] of changes.entries()) {
      await carryOut(ledger, world, each, place);
      if (place === CHANGES / 2) await grantToMany(ledger, world);
      const rules = await readRules(ledger, world);
      for (const asker of ASKERS) {
        expect(await shownTo(ledger, world, asker), `seed ${seed}, change ${place}, to ${asker}`).toEqual(
          visibleByRules(rules, asker),
        );
      }
    }
  }, 120_000);
});

interface World {
  readonly sources: readonly string[];
  readonly index: IndexUnderTest;
  readonly derived: IndexUnderTest;
}

async function createWorld(ledger: WholeLedger): Promise<World> {
  const sources = [randomUUID(), randomUUID()];
  const index = await createIndex(ledger);
  for (const name of sources) {
    for (const reader of READERS) await openSession(ledger, { source: name, reader });
    for (const reader of READERS) await readAll(ledger, name, reader, reader);
    await indexDue(ledger, index, name);
  }
  const derived = await createDerivedIndex(ledger);
  const ids = [...index.entries.keys()];
  const made = async (text: string, of: readonly (string | undefined)[], audience?: string) => {
    const parents = of.map((entryId) => ({ as: "ingredient" as const, of: { entryId: entryId as string } }));
    const digests = [ledger.digestChunk(text)];
    return derive(
      ledger,
      derived,
      { kind: "summary", parents, digests, ...(audience !== undefined && { audience }) },
      text,
    );
  };
  const both = await made("of both sources", [ids[0], ids.at(-1)]);
  await made("for alice", [ids[1], ids.at(-2)], "user:alice");
  await made("for sales", [ids[2]], "group:sales");
  await made("of a summary", [both, ids[3]]);
  for (const name of sources) {
    for (const [place, audience] of AUDIENCES.entries()) {
      await ledger.grant({ source: name, reader: READERS[place % 2] as string, audience, scope: { everything: true } });
    }
  }
  return { sources, index, derived };
}

async function readAll(ledger: WholeLedger, source: string, reader: string, salt: string): Promise<void> {
  const session = await sessionOf(ledger, source, reader);
  await activate(ledger, session, URIS, "polled");
  const open = await ledger.sql<{ uri: string }>(
    "select uri from fenceline.subscription where scope_id = $1 and lifecycle = 'ACTIVE'",
    [session.scopeId],
  );
  const reads = await ledger.issueReads(session, {
    uris: open.map(({ uri }) => uri),
    reason: "demand",
    leaseMs: READ_LEASE_MS,
  });
  await ledger.advanceClock(READ_LEASE_MS);
  await readNow(
    ledger,
    session,
    reads.map(({ uri }) => uri),
    (uri) =>
      // The readers read the same of one resource, whose entries they share (L5).
      uri === DIRECTORY
        ? Object.fromEntries(PARTS.map((part) => [part, part]))
        : uri.includes("a/2")
          ? uri
          : `${salt} ${uri}`,
  );
}

async function sessionOf(ledger: WholeLedger, source: string, reader: string) {
  const [session] = await ledger.sql<Parameters<WholeLedger["heartbeat"]>[0] & Record<string, unknown>>(
    `select x.session_id as "sessionId", x.scope_id as "scopeId", p.source_id as "sourceId", src.name as source,
       s.name as reader, x.generation, x.lease_ms as "leaseMs"
     from fenceline.session x join fenceline.policy_scope p using (scope_id)
     join fenceline.source src using (source_id) join fenceline.subject s using (subject_id)
     where src.name = $1 and s.name = $2`,
    [source, reader],
  );
  return session as NonNullable<typeof session>;
}

async function carryOut(ledger: WholeLedger, { sources, index }: World, change: Change, place: number): Promise<void> {
  switch (change.kind) {
    case "grant": {
      const { kind: _, source, ...grant } = change;
      await ledger.grant({ ...grant, source: sources[source] as string });
      return;
    }
    case "withdraw": {
      const grants = (await ledger.listGrants()).filter(({ source }) => sources.includes(source));
      const grant = grants[change.nth % grants.length];
      if (grant) await ledger.withdrawGrant(grant, grant.origin);
      return;
    }
    case "revoke": {
      const { kind: _, source, isAdvanced, ...revocation } = change;
      const { revocationId } = await ledger.revoke({
        ...revocation,
        ...(source !== null && { source: sources[source] as string }),
        reason: "rules",
      });
      if (isAdvanced) await advance(ledger, revocationId);
      return;
    }
    case "lift": {
      const standing = (await ledger.listRevocations()).filter(({ state }) => state !== "LIFTED");
      const revocation = standing[change.nth % standing.length];
      if (revocation) await ledger.lift(revocation.revocationId);
      return;
    }
    case "settle": {
      const session = await sessionOf(ledger, sources[change.source] as string, READERS[0] as string);
      const reads = await ledger.issueReads(session, { uris: [change.uri], reason: "demand", leaseMs: READ_LEASE_MS });
      await ledger.settleReads(
        session,
        reads.map((read) => ({ ...read, as: change.as })),
      );
      return;
    }
    case "read": {
      const name = sources[change.source] as string;
      await readAll(ledger, name, change.reader, `${change.reader} ${place}`);
      await indexDue(ledger, index, name);
    }
  }
}

/** More than the guard looks through one by one. */
async function grantToMany(ledger: WholeLedger, { sources }: World): Promise<void> {
  for (const source of sources) {
    const crowd = Array.from({ length: 205 }, (_, n) => ({
      source,
      reader: READERS[n % 2] as string,
      audience: n < 200 ? `user:${n}` : "user:bob",
      scope: n < 203 ? { prefix: "catalog://a" } : { prefix: "catalog://d" },
    }));
    await ledger.replaceConfiguredGrants([source], crowd);
  }
}

async function shownTo(ledger: WholeLedger, { index, derived }: World, asker: readonly string[]): Promise<string[]> {
  const shown: string[] = [];
  for (const { ref, entries } of [index, derived]) {
    const visible = await ledger.visibleEntries({ index: ref.name, entryIds: [...entries.keys()], asker });
    shown.push(...visible.map(({ entryId }) => entryId));
  }
  return shown.sort();
}

interface Edge {
  readonly group: number;
  readonly ingredients: number;
  readonly ingredient: number;
  readonly audience: string | null;
  readonly source: string;
  readonly reader: string;
  readonly uri: string;
  readonly part: string;
}

/** What G2 is decided by: texts, and which edges there are. No hash, no counter and no epoch. */
async function readRules(ledger: WholeLedger, { index, derived }: World) {
  const grants = await ledger.listGrants();
  const revocations = (await ledger.listRevocations()).filter(({ state }) => state !== "LIFTED");
  const edges = await ledger.sql<Edge>(
    `select g.group_id as group, g.ingredients, r.ingredient, a.name as audience, src.name as source, reader.name as reader,
       q.resource_key as uri, part.resource_key as part
     from fenceline.entry_group g join fenceline.group_root r using (group_id)
     join fenceline.subscription s using (subscription_id)
     join fenceline.policy_scope p on p.scope_id = s.scope_id
     join fenceline.source src using (source_id) join fenceline.subject reader using (subject_id)
     join fenceline.resource q on q.resource_id = s.resource_id
     join fenceline.resource part on part.resource_id = r.part_id
     left join fenceline.subject a on a.subject_id = g.audience_id
     where g.index_id = any ($1) and g.state = 'PRESENT' and r.state = 'CURRENT' and s.hidden_because is null
       and s.lifecycle <> 'RECONCILIATION_REQUIRED' and s.digest_generation = s.generation`,
    [[index.ref.indexId, derived.ref.indexId]],
  );
  const groups = edges.map(({ group }) => group);
  const entries = await ledger.sql<{ group: number; number: number }>(
    "select group_id as group, entry_number as number from fenceline.entry where group_id = any ($1)",
    [groups],
  );
  const idOf = new Map(
    [index, derived].flatMap((each) => [...each.entries.keys()].map((id) => [parseEntryId(id)?.number, id] as const)),
  );
  const ids = entries.flatMap(({ group, number }) => {
    const id = idOf.get(number);
    return id === undefined ? [] : [{ group, id }];
  });
  return { grants, revocations, edges, ids };
}

function visibleByRules(
  { grants, revocations, edges, ids }: Awaited<ReturnType<typeof readRules>>,
  asker: readonly string[],
) {
  const isRevoked = (subject: string, as: "reader" | "audience", { source, uri, part }: Edge) =>
    revocations.some(
      (each) =>
        each.subject === subject &&
        (each.role === "both" || each.role === as) &&
        (each.source === undefined || each.source === source) &&
        [uri, part].some((covered) => denialCovers(each.scope, covered)),
    );
  const mayShow = (edge: Edge) => {
    const users = asker.filter((name, place) => place === 0 || /^(user|svc):/.test(name));
    if (users.some((user) => isRevoked(user, "audience", edge))) return false;
    if (isRevoked(edge.reader, "reader", edge)) return false;
    if (edge.audience !== null && (!asker.includes(edge.audience) || isRevoked(edge.audience, "audience", edge)))
      return false;
    const granted = (subject: string, uri: string) =>
      grants.some(
        (each) =>
          each.source === edge.source &&
          each.reader === edge.reader &&
          each.audience === subject &&
          grantCovers(each.scope, uri),
      );
    return asker.some(
      (subject) =>
        !isRevoked(subject, "audience", edge) &&
        (subject === edge.reader || (granted(subject, edge.uri) && granted(subject, edge.part))),
    );
  };
  const living = new Map<number, Set<number>>();
  for (const edge of edges.filter(mayShow)) {
    living.set(edge.group, (living.get(edge.group) ?? new Set()).add(edge.ingredient));
  }
  const complete = new Set(
    edges.filter(({ group, ingredients }) => living.get(group)?.size === ingredients).map(({ group }) => group),
  );
  return ids.flatMap(({ group, id }) => (complete.has(group) ? [id] : [])).sort();
}
