import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { readIdentity } from "#src/identity.js";
import { queryableInSchema } from "#src/ledger-schema.js";
import type { IssuedRead } from "#src/reads.js";
import { type RestoreLedger, restoreLedger } from "#src/restore.js";
import { type RetentionLedger, retentionLedger } from "#src/retention.js";
import type { Session } from "#src/sessions.js";
import {
  activate,
  answer,
  negotiateSnapshots,
  openSession,
  publish,
  READ_LEASE_MS,
  scanPages,
} from "./ledger-under-test.js";
import {
  activeSource,
  advance,
  brokenInvariants,
  createIndex,
  describeWholeLedger,
  describeWholeLedgerOnPostgres,
  type IndexUnderTest,
  indexDue,
  purge,
  readNow,
  seen,
  type WholeLedger,
} from "./whole-ledger.js";

const DAY_MS = 86_400_000;
const TEN_MINUTES_MS = 600_000;
const READER = ["svc:rag"];

/** Everything at once, as young as may be. */
const EVERYTHING = {
  receiptsMs: TEN_MINUTES_MS,
  readsMs: TEN_MINUTES_MS,
  purgedGroupsMs: TEN_MINUTES_MS,
  versionsMs: TEN_MINUTES_MS,
  scansMs: TEN_MINUTES_MS,
  sessionsMs: TEN_MINUTES_MS,
  purgeReceiptsMs: TEN_MINUTES_MS,
  acknowledgedExportsMs: TEN_MINUTES_MS,
};

function retentionOf(ledger: WholeLedger): RetentionLedger {
  return retentionLedger(ledger.database, queryableInSchema(ledger.database, ledger.schema));
}

async function restoreOf(ledger: WholeLedger): Promise<RestoreLedger> {
  const queryable = queryableInSchema(ledger.database, ledger.schema);
  return restoreLedger(queryable, await readIdentity(queryable));
}

async function count(ledger: WholeLedger, table: string): Promise<number> {
  const [row] = await ledger.sql<{ n: number }>(`select count(*) as n from fenceline.${table}`);
  return row?.n ?? -1;
}

