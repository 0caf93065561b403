import fc from "fast-check";
import { expect } from "vitest";
import type { SettledAs } from "#src/reads.js";
import { digest, publish, READ_LEASE_MS } from "../ledger-under-test.js";
import { command, type Step } from "./command.js";
import { type Contents, directoryOf, textOf } from "./contents.js";
import type { LedgerModel } from "./ledger-model.js";
import type { ModelSubscription } from "./reading-state.js";
import { DIRECTORY, READERS, RealLedger, SOURCE, URIS } from "./real-ledger.js";

const reader = fc.constantFrom(...READERS);
const uris = fc.subarray([...URIS], { minLength: 1 });
const past = fc.boolean().chain((rarely) => (rarely ? fc.boolean() : fc.constant(false)));
/** Few contents, so that readers share chunks, versions split them, and what was there comes back unchanged. */
const answers = fc.constantFrom<Given>(
  { lines: ["alpha", "beta"], parts: [["alpha"], ["beta", "gamma"]] },
  { lines: ["beta", "gamma"], parts: [["alpha"], ["gamma"]] },
  { lines: [], parts: [["beta", "gamma"], ["alpha"]] },
);

interface Given {
  readonly lines: readonly string[];
  readonly parts: readonly (readonly string[])[];
}

function contentsOf(uri: string, given: Given): Contents {
  return uri === DIRECTORY ? directoryOf(uri, given.parts) : textOf(uri, given.lines);
}

export const openSession: Step<{ reader: string; leaseMs: number }> = async (model, real, { reader, leaseMs }) => {
  const opened = await real.ledger.openSession({ source: SOURCE, reader, owner: "worker", leaseMs });
  expect(opened.outcome).toBe(model.reading.openSession(reader, leaseMs));
  if (opened.outcome === "opened") real.take(opened.session);
};

export const publishCatalog: Step<{ reader: string; uris: readonly string[] }> = async (
  model,
  real,
  { reader, uris },
) => {
  const session = real.session(reader);
  const expected = model.reading.publish(reader, session.generation, uris);
  if (expected === "session_lost") {
    expect(await real.ledger.beginScan(session)).toBe("session_lost");
    return;
  }
  expect(await publish(real.ledger, session, uris)).toMatchObject({ outcome: "published", ...expected, held: false });
  await real.learnIds();
};

export const open: Step<{ reader: string; pushed: readonly string[] }> = async (model, real, { reader, pushed }) => {
  const session = real.session(reader);
  const refs = await real.ledger.subscriptionsToOpen(session, { limit: 100 });
  const expected = model.reading.toOpen(reader, session.generation);
  expect(refs.map(({ uri, generation }) => ({ uri, generation })).sort(byUri)).toEqual(
    expected.map(({ uri, generation }) => ({ uri, generation })).sort(byUri),
  );
  const asked = refs.map(({ uri }) => uri);
  await acknowledge(
    model,
    real,
    reader,
    asked.filter((uri) => pushed.includes(uri)),
    asked.filter((uri) => !pushed.includes(uri)),
  );
};

async function acknowledge(
  model: LedgerModel,
  real: RealLedger,
  reader: string,
  pushed: readonly string[],
  polled: readonly string[],
): Promise<void> {
  const session = real.session(reader);
  model.reading.activate(reader, session.generation, pushed, polled);
  await real.ledger.activateSubscriptions(session, {
    shard: 0,
    pushed: real.idsOf(reader, pushed),
    polled: real.idsOf(reader, polled),
  });
}

const issue: Step<{ reader: string; uris: readonly string[] | "due"; leaseMs: number }> = async (model, real, args) => {
  await issued(model, real, args);
};

/** Issues reads and compares which; whatever was issued is out from then on. */
async function issued(
  model: LedgerModel,
  real: RealLedger,
  { reader, uris, leaseMs }: { reader: string; uris: readonly string[] | "due"; leaseMs: number },
): Promise<RealLedger["reads"]> {
  const session = real.session(reader);
  const scope = model.reading.scope(reader);
  let expected: ModelSubscription[];
  let reads: Awaited<ReturnType<RealLedger["ledger"]["issueReads"]>>;
  if (uris === "due") {
    expected = model.reading.due(reader, session.generation);
    reads = await real.ledger.issueDueReads(session, { limit: 100, leaseMs });
    // A suspended scope tries one, whichever, and the next an interval later (P7).
    if (scope.suspendedAt !== undefined && expected.length > 0) {
      scope.suspendedAt = model.clock.now;
      expect(reads).toHaveLength(1);
      expected = expected.filter(({ uri }) => uri === reads[0]?.uri);
    }
  } else {
    const stands = model.reading.stands(scope, session.generation);
    expected = [...scope.subscriptions.values()].filter(
      (each) => stands && uris.includes(each.uri) && model.reading.mayRead(each),
    );
    reads = await real.ledger.issueReads(session, { uris, reason: "demand", leaseMs });
  }
  const inModel = expected.map((each) => {
    const { ordinal, generation } = model.reading.issue(each, leaseMs);
    return { uri: each.uri, ordinal, generation };
  });
  expect(reads.map(({ uri, ordinal, generation }) => ({ uri, ordinal, generation })).sort(byUri)).toEqual(
    inModel.sort(byUri),
  );
  const sent = reads.map((read) => ({ ...read, reader, session }));
  real.reads.push(...sent);
  return sent;
}

