import { expect, expectTypeOf, test } from "vitest";
import type { PublishResult } from "#src/catalog-publication.js";
import type { CompletenessLedger } from "#src/completeness.js";
import { ProvenSnapshot } from "#src/proven-snapshot.js";
import type { ProvenSnapshotRecord, UnprovenSnapshotRecord } from "#src/records/resource-discovery-scan.js";
import type { Session } from "#src/sessions.js";
import {
  activate,
  digest,
  negotiateSnapshots,
  openSession,
  publish,
  publishProven,
  readDue,
  receipts,
  scanPages,
} from "./ledger-under-test.js";
import { brokenInvariants, createIndex, describeWholeLedger, indexDue, seen } from "./whole-ledger.js";

const REQUEST = { requestId: "r", reason: "no longer listed" };

function plans(count: number): string[] {
  return Array.from({ length: count }, (_, number) => `catalog://plans/${String(number).padStart(4, "0")}`);
}

describeWholeLedger("tasks that need completeness", (ledger) => {
  /** Resources that were read, under a session that proves snapshots from now on. */
  async function readSource(uris: readonly string[]): Promise<Session> {
    const session = await openSession(ledger);
    await activate(ledger, session, uris, "polled");
    await negotiateSnapshots(ledger, session);
    await readDue(ledger, session, (uri) => `content of ${uri}`);
    return session;
  }

  async function standing(session: Session): Promise<Record<string, string>> {
    const rows = await ledger.sql<{ uri: string; standing: string }>(
      `select uri, coalesce(hidden_because, lifecycle::text) as standing
       from fenceline.subscription where scope_id = $1 order by uri`,
      [session.scopeId],
    );
    return Object.fromEntries(rows.map((row) => [row.uri, row.standing]));
  }

  test("S6: a record, a literal or an unproven catalogue does not compile in place of a proven snapshot", () => {
    type Taken = Parameters<CompletenessLedger["removeAbsent"]>[1];
    expectTypeOf<ProvenSnapshot>().toExtend<Taken>();
    expectTypeOf<ProvenSnapshotRecord>().not.toExtend<Taken>();
    expectTypeOf<UnprovenSnapshotRecord>().not.toExtend<Taken>();
    expectTypeOf<Extract<PublishResult, { verdict: "SNAPSHOT_UNPROVEN" }>>().not.toExtend<Taken>();
    expectTypeOf<Pick<ProvenSnapshot, keyof ProvenSnapshot>>().not.toExtend<Taken>();
    const calls = (session: Session, unproven: Extract<PublishResult, { outcome: "published" }>) => {
      // @ts-expect-error: a number is none
      void ledger.removeAbsent(session, 7);
      // @ts-expect-error: nor is an object that looks like one
      void ledger.removeAbsent(session, { scanId: 1, resources: 0, measuredAt: new Date() });
      // @ts-expect-error: nor is what a publication answers
      void ledger.revokeByEnumeration(session, unproven, REQUEST);
      // @ts-expect-error: nobody but the ledger makes one
      return new ProvenSnapshot({});
    };
    expect(calls).toBeTypeOf("function");
  });

  test("S6: a forced snapshot is refused at run time, and nothing is removed or revoked", async () => {
    const session = await readSource(plans(4));
    const { snapshot } = await publishProven(ledger, session, plans(3));
    const unproven = await openSession(ledger);
    const published = await publish(ledger, unproven, plans(3));
    const forced: unknown[] = [
      JSON.parse(JSON.stringify(snapshot)),
      structuredClone(snapshot),
      Object.create(ProvenSnapshot.prototype),
      Object.setPrototypeOf({ scanId: snapshot.scanId }, ProvenSnapshot.prototype),
      { ...snapshot },
      published,
      undefined,
      null,
      snapshot.scanId,
    ];
    for (const each of forced) {
      const refused = { code: "snapshot_not_proven" };
      await expect(ledger.removeAbsent(session, each as never)).rejects.toMatchObject(refused);
      await expect(ledger.revokeByEnumeration(session, each as never, REQUEST)).rejects.toMatchObject(refused);
    }
    expect(Object.values(await standing(session))).toEqual(["ACTIVE", "ACTIVE", "ACTIVE", "ACTIVE"]);
    expect(await ledger.listRevocations()).toEqual([]);
  });

  test("S6: an unproven catalogue yields no snapshot at all", async () => {
    const session = await readSource(plans(4));
    await publish(ledger, await openSession(ledger), plans(3));
    expect(await ledger.provenSnapshot(session)).toBeUndefined();
    const plain = await openSession(ledger);
    expect(await publish(ledger, plain, plans(3))).not.toHaveProperty("snapshot");
    expect(await ledger.provenSnapshot(plain)).toBeUndefined();
  });

  test("S6: the published snapshot of a session can be had again, and is the same", async () => {
    const session = await readSource(plans(4));
    const { scanId } = await publishProven(ledger, session, plans(3));
    const again = await ledger.provenSnapshot(session);
    expect(again).toMatchObject({ scanId, resources: 3 });
    expect(await ledger.removeAbsent(session, again as ProvenSnapshot)).toEqual({ outcome: "removed", removed: 1 });
  });

  const lost: [what: string, lose: (session: Session) => Promise<unknown>][] = [
    ["a list_changed came", (session) => ledger.recordListChanged(session)],
    ["a later scan began", (session) => ledger.beginScan(session)],
    ["another snapshot was published", (session) => publishProven(ledger, session, plans(2))],
    [
      "the session came to distrust the extension",
      (session) => scanPages(ledger, session, [{ uris: plans(1) }]).then(({ outcome }) => expect(outcome).toBe("void")),
    ],
  ];
  test.each(lost)("S6: a snapshot is none any more after %s", async (_, lose) => {
    const session = await readSource(plans(4));
    const { snapshot } = await publishProven(ledger, session, plans(3));
    await lose(session);
    const refused = { code: "snapshot_not_proven" };
    await expect(ledger.removeAbsent(session, snapshot)).rejects.toMatchObject(refused);
    await expect(ledger.revokeByEnumeration(session, snapshot, REQUEST)).rejects.toMatchObject(refused);
    expect(Object.values(await standing(session))).not.toContain("tombstoned");
    expect(await ledger.listRevocations()).toEqual([]);
  });

  test("S6: a snapshot is none any more when the session distrusts the extension by a scan that began before it (S3)", async () => {
    const session = await readSource(plans(4));
    const begun = await ledger.beginScan(session);
    if (typeof begun === "string") return expect.fail(begun);
    const { snapshot } = await publishProven(ledger, session, plans(3));
    await ledger.recordScanPage(session, begun.scanId, { cursorDigest: digest(""), entries: [] });
    expect(await ledger.finishScan(session, begun.scanId, { complete: true })).toBe("void");
    await expect(ledger.removeAbsent(session, snapshot)).rejects.toMatchObject({
      code: "snapshot_not_proven",
      message: expect.stringContaining("contradicted itself"),
    });
    expect(await ledger.provenSnapshot(session)).toBeUndefined();
  });

  test("S6: a snapshot is refused under another source, reader, session or ledger", async () => {
    const session = await readSource(plans(4));
    const { snapshot } = await publishProven(ledger, session, plans(3));
    const refused = { code: "snapshot_not_proven" };
    const { source } = session;
    const otherReader = await openSession(ledger, { source, reader: "svc:other" });
    const otherSource = await openSession(ledger);
    for (const other of [otherReader, otherSource]) {
      await expect(ledger.removeAbsent(other, snapshot)).rejects.toMatchObject(refused);
    }
    // As if the database had come to be another one behind the same connection.
    const [identity] = await ledger.sql<{ mark: string }>("select mark from fenceline.identity");
    await ledger.sql("update fenceline.identity set mark = 'abcdefabcdef'");
    await expect(ledger.removeAbsent(session, snapshot)).rejects.toMatchObject(refused);
    await ledger.sql("update fenceline.identity set mark = $1", [identity?.mark]);

    await ledger.endSession(session);
    expect(await ledger.removeAbsent(session, snapshot)).toEqual({ outcome: "session_lost" });
    const next = await openSession(ledger, { source });
    await expect(ledger.removeAbsent(next, snapshot)).rejects.toMatchObject(refused);
    expect(Object.values(await standing(session))).not.toContain("tombstoned");
  });

  test("S6: all that is absent from a proven snapshot is removed at once, without a read (F7)", async () => {
    const session = await readSource(plans(10));
    const { snapshot, vanished } = await publishProven(ledger, session, plans(7));
    expect(vanished).toBe(3);
    expect(await ledger.removeAbsent(session, snapshot)).toEqual({ outcome: "removed", removed: 3 });
    const after = Object.values(await standing(session));
    expect(after.filter((each) => each === "tombstoned")).toHaveLength(3);
    expect(after.filter((each) => each === "ACTIVE")).toHaveLength(7);
    expect((await receipts(ledger, session)).filter((kind) => kind === "tombstone")).toHaveLength(3);
    expect(await ledger.removeAbsent(session, snapshot)).toEqual({ outcome: "removed", removed: 0 });
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("S6: what was never listed is not concluded about, and what was never read is no tombstone (F7)", async () => {
    const session = await openSession(ledger);
    await publish(ledger, session, plans(2));
    await negotiateSnapshots(ledger, session);
    await ledger.sql("update fenceline.subscription set listed_scan_id = null where scope_id = $1 and uri = $2", [
      session.scopeId,
      plans(1)[0],
    ]);
    const { snapshot } = await publishProven(ledger, session, []);
    expect(await ledger.removeAbsent(session, snapshot)).toEqual({ outcome: "removed", removed: 0 });
    expect(Object.values(await standing(session))).toEqual(["DISCOVERED", "DISCOVERED"]);
  });

  test("S8: the floor holds for a completeness task, until a person confirmed it and a later snapshot agrees", async () => {
    const session = await readSource(plans(40));
    const first = await publishProven(ledger, session, plans(3));
    expect(first.held).toBe(true);
    const held = { outcome: "held", known: 40, absent: 37 };
    expect(await ledger.removeAbsent(session, first.snapshot)).toEqual(held);
    expect(await ledger.removeAbsent(session, first.snapshot)).toEqual(held);
    expect(await ledger.revokeByEnumeration(session, first.snapshot, REQUEST)).toEqual(held);
    const removals = (await ledger.heldRemovals()).filter(({ source }) => source === session.source);
    expect(removals.map(({ task, agreed }) => [task, agreed])).toEqual([
      ["completeness", false],
      ["catalogue", false],
    ]);
    for (const { heldRemovalId } of removals) await ledger.confirmRemoval(heldRemovalId, "operator");
    // Confirmed, but no second snapshot agrees yet.
    expect(await ledger.removeAbsent(session, first.snapshot)).toEqual(held);

    const second = await publishProven(ledger, session, plans(3));
    expect(second.held).toBe(false);
    expect(await ledger.removeAbsent(session, second.snapshot)).toEqual({ outcome: "removed", removed: 37 });
    expect((await ledger.heldRemovals()).filter(({ source }) => source === session.source)).toEqual([]);
  });

  test("S8: what was confirmed for the publication of a snapshot needs no second confirmation for the task on it", async () => {
    const session = await readSource(plans(40));
    await publishProven(ledger, session, plans(3));
    const [removal] = (await ledger.heldRemovals()).filter(({ source }) => source === session.source);
    await ledger.confirmRemoval(removal?.heldRemovalId as number, "operator");
    const { snapshot } = await publishProven(ledger, session, plans(3));
    expect(await ledger.removeAbsent(session, snapshot)).toEqual({ outcome: "removed", removed: 37 });
  });

  test("S6: revoking by enumeration revokes each absent resource by its URI, once for a request id", async () => {
    const session = await readSource(plans(6));
    const index = await createIndex(ledger);
    await indexDue(ledger, index, session.source);
    const { snapshot } = await publishProven(ledger, session, plans(4));
    const request = { requestId: `r-${session.source}`, reason: "no longer listed", requestedBy: "operator" };
    expect(await ledger.revokeByEnumeration(session, snapshot, request)).toEqual({
      outcome: "revoked",
      revoked: 2,
      known: 0,
    });
    expect(await seen(ledger, index, ["svc:rag"])).toEqual(plans(4).map((uri) => `content of ${uri}`));
    const revocations = (await ledger.listRevocations()).filter(({ source }) => source === session.source);
    expect(revocations.map(({ scope }) => scope)).toEqual(
      expect.arrayContaining(
        plans(6)
          .slice(4)
          .map((uri) => ({ uri })),
      ),
    );
    expect(revocations).toHaveLength(2);
    for (const { requestId, subject, role, reason } of revocations) {
      expect(requestId).toMatch(new RegExp(`^${request.requestId}/[0-9a-f]{64}$`));
      expect({ subject, role, reason }).toEqual({ subject: "svc:rag", role: "reader", reason: request.reason });
    }
    expect(await ledger.revokeByEnumeration(session, snapshot, request)).toMatchObject({ revoked: 0, known: 2 });
    await expect(
      ledger.revokeByEnumeration(session, snapshot, { ...request, reason: "another" }),
    ).rejects.toMatchObject({ code: "request_id_reused" });
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("S6: an audience is revoked by what its reader's snapshot no longer lists", async () => {
    const session = await readSource(plans(6));
    const index = await createIndex(ledger);
    await indexDue(ledger, index, session.source);
    const everything = { everything: true } as const;
    await ledger.grant({ source: session.source, reader: "svc:rag", audience: "user:alice", scope: everything });
    expect(await seen(ledger, index, ["user:alice"])).toHaveLength(6);
    const { snapshot } = await publishProven(ledger, session, plans(4));
    const request = { requestId: `a-${session.source}`, reason: "left", subject: "user:alice" };
    expect(await ledger.revokeByEnumeration(session, snapshot, request)).toMatchObject({ revoked: 2 });
    expect(await seen(ledger, index, ["user:alice"])).toHaveLength(4);
    expect(await seen(ledger, index, ["svc:rag"])).toHaveLength(6);
  });

  test("S6: a forged request is refused by its field before anything is revoked", async () => {
    const session = await readSource(plans(1));
    const { snapshot } = await publishProven(ledger, session, []);
    for (const field of ["requestId", "reason", "subject"]) {
      await expect(ledger.revokeByEnumeration(session, snapshot, { ...REQUEST, [field]: " " })).rejects.toMatchObject({
        code: "input_invalid",
        field: `request.${field}`,
      });
    }
  });
});