describeWholeLedger("retention", (ledger) => {
  test("deletes what is old in batches, and never a watermark, a close receipt, an open revocation or a lineage", async () => {
    const [kept, closed, hidden, revoked] = ["keep", "close", "hide", "revoke"].map((n) => `catalog://plans/${n}`) as [
      string,
      string,
      string,
      string,
    ];
    const { session, source, ids } = await activeSource(ledger, [kept, closed, hidden, revoked]);
    const index = await createIndex(ledger);
    for (const round of [1, 2, 3, 4]) {
      await readNow(ledger, session, [kept, closed, hidden, revoked], (uri) => `${uri}\nround ${round}`);
      await indexDue(ledger, index, source);
      await purge(ledger, index);
    }
    for (const _ of [1, 2]) await readNow(ledger, session, [kept], (uri) => `${uri}\nround 4`);
    const [missing] = await ledger.issueReads(session, { uris: [hidden], reason: "demand", leaseMs: READ_LEASE_MS });
    await ledger.settleReads(session, [{ ...(missing as IssuedRead), as: "not_found" }]);
    const [inFlight] = await ledger.issueReads(session, { uris: [kept], reason: "demand", leaseMs: READ_LEASE_MS });
    const refs = await ledger.beginUnsubscribe(session, [closed]);
    await ledger.settleUnsubscribe(
      session,
      refs.map(({ subscriptionId }) => subscriptionId),
      "acknowledged",
    );
    const { revocationId } = await ledger.revoke({
      source,
      subject: "svc:rag",
      role: "reader",
      scope: { uri: revoked },
      reason: "t",
    });
    await ledger.advanceRevocation(revocationId);
    const traces = () => Promise.all([...index.entries.keys()].map((entry) => ledger.trace({ entry })));
    const before = { seen: await seen(ledger, index, READER), traces: await traces() };
    const position = await (await restoreOf(ledger)).position();

    await ledger.advanceClock(400 * DAY_MS);
    const progress: number[] = [];
    const report = await retentionOf(ledger).prune(undefined, {
      batchSize: 3,
      onProgress: ({ receipts }) => progress.push(receipts),
    });
    expect(report.outcome).toBe("pruned");
    for (const kind of ["groups", "versions", "reads", "purgeReceipts", "receipts"] as const) {
      expect(report.deleted[kind], kind).toBeGreaterThan(0);
    }
    expect(progress.length).toBeGreaterThan(10);

    expect(await seen(ledger, index, READER)).toEqual(before.seen);
    expect(await traces()).toEqual(before.traces);
    expect(await brokenInvariants(ledger)).toEqual([]);
    // The ledger's own position is among what stays.
    expect(await (await restoreOf(ledger)).recognizeRestore({ position: position.token })).toEqual({
      outcome: "not_restored",
    });
    const receipts = await ledger.sql<{ kind: string }>("select kind from fenceline.receipt where scope_id = $1", [
      session.scopeId,
    ]);
    const rows = await ledger.sql<{ uri: string; kind: string }>(
      `select s.uri, r.kind from fenceline.receipt r join fenceline.subscription s using (subscription_id)
       where s.subscription_id = any ($1)`,
      [ids],
    );
    const kindsOf = (of: string) => rows.filter(({ uri }) => uri === of).map(({ kind }) => kind);
    expect(kindsOf(closed)).toContain("closed");
    expect(kindsOf(hidden)).toContain("tombstone_pending");
    expect(receipts.map(({ kind }) => kind)).toContain("revoked");
    // The read in flight is no older than what was accepted, so it may still be (F4).
    const row = await ledger.sql("select 1 from fenceline.read where subscription_id = $1 and ordinal = $2", [
      inFlight?.subscriptionId,
      inFlight?.ordinal,
    ]);
    expect(row).toHaveLength(1);

    // What it left behind goes when something newer took its place; a second run over the same finds nothing.
    expect((await retentionOf(ledger).prune()).deleted).toEqual(
      Object.fromEntries(Object.keys(report.deleted).map((k) => [k, 0])),
    );
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "EFFECTIVE" });
  }, 120_000);

  test("a late answer to a read that was pruned is not issued, never accepted (F4, F9)", async () => {
    const { session } = await activeSource(ledger, ["catalog://late"]);
    const [old] = await ledger.issueReads(session, { uris: ["catalog://late"], reason: "demand", leaseMs: 1 });
    await ledger.advanceClock(1_000);
    await readNow(ledger, session, ["catalog://late"], () => "new");
    await ledger.advanceClock(TEN_MINUTES_MS + 1_000);
    expect((await retentionOf(ledger).prune(EVERYTHING)).deleted.reads).toBeGreaterThan(0);
    const [late] = await ledger.acceptResourceVersions(session, [answer(old as IssuedRead, "old")]);
    expect(late?.outcome).toBe("not_issued");
  }, 60_000);

  test("ends between two batches when it is told to, and goes on with the next call", async () => {
    const { session } = await activeSource(ledger, ["catalog://abort"]);
    for (let round = 0; round < 5; round += 1) await readNow(ledger, session, ["catalog://abort"], () => `${round}`);
    await ledger.advanceClock(400 * DAY_MS);
    const controller = new AbortController();
    const options = { batchSize: 1, signal: controller.signal, onProgress: () => controller.abort() };
    expect((await retentionOf(ledger).prune(undefined, options)).outcome).toBe("aborted");
    const versions = await count(ledger, "resource_version");
    expect((await retentionOf(ledger).prune()).deleted.versions).toBeGreaterThan(0);
    expect(await count(ledger, "resource_version")).toBeLessThan(versions);
    expect(await brokenInvariants(ledger)).toEqual([]);
  }, 60_000);

  test("proven scans go as well, and a snapshot id that comes again with another set is told as forged all the same (S3)", async () => {
    const of = { source: `source-${randomUUID()}`, reader: "svc:rag" };
    const session = await openSession(ledger, of);
    await negotiateSnapshots(ledger, session);
    const [a, b, c] = ["catalog://a", "catalog://b", "catalog://c"] as const;
    const scanned = [];
    for (const id of ["s1", "s2", "s3", "s4", "s5"]) {
      const { scanId, outcome } = await scanPages(ledger, session, [{ uris: [a, b], id }]);
      expect(outcome).toBe("proven");
      if (id === "s2") await ledger.publishCatalog(session, { first: scanId, second: scanId });
      scanned.push(scanId);
    }
    await ledger.advanceClock(400 * DAY_MS);
    await retentionOf(ledger).prune(EVERYTHING, { batchSize: 2 });
    const left = await ledger.sql<{ scan_id: number }>(
      "select scan_id from fenceline.scan where scan_id = any ($1) order by scan_id",
      [scanned],
    );
    const [, catalogue, , ...newest] = scanned;
    expect(left.map(({ scan_id }) => scan_id)).toEqual([catalogue, ...newest]);
    const later = await openSession(ledger, of);
    await negotiateSnapshots(ledger, later);
    expect(await scanPages(ledger, later, [{ uris: [a, b], id: "s1" }])).toMatchObject({ outcome: "proven" });
    expect(await scanPages(ledger, later, [{ uris: [a, c], id: "s1" }])).toMatchObject({ outcome: "void" });
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("an age in which something may still be under way is refused, and names its field", async () => {
    await expect(retentionOf(ledger).prune({ readsMs: 1_000 })).rejects.toMatchObject({ code: "input_invalid" });
    await expect(retentionOf(ledger).prune({ readMs: DAY_MS } as object)).rejects.toMatchObject({
      code: "input_invalid",
    });
  });

  test("space is given back where nobody else does", async () => {
    const outcome = await retentionOf(ledger).maintain();
    expect(outcome).toBe(ledger.database.kind === "embedded" ? "maintained" : "not_needed");
  }, 60_000);
});