async function accepted(
  model: LedgerModel,
  real: RealLedger,
  read: RealLedger["reads"][number],
  contents: Contents,
  { known = true, session = read.session }: { known?: boolean; session?: RealLedger["reads"][number]["session"] } = {},
): Promise<void> {
  const { subscriptionId, ordinal, requestId, uri, reader } = read;
  const [answer] = await real.ledger.acceptResourceVersions(session, [
    {
      subscriptionId,
      ordinal,
      requestId: known ? requestId : RealLedger.unknownRequest(),
      digest: digest(contents.digest),
      parts: contents.parts.map((part) => ({ uri: part.uri, text: part.lines.join("\n") })),
    },
  ]);
  expect(answer?.outcome).toBe(model.accept(reader, session.generation, { uri, ordinal, known, contents }));
}

const answerOne: Step<{ pick: number; contents: Given; known: boolean; today: boolean }> = async (
  model,
  real,
  { pick, contents, known, today },
) => {
  const read = real.reads.at(-1 - (pick % real.reads.length));
  if (read === undefined) return;
  const session = today ? real.session(read.reader) : read.session;
  await accepted(model, real, read, contentsOf(read.uri, contents), { known, session });
};

export const readAll: Step<{ reader: string; contents: Given }> = async (model, real, { reader, contents }) => {
  const reads = await issued(model, real, { reader, uris: URIS, leaseMs: READ_LEASE_MS });
  for (const read of reads) await accepted(model, real, read, contentsOf(read.uri, contents));
};

/** Closed, absent from a catalogue, listed again: a new generation, while what was sent before is still out. */
const leaveAndReturn: Step<{ reader: string; uri: string }> = async (model, real, { reader, uri }) => {
  await unsubscribe(model, real, { reader, uris: [uri] });
  await settleUnsubscribe(model, real, { reader, uris: [uri], answer: "acknowledged" });
  await publishCatalog(model, real, { reader, uris: URIS.filter((each) => each !== uri) });
  await publishCatalog(model, real, { reader, uris: URIS });
  await open(model, real, { reader, pushed: [uri] });
};

const settleOne: Step<{ pick: number; as: SettledAs; known: boolean }> = async (model, real, { pick, as, known }) => {
  const read = real.reads.at(-1 - (pick % real.reads.length));
  if (read === undefined) return;
  const { subscriptionId, ordinal, uri, reader, session } = read;
  const requestId = known ? read.requestId : RealLedger.unknownRequest();
  const [answer] = await real.ledger.settleReads(session, [{ subscriptionId, ordinal, requestId, as }]);
  expect(answer?.outcome).toBe(model.reading.settle(reader, session.generation, { uri, ordinal, known }, as));
};

const notify: Step<{ reader: string; uris: readonly string[]; windowMs: number; past: boolean }> = async (
  model,
  real,
  args,
) => {
  const session = real.session(args.reader, args.past);
  const answers = await real.ledger.recordNotifications(session, args.uris, { windowMs: args.windowMs });
  expect(answers.map(({ outcome }) => outcome)).toEqual(
    model.reading.notify(args.reader, session.generation, args.uris, args.windowMs),
  );
};

const stream: Step<{ reader: string; event: "broken" | "opened"; acknowledged: boolean }> = async (
  model,
  real,
  args,
) => {
  const session = real.session(args.reader);
  if (args.event === "broken") await real.ledger.breakStream(session, 0);
  else await real.ledger.openStream(session, 0);
  model.reading.raiseEpoch(args.reader, session.generation);
  if (!args.acknowledged) return;
  const pushed = model.reading.subscriptions.filter((each) => each.reader === args.reader && each.pushed);
  await acknowledge(
    model,
    real,
    args.reader,
    pushed.map(({ uri }) => uri),
    [],
  );
};

