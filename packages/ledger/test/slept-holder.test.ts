import { expect, test } from "vitest";
import { type Ledger, openLedger } from "#src/ledger.js";
import type { ProvenSnapshot } from "#src/proven-snapshot.js";
import type { IssuedRead } from "#src/reads.js";
import type { Session } from "#src/sessions.js";
import { activate, answer, digest, LEASE_MS, openSession, publish, READ_LEASE_MS, scan } from "./ledger-under-test.js";
import { describeWholeLedger, type WholeLedger } from "./whole-ledger.js";

const [BASIC, PRO, DUE, NEW] = ["basic", "pro", "due", "new"].map((plan) => `catalog://plans/${plan}`) as [
  string,
  string,
  string,
  string,
];
const URIS = [BASIC, PRO, DUE];

/** The calls of the facade that a session fences. */
type SessionCall = {
  [Call in keyof Ledger]: Ledger[Call] extends (...values: never[]) => Promise<unknown>
    ? Parameters<Ledger[Call]>[0] extends Session
      ? Call
      : never
    : never;
}[keyof Ledger];

/** What a holder has in its hands when it falls asleep: each call below would write, were its lease to stand. */
interface Holder {
  readonly session: Session;
  /** Pushed, with a read in flight; and one that is being unsubscribed. */
  readonly active: number;
  readonly closing: number;
  readonly read: IssuedRead;
  readonly running: number;
  readonly first: number;
  readonly second: number;
  readonly snapshot: ProvenSnapshot;
}

/** Total: a new call that a session fences does not compile until it has its line here. */
const calls: Readonly<Record<SessionCall, (ledger: Ledger, holder: Holder) => Promise<unknown>>> = {
  heartbeat: (ledger, { session }) => ledger.heartbeat(session),
  recordCapabilities: (ledger, { session }) => ledger.recordCapabilities(session, negotiated),
  suspendScope: (ledger, { session }) => ledger.suspendScope(session, "401"),
  resumeScope: (ledger, { session }) => ledger.resumeScope(session),
  beginScan: (ledger, { session }) => ledger.beginScan(session),
  recordScanPage: (ledger, { session, running }) =>
    ledger.recordScanPage(session, running, {
      cursorDigest: digest("cursor"),
      entries: [{ uri: `catalog://plans/late/${session.scopeId}`, descriptorDigest: digest("late") }],
    }),
  finishScan: (ledger, { session, running }) =>
    ledger.finishScan(session, running, { complete: false, verdict: "INCOMPLETE", reason: "late" }),
  publishCatalog: (ledger, { session, first, second }) => ledger.publishCatalog(session, { first, second }),
  publishUnsettled: (ledger, { session, first, second }) =>
    ledger.publishUnsettled(session, { first, second, attempts: 5 }),
  recordListChanged: (ledger, { session }) => ledger.recordListChanged(session),
  millisecondsToNextReview: (ledger, { session }) => ledger.millisecondsToNextReview(session),
  provenSnapshot: (ledger, { session }) => ledger.provenSnapshot(session),
  removeAbsent: (ledger, { session, snapshot }) => ledger.removeAbsent(session, snapshot),
  revokeByEnumeration: (ledger, { session, snapshot }) =>
    ledger.revokeByEnumeration(session, snapshot, {
      requestId: `late ${session.scopeId}`,
      subject: session.reader,
      reason: "absent",
    }),
  subscriptionsToOpen: (ledger, { session }) => ledger.subscriptionsToOpen(session, { limit: 10 }),
  templatesInUse: (ledger, { session }) => ledger.templatesInUse(session),
  subscriptionsStillOpen: (ledger, { session, active }) => ledger.subscriptionsStillOpen(session, [active]),
  openStream: (ledger, { session }) => ledger.openStream(session, 0),
  breakStream: (ledger, { session }) => ledger.breakStream(session, 0),
  activateSubscriptions: (ledger, { session, active }) =>
    ledger.activateSubscriptions(session, { shard: 0, pushed: [], polled: [active] }),
  recordNotifications: (ledger, { session }) => ledger.recordNotifications(session, URIS),
  beginUnsubscribe: (ledger, { session }) => ledger.beginUnsubscribe(session, [BASIC]),
  subscriptionsToSettle: (ledger, { session }) => ledger.subscriptionsToSettle(session, { limit: 10 }),
  settleUnsubscribe: (ledger, { session, closing }) => ledger.settleUnsubscribe(session, [closing], "acknowledged"),
  issueDueReads: (ledger, { session }) => ledger.issueDueReads(session, { limit: 10, leaseMs: READ_LEASE_MS }),
  issueReads: (ledger, { session }) =>
    ledger.issueReads(session, { uris: URIS, reason: "demand", leaseMs: READ_LEASE_MS }),
  millisecondsToNextRead: (ledger, { session }) => ledger.millisecondsToNextRead(session),
  acceptResourceVersions: (ledger, { session, read }) =>
    ledger.acceptResourceVersions(session, [
      { ...answer(read, "read before it slept"), parts: [{ uri: `${BASIC}/part of ${session.scopeId}`, text: "1" }] },
    ]),
  settleReads: (ledger, { session, read }) => ledger.settleReads(session, [{ ...read, as: "not_found" }]),
  // Goes by what a settled read left, inside its fence; this one was not settled as forbidden.
  revokeForbidden: (ledger, { session, read }) => ledger.revokeForbidden(session, [read]),
  endSession: (ledger, { session }) => ledger.endSession(session),
};