/** Two ledgers live through the same history; one of them is pruned now and then. */
describeWholeLedgerOnPostgres("the ledger that is never pruned", (plain) => {
  describeWholeLedgerOnPostgres("the ledger that is pruned", (pruned) => {
    describe("retention", () => {
      test("changes nothing that can be seen, whatever the history and whenever it prunes (L4, F4, U8)", async () => {
        const outcomes = new Map<string, number>();
        let deleted = 0;
        await fc.assert(
          fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 45 }), async (history) => {
            const [left, right] = [await live(plain), await live(pruned)];
            for (const [place, taken] of history.entries()) {
              if (taken.do === "prune") {
                deleted += await right.prune();
                continue;
              }
              const answers = [await left.take(taken), await right.take(taken)] as const;
              expect(answers[1], `${place}: ${JSON.stringify(taken)}`).toEqual(answers[0]);
              for (const answered of answers[0]) outcomes.set(answered, (outcomes.get(answered) ?? 0) + 1);
            }
            deleted += await right.prune();
            expect(await right.observe()).toEqual(await left.observe());
            expect(await brokenInvariants(pruned)).toEqual([]);
          }),
          { numRuns: 8, endOnFailure: true },
        );
        console.log("retention:", deleted, "rows pruned; outcomes", JSON.stringify(Object.fromEntries(outcomes)));
        expect(deleted).toBeGreaterThan(100);
        for (const outcome of ["accepted", "unchanged", "late"])
          expect(outcomes.get(outcome), outcome).toBeGreaterThan(0);
      }, 600_000);
    });
  });
});

const URIS = [1, 2, 3, 4].map((n) => `catalog://plans/${n}`);

interface Step {
  readonly do:
    | "read"
    | "hold"
    | "notify"
    | "revoke"
    | "settle"
    | "late"
    | "index"
    | "purge"
    | "lift"
    | "takeover"
    | "publish"
    | "export"
    | "prune"
    | "wait";
  readonly uri: string;
  readonly text: string;
  readonly as: "failed" | "not_found" | "lost";
  readonly days: number;
}

const step: fc.Arbitrary<Step> = fc.record({
  do: fc.oneof(
    { weight: 6, arbitrary: fc.constant("read" as const) },
    { weight: 4, arbitrary: fc.constantFrom("index" as const, "prune" as const, "wait" as const) },
    { weight: 5, arbitrary: fc.constantFrom("hold" as const, "late" as const, "settle" as const, "notify" as const) },
    {
      weight: 5,
      arbitrary: fc.constantFrom(
        "purge" as const,
        "revoke" as const,
        "lift" as const,
        "takeover" as const,
        "publish" as const,
        "export" as const,
      ),
    },
  ),
  uri: fc.constantFrom(...URIS),
  text: fc.constantFrom("x", "y\nz", "x\ny"),
  as: fc.constantFrom("failed" as const, "not_found" as const, "lost" as const),
  days: fc.constantFrom(1, 40),
});