const unsubscribe: Step<{ reader: string; uris: readonly string[] }> = async (model, real, { reader, uris }) => {
  const session = real.session(reader);
  const closing = await real.ledger.beginUnsubscribe(session, uris);
  expect(closing.map(({ uri }) => uri).sort()).toEqual(model.reading.unsubscribe(reader, session.generation, uris));
};

const settleUnsubscribe: Step<{ reader: string; uris: readonly string[]; answer: "acknowledged" | "unknown" }> = async (
  model,
  real,
  { reader, uris, answer },
) => {
  const session = real.session(reader);
  await real.ledger.settleUnsubscribe(session, real.idsOf(reader, uris), answer);
  model.reading.settleUnsubscribe(reader, session.generation, uris, answer);
};

const endSession: Step<{ reader: string; past: boolean }> = async (model, real, { reader, past }) => {
  const session = real.session(reader, past);
  await real.ledger.endSession(session);
  model.reading.endSession(reader, session.generation);
};

const heartbeat: Step<{ reader: string; past: boolean }> = async (model, real, { reader, past }) => {
  const session = real.session(reader, past);
  expect(await real.ledger.heartbeat(session)).toBe(model.reading.heartbeat(reader, session.generation));
};

const suspend: Step<{ reader: string; resumed: boolean }> = async (model, real, { reader, resumed }) => {
  const session = real.session(reader);
  if (resumed) await real.ledger.resumeScope(session);
  else await real.ledger.suspendScope(session, "401");
  model.reading[resumed ? "resume" : "suspend"](reader, session.generation);
};

const passTime: Step<{ ms: number }> = async (model, real, { ms }) => {
  await real.ledger.advanceClock(ms);
  model.clock.now += ms;
};

const announced = fc.subarray([...URIS, `${DIRECTORY}/0`, "catalog://a/1/below", "catalog://c"], { minLength: 1 });
const endings = fc.constantFrom<SettledAs>(
  "lost",
  "failed",
  "empty",
  "too_large",
  "not_found",
  "not_found",
  "forbidden",
  "unauthorized",
);
const pick = fc.nat({ max: 60 });
const mostly = fc.integer({ min: 0, max: 9 }).map((drawn) => drawn > 0);

/** Sessions, discovery, subscriptions and reads; what leads further is there more than once. */
export const readingCommands = [
  command("leaveAndReturn", fc.record({ reader, uri: fc.constantFrom(...URIS) }), leaveAndReturn),
  command("openSession", fc.record({ reader, leaseMs: fc.constantFrom(60_000, 86_400_000) }), openSession),
  command("endSession", fc.record({ reader, past }), endSession),
  command("heartbeat", fc.record({ reader, past }), heartbeat),
  command("suspend", fc.record({ reader, resumed: fc.boolean() }), suspend),
  command("publish", fc.record({ reader, uris }), publishCatalog),
  command("publish", fc.record({ reader, uris: fc.constant(URIS) }), publishCatalog),
  ...twice(command("open", fc.record({ reader, pushed: uris }), open)),
  command(
    "stream",
    fc.record({ reader, event: fc.constantFrom("broken", "opened"), acknowledged: fc.boolean() }),
    stream,
  ),
  ...twice(
    command("notify", fc.record({ reader, uris: announced, windowMs: fc.constantFrom(0, 100, 60_000), past }), notify),
  ),
  ...twice(
    command(
      "issue",
      fc.record({ reader, uris: fc.oneof(uris, fc.constant("due" as const)), leaseMs: fc.constantFrom(1_000, 30_000) }),
      issue,
    ),
  ),
  ...twice(command("answer", fc.record({ pick, contents: answers, known: mostly, today: mostly }), answerOne)),
  ...twice(command("readAll", fc.record({ reader, contents: answers }), readAll)),
  command("settle", fc.record({ pick, as: endings, known: mostly }), settleOne),
  command("unsubscribe", fc.record({ reader, uris }), unsubscribe),
  command(
    "settleUnsubscribe",
    fc.record({ reader, uris, answer: fc.constantFrom("acknowledged", "acknowledged", "unknown") }),
    settleUnsubscribe,
  ),
  ...twice(
    command("passTime", fc.record({ ms: fc.constantFrom(100, 1_000, 6_000, 30_000, 60_000, 900_000) }), passTime),
  ),
];

function twice<Item>(item: Item): [Item, Item] {
  return [item, item];
}

function byUri(one: { uri: string }, other: { uri: string }): number {
  return one.uri < other.uri ? -1 : 1;
}