/** A loser may leave these, and nothing else. */
const REFUSALS = ["stale", "stale_after_close", "notification_ignored"];

const negotiated = {
  era: "modern",
  protocolVersion: "2026-07-28",
  resources: true,
  subscribe: true,
  listChanged: true,
} as const;

describeWholeLedger("a holder that slept through its lease", (ledger) => {
  test("writes nothing with any call, neither before a takeover nor after it (F1, F3, U11, reliability 1, 2)", async () => {
    const facade = await openLedger(ledger.database.address, { schema: ledger.schema });
    try {
      for (const newest of ["a scan", "a proven snapshot"] as const) {
        const holder = await holderOf(ledger, facade, newest);
        await ledger.advanceClock(LEASE_MS);
        await everyCallWritesNothing(ledger, facade, holder);
        const { source, reader, generation } = holder.session;
        const taken = await ledger.openSession({ source, reader, owner: "worker-2", leaseMs: LEASE_MS });
        expect(taken).toMatchObject({ outcome: "opened", session: { generation: generation + 1 } });
        await everyCallWritesNothing(ledger, facade, holder);
      }
    } finally {
      await facade.close();
    }
  }, 120_000);

  test("while its lease stood, each of these calls did write or answer (the test above could fail)", async () => {
    const facade = await openLedger(ledger.database.address, { schema: ledger.schema });
    const readOnly = [
      "templatesInUse",
      "millisecondsToNextReview",
      "provenSnapshot",
      "subscriptionsStillOpen",
      "subscriptionsToSettle",
      "revokeForbidden",
    ];
    const idle: string[] = [];
    try {
      for (const name of Object.keys(calls) as SessionCall[]) {
        // It writes where what is closed comes before what is due at the same time, which it then puts off.
        if (name === "millisecondsToNextRead") continue;
        const needsProof = name === "removeAbsent" || name === "revokeByEnumeration";
        const holder = await holderOf(ledger, facade, needsProof ? "a proven snapshot" : "a scan");
        const before = await footprint(ledger);
        await calls[name](facade, holder);
        if ((await footprint(ledger)) === before) idle.push(name);
      }
    } finally {
      await facade.close();
    }
    expect(idle.sort()).toEqual([...readOnly, "resumeScope"].sort());
  }, 240_000);
});