/** One source of one ledger, and the steps of a history on it. */
async function live(ledger: WholeLedger) {
  const index: IndexUnderTest = await createIndex(ledger);
  let session: Session = await openSession(ledger);
  const { source } = session;
  const held: { session: Session; read: IssuedRead }[] = [];
  const revocations: number[] = [];
  await activate(ledger, session, URIS);

  async function issue(asked: string): Promise<IssuedRead | undefined> {
    const [read] = await ledger.issueReads(session, { uris: [asked], reason: "demand", leaseMs: READ_LEASE_MS });
    return read;
  }

  async function takeOver(): Promise<void> {
    await ledger.endSession(session);
    session = await openSession(ledger, { source });
    await activate(ledger, session, URIS);
  }

  const steps: Record<Exclude<Step["do"], "prune">, (taken: Step) => Promise<string[]>> = {
    async read({ uri: asked, text }) {
      const read = await issue(asked);
      if (read === undefined) return ["none"];
      return (await ledger.acceptResourceVersions(session, [answer(read, `${asked}\n${text}`)])).map(
        ({ outcome }) => outcome,
      );
    },
    async hold({ uri: asked }) {
      const read = await issue(asked);
      if (read !== undefined) held.push({ session, read });
      return [read === undefined ? "none" : "held"];
    },
    async late() {
      const late = held.shift();
      if (late === undefined) return [];
      const [accepted] = await ledger.acceptResourceVersions(late.session, [answer(late.read, "late")]);
      // Of a read that was pruned it is no longer known that it was ever issued; either way nothing changes.
      const refused = ["stale", "not_issued", "stale_after_close"].includes(accepted?.outcome as string);
      return ["late", refused ? "refused" : (accepted?.outcome as string)];
    },
    async settle({ uri: asked, as }) {
      const read = await issue(asked);
      if (read === undefined) return ["none"];
      return (await ledger.settleReads(session, [{ ...read, as }])).map(({ outcome }) => outcome);
    },
    notify: async ({ uri: asked }) =>
      (await ledger.recordNotifications(session, [asked])).map(({ outcome }) => outcome),
    index: async () => Object.values(await indexDue(ledger, index, source)).sort(),
    purge: async () => [`removed ${await purge(ledger, index)}`],
    async revoke({ uri: asked }) {
      const { revocationId } = await ledger.revoke({
        source,
        subject: "svc:rag",
        role: "reader",
        scope: { uri: asked },
        reason: "t",
      });
      revocations.push(revocationId);
      await advance(ledger, revocationId);
      return [];
    },
    async lift() {
      const revocationId = revocations.pop();
      return revocationId === undefined ? [] : [(await ledger.lift(revocationId)).state];
    },
    async takeover() {
      await takeOver();
      return [];
    },
    async publish() {
      return [(await publish(ledger, session, URIS)).outcome];
    },
    async export() {
      const exported = await ledger.exportVersions({ source, reader: "svc:rag", destination: "theirs", limit: 10 });
      return exported.map(({ uri: of }) => of);
    },
    async wait({ days }) {
      await ledger.advanceClock(days * DAY_MS);
      if ((await ledger.heartbeat(session)) === "lost") await takeOver();
      return [];
    },
  };

  return {
    take: async (taken: Step): Promise<string[]> => (taken.do === "prune" ? [] : steps[taken.do](taken)),

    async prune(): Promise<number> {
      const { deleted } = await retentionOf(ledger).prune(EVERYTHING, { batchSize: 7 });
      return Object.values(deleted).reduce((sum, n) => sum + n, 0);
    },

    /** What a user of the ledger can see. */
    async observe() {
      const visible = await ledger.visibleEntries({
        index: index.ref.name,
        entryIds: [...index.entries.keys()],
        asker: READER,
      });
      const traces = [];
      for (const [entry, text] of [...index.entries].sort(([, a], [, b]) => a.localeCompare(b))) {
        const { versions } = await ledger.trace({ entry });
        traces.push([text, versions.map((v) => [v.digest, v.scan !== undefined, v.session !== undefined, v.server])]);
      }
      const [counters] = await Promise.all([
        ledger.sql(
          `select uri, lifecycle, generation, issued_ordinal, accepted_ordinal, settled_ordinal, version_ordinal, close_ordinal,
             notification_number, seen_notification, hidden_because, digest is null as no_digest
           from fenceline.subscription where scope_id = $1 order by uri`,
          [session.scopeId],
        ),
      ]);
      return {
        visible: visible.map(({ entryId, freshness, uri: of }) => [of, index.entries.get(entryId), freshness]).sort(),
        traces,
        counters,
        revocations: (await ledger.listRevocations())
          .filter((r) => r.source === source)
          .map(({ state, covered, stores }) => [state, covered, stores.length]),
      };
    },
  };
}