async function everyCallWritesNothing(ledger: WholeLedger, facade: Ledger, holder: Holder): Promise<void> {
  const before = await footprint(ledger);
  for (const name of Object.keys(calls) as SessionCall[]) {
    // Those that need a proven snapshot throw, which is an answer too.
    await calls[name](facade, holder).catch((error: unknown) => expect(error, name).toHaveProperty("code"));
    expect(await footprint(ledger), name).toBe(before);
  }
}

/** @param newest what was recorded last: a proven snapshot is none that may be used once a scan has begun after it */
async function holderOf(ledger: WholeLedger, facade: Ledger, newest: "a scan" | "a proven snapshot"): Promise<Holder> {
  const session = await openSession(ledger);
  await activate(ledger, session, URIS);
  await publish(ledger, session, [...URIS, NEW]);
  await ledger.advanceClock(1);
  const [read] = await ledger.issueReads(session, { uris: [BASIC], reason: "demand", leaseMs: 2 * LEASE_MS });
  await ledger.beginUnsubscribe(session, [PRO]);
  await ledger.recordCapabilities(session, { ...negotiated, snapshotId: true });
  const snapshot = await provenCatalog(ledger, facade, session);
  const ids = { active: await idOf(ledger, session, BASIC), closing: await idOf(ledger, session, PRO) };
  const holder = { session, ...ids, read: read as IssuedRead, snapshot };
  const { scanId } = snapshot;
  if (newest === "a proven snapshot") return { ...holder, first: scanId, second: scanId, running: scanId };
  await ledger.recordCapabilities(session, negotiated);
  const [first, second] = [await scan(ledger, session, URIS), await scan(ledger, session, URIS)];
  const begun = await ledger.beginScan(session);
  if (typeof begun === "string") return expect.fail(begun);
  return { ...holder, first, second, running: begun.scanId };
}

async function idOf(ledger: WholeLedger, session: Session, uri: string): Promise<number> {
  const [row] = await ledger.sql<{ id: number }>(
    "select subscription_id as id from fenceline.subscription where scope_id = $1 and uri = $2",
    [session.scopeId, uri],
  );
  return row?.id as number;
}

async function provenCatalog(ledger: WholeLedger, facade: Ledger, session: Session): Promise<ProvenSnapshot> {
  const begun = await ledger.beginScan(session);
  if (typeof begun === "string") return expect.fail(begun);
  await ledger.recordScanPage(session, begun.scanId, {
    cursorDigest: digest("cursor"),
    snapshotIdDigest: digest(`snapshot ${session.scopeId}`),
    entries: [{ uri: BASIC, descriptorDigest: digest(BASIC) }],
  });
  expect(await ledger.finishScan(session, begun.scanId, { complete: true })).toBe("proven");
  await ledger.publishCatalog(session, { first: begun.scanId, second: begun.scanId });
  return (await facade.provenSnapshot(session)) ?? expect.fail("there is no proven snapshot");
}

/** Every row of every table of the ledger, receipts of refusals aside. */
async function footprint(ledger: WholeLedger): Promise<string> {
  const tables = await ledger.sql<{ name: string }>(
    "select tablename as name from pg_tables where schemaname = $1 order by tablename",
    [ledger.schema],
  );
  const refusals = REFUSALS.map((kind) => `'${kind}'`).join(", ");
  const rowsOf = (name: string) =>
    `(select '${name} ' || count(*) || ' ' || coalesce(md5(string_agg(t::text, '|' order by t::text)), '')
      from fenceline.${name} t${name === "receipt" ? ` where t.kind not in (${refusals})` : ""})`;
  const [row] = await ledger.sql<{ footprint: string }>(
    `select ${tables.map(({ name }) => rowsOf(name)).join(" || E'\\n' || ")} as footprint`,
  );
  return row?.footprint as string;
}
