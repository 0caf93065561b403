import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import type { IssuedRead } from "#src/reads.js";
import type { Session } from "#src/sessions.js";
import {
  accept,
  activate,
  answer,
  describeLedger,
  exactTiming,
  insertRevocation,
  issueOne,
  openSession,
  READ_LEASE_MS,
  receipts,
  subscriptionRow,
} from "./ledger-under-test.js";

const URI = "catalog://plans/basic";

describeLedger("fenced reads", (ledger) => {
  /** One resource, pushed, with nothing read yet. */
  async function oneResource(mode: "pushed" | "polled" = "pushed") {
    const session = await openSession(ledger);
    const [id] = await activate(ledger, session, [URI], mode);
    return { session, id: id as number };
  }

  /** A read that is still out when the next one is issued: its lease ended before its answer came. */
  async function slowAndNext(session: Session): Promise<[IssuedRead, IssuedRead]> {
    const [slow] = await ledger.issueDueReads(session, { limit: 1, leaseMs: 1_000 });
    await ledger.advanceClock(1_000);
    return [slow as IssuedRead, await issueOne(ledger, session)];
  }

  test("a late answer A=1 after B=2 leaves only a stale receipt (F4)", async () => {
    const { session, id } = await oneResource();
    const [slow, next] = await slowAndNext(session);
    expect([slow.ordinal, next.ordinal]).toEqual([1, 2]);
    expect(await accept(ledger, session, next, "new")).toBe("accepted");
    const before = await subscriptionRow(ledger, id);
    expect(await accept(ledger, session, slow, "old")).toBe("stale");
    expect(await subscriptionRow(ledger, id)).toEqual(before);
    expect((await receipts(ledger, session, id)).slice(-2)).toEqual(["version", "stale"]);
    expect(await ledger.sql("select ordinal from fenceline.resource_version where subscription_id = $1", [id])).toEqual(
      [{ ordinal: 2 }],
    );
  });

  test("if the slow answer A=1 comes first, 1 and 2 are both accepted (F4)", async () => {
    const { session, id } = await oneResource();
    const [slow, next] = await slowAndNext(session);
    expect(await accept(ledger, session, slow, "old")).toBe("accepted");
    expect(await accept(ledger, session, next, "new")).toBe("accepted");
    expect(await subscriptionRow(ledger, id)).toMatchObject({ accepted_ordinal: 2, version_ordinal: 2 });
    expect((await receipts(ledger, session, id)).filter((kind) => kind === "version")).toHaveLength(2);
  });

  test("an older answer that is accepted leaves a later read due when its lease ends, should its worker be dead (F4, F9)", async () => {
    const { session } = await oneResource();
    const [slow] = await slowAndNext(session);
    expect(await accept(ledger, session, slow, "old")).toBe("accepted");
    await ledger.advanceClock(READ_LEASE_MS - 1);
    expect(await ledger.millisecondsToNextRead(session)).toBe(1);
    await ledger.advanceClock(1);
    expect(await issueOne(ledger, session)).toMatchObject({ ordinal: 3 });
  });

  test("an answer that was accepted before is stale, one that names another request was not issued (F3)", async () => {
    const { session, id } = await oneResource();
    const read = await issueOne(ledger, session);
    expect(await accept(ledger, session, { ...read, requestId: randomUUID() }, "forged")).toBe("not_issued");
    expect(await accept(ledger, session, { ...read, ordinal: 7 }, "forged")).toBe("not_issued");
    expect(await accept(ledger, session, read, "v1")).toBe("accepted");
    expect(await accept(ledger, session, read, "v1")).toBe("stale");
    expect((await receipts(ledger, session, id)).slice(-4)).toEqual(["not_issued", "not_issued", "version", "stale"]);
  });

  test("a read settled as lost is never accepted, and its ordinal is not used again (F9)", async () => {
    const { session } = await oneResource();
    const read = await issueOne(ledger, session);
    expect(await ledger.settleReads(session, [{ ...read, as: "lost" }])).toEqual([
      { subscriptionId: read.subscriptionId, ordinal: 1, outcome: "settled" },
    ]);
    expect(await accept(ledger, session, read, "late")).toBe("not_issued");
    expect((await issueOne(ledger, session)).ordinal).toBe(2);
  });

  test("at most one read of a URI is in flight, on demand as well (U5)", async () => {
    const { session } = await oneResource();
    await issueOne(ledger, session);
    expect(await ledger.issueDueReads(session, { limit: 10, leaseMs: READ_LEASE_MS })).toEqual([]);
    expect(await ledger.issueReads(session, { uris: [URI], reason: "demand", leaseMs: READ_LEASE_MS })).toEqual([]);
  });

  test("an unchanged digest moves the watermark and verifiedAt, and makes no version or outbox row (F6)", async () => {
    const { session, id } = await oneResource();
    expect(await accept(ledger, session, await issueOne(ledger, session), "v1")).toBe("accepted");
    const before = await subscriptionRow(ledger, id);
    await ledger.sql("update fenceline.outbox set pending = false where subscription_id = $1", [id]);
    await ledger.advanceClock(exactTiming.pushedIntervalMs);
    const read = await issueOne(ledger, session);
    expect(read.reason).toBe("timer");
    expect(await accept(ledger, session, read, "v1")).toBe("unchanged");
    const after = await subscriptionRow(ledger, id);
    expect(after).toMatchObject({ accepted_ordinal: 2, version_ordinal: 1 });
    expect((after.verified_at as Date).getTime() - (before.verified_at as Date).getTime()).toBe(
      exactTiming.pushedIntervalMs,
    );
    expect(await ledger.sql("select 1 from fenceline.resource_version where subscription_id = $1", [id])).toHaveLength(
      1,
    );
    expect(await ledger.sql("select 1 from fenceline.outbox where subscription_id = $1 and pending", [id])).toEqual([]);
  });

  test("an accepted version is due in every registered index, once, at the newest ordinal (F3)", async () => {
    const { session, id } = await oneResource();
    await accept(ledger, session, await issueOne(ledger, session), "v1");
    await ledger.recordNotifications(session, [URI]);
    await ledger.advanceClock(exactTiming.notificationWindowMs);
    await accept(ledger, session, await issueOne(ledger, session), "v2");
    expect(
      await ledger.sql(
        `select x.name, o.ordinal, o.pending from fenceline.outbox o join fenceline.index x using (index_id)
         where o.subscription_id = $1 order by x.name`,
        [id],
      ),
    ).toEqual([
      { name: "main", ordinal: 2, pending: true },
      { name: "other", ordinal: 2, pending: true },
    ]);
  });

  test("a notification between issue and answer: accepted, not current, and due again a window later (F3, U5)", async () => {
    const { session, id } = await oneResource();
    const read = await issueOne(ledger, session);
    await ledger.recordNotifications(session, [URI]);
    await ledger.advanceClock(40);
    expect(await accept(ledger, session, read, "v1")).toBe("accepted_not_current");
    expect(await subscriptionRow(ledger, id)).toMatchObject({
      verified_at: null,
      notification_number: 1,
      seen_notification: 0,
      due_in_ms: exactTiming.notificationWindowMs - 40,
    });
    await ledger.advanceClock(60);
    const again = await issueOne(ledger, session);
    expect(again.reason).toBe("notified");
    expect(await accept(ledger, session, again, "v1")).toBe("unchanged");
    expect(await subscriptionRow(ledger, id)).toMatchObject({ due_in_ms: exactTiming.pushedIntervalMs });
  });

  test("a stream that breaks between issue and answer: accepted, not current (F3, U4)", async () => {
    const { session } = await oneResource();
    const read = await issueOne(ledger, session);
    await ledger.breakStream(session, 0);
    expect(await accept(ledger, session, read, "v1")).toBe("accepted_not_current");
  });

  test("a polled resource is current without a stream, and due again after its interval (U3)", async () => {
    const { session, id } = await oneResource("polled");
    expect(await accept(ledger, session, await issueOne(ledger, session), "v1")).toBe("accepted");
    expect(await subscriptionRow(ledger, id)).toMatchObject({ pushed: false, due_in_ms: exactTiming.polledIntervalMs });
    expect(await ledger.millisecondsToNextRead(session)).toBe(exactTiming.polledIntervalMs);
  });

  test.each([
    ["shorter than the interval changes nothing", 10_000, exactTiming.polledIntervalMs],
    ["longer than the interval stretches it", 300_000, 300_000],
    ["longer than half the staleness bound stretches it to that", 86_400_000, 450_000],
  ])("the hint ttlMs of a polled resource: one that is %s (U3)", async (_what, ttlMs, dueInMs) => {
    const { session, id } = await oneResource("polled");
    const hinted = { ...answer(await issueOne(ledger, session), "v1"), ttlMs };
    expect(await ledger.acceptResourceVersions(session, [hinted])).toMatchObject([{ outcome: "accepted" }]);
    expect(await subscriptionRow(ledger, id)).toMatchObject({ due_in_ms: dueInMs });
  });

  test("the hint ttlMs puts off neither the periodic read of a pushed resource nor what was announced (U5, U6)", async () => {
    const { session, id } = await oneResource();
    const hinted = { ...answer(await issueOne(ledger, session), "v1"), ttlMs: 86_400_000 };
    await ledger.acceptResourceVersions(session, [hinted]);
    expect(await subscriptionRow(ledger, id)).toMatchObject({ due_in_ms: exactTiming.pushedIntervalMs });
    await ledger.recordNotifications(session, [URI]);
    expect(await subscriptionRow(ledger, id)).toMatchObject({ due_in_ms: exactTiming.notificationWindowMs });
  });

  test("content after a close, whenever its read was issued, leaves only stale_after_close (U8)", async () => {
    const { session, id } = await oneResource();
    const read = await issueOne(ledger, session);
    await ledger.beginUnsubscribe(session, [URI]);
    const closed = await subscriptionRow(ledger, id);
    expect(closed).toMatchObject({ lifecycle: "UNSUBSCRIBING", close_ordinal: 1 });
    expect(await accept(ledger, session, read, "late")).toBe("stale_after_close");
    expect(await ledger.settleReads(session, [{ ...read, as: "not_found" }])).toMatchObject([{ outcome: "stale" }]);
    expect(await subscriptionRow(ledger, id)).toEqual(closed);
    expect((await receipts(ledger, session, id)).slice(-3)).toEqual([
      "unsubscribing",
      "stale_after_close",
      "stale_after_close",
    ]);
    expect(await ledger.sql("select 1 from fenceline.outbox where subscription_id = $1", [id])).toEqual([]);
    expect(await ledger.issueReads(session, { uris: [URI], reason: "demand", leaseMs: READ_LEASE_MS })).toEqual([]);
  });

  test("parts keep their own URIs, and become no versions of other resources (F5)", async () => {
    const { session, id } = await oneResource();
    const read = await issueOne(ledger, session);
    const parts = [
      { uri: `${URI}/monthly`, text: "10" },
      { uri: `${URI}/logo`, bytes: Buffer.from([0, 1, 2]), mimeType: "image/png" },
      { uri: URI, text: "with an \u00e9 in it" },
    ];
    await ledger.acceptResourceVersions(session, [{ ...answer(read, "v1"), parts }]);
    expect(
      await ledger.sql(
        `select b.position, r.resource_key, b.part_uri, b.text, b.bytes, b.part_id = s.resource_id as own
         from fenceline.body b join fenceline.resource r on r.resource_id = b.part_id
         join fenceline.subscription s using (subscription_id) where subscription_id = $1 order by b.position`,
        [id],
      ),
    ).toEqual([
      { position: 0, resource_key: `${URI}/monthly`, part_uri: `${URI}/monthly`, text: "10", bytes: null, own: false },
      {
        position: 1,
        resource_key: `${URI}/logo`,
        part_uri: `${URI}/logo`,
        text: null,
        bytes: Buffer.from([0, 1, 2]),
        own: false,
      },
      { position: 2, resource_key: URI, part_uri: URI, text: "with an \u00e9 in it", bytes: null, own: true },
    ]);
    expect(
      await ledger.sql("select 1 from fenceline.subscription where scope_id = $1", [session.scopeId]),
    ).toHaveLength(1);
  });

  test("only the newest version's body is kept", async () => {
    const { session, id } = await oneResource("polled");
    await accept(ledger, session, await issueOne(ledger, session), "v1");
    await ledger.advanceClock(exactTiming.polledIntervalMs);
    await accept(ledger, session, await issueOne(ledger, session), "v2");
    expect(await ledger.sql("select ordinal, text from fenceline.body where subscription_id = $1", [id])).toEqual([
      { ordinal: 2, text: "v2" },
    ]);
  });

  test("a version with fewer parts keeps none of the version before, nor one that lost a part in the middle (F5, P3)", async () => {
    const { session, id } = await oneResource("polled");
    const part = (name: string) => ({ uri: `${URI}/${name}`, text: name });
    const kept = async (names: readonly string[], digest: string) => {
      const read = await issueOne(ledger, session);
      const parts = names.map(part);
      const accepted = await ledger.acceptResourceVersions(session, [{ ...answer(read, digest), parts }]);
      expect(accepted).toMatchObject([{ outcome: "accepted" }]);
      await ledger.advanceClock(exactTiming.polledIntervalMs);
      const bodies = "select text from fenceline.body where subscription_id = $1 order by position";
      return (await ledger.sql<{ text: string }>(bodies, [id])).map(({ text }) => text);
    };
    expect(await kept(["a", "b", "c"], "v1")).toEqual(["a", "b", "c"]);
    expect(await kept(["d"], "v2")).toEqual(["d"]);
    expect(await kept(["a", "b", "c"], "v3")).toEqual(["a", "b", "c"]);
    await insertRevocation(ledger.sql, session, { uri: `${URI}/b` });
    expect(await kept(["a", "b", "c"], "v4")).toEqual(["a", "c"]);
    expect(await kept([], "v5")).toEqual([]);
  });

  test("nothing that a standing revocation covers is issued or accepted (F3, P2)", async () => {
    const { session, id } = await oneResource();
    const read = await issueOne(ledger, session);
    await insertRevocation(ledger.sql, session, { prefix: "catalog://plans" });
    expect(await accept(ledger, session, read, "v1")).toBe("revoked");
    expect(await subscriptionRow(ledger, id)).toMatchObject({ accepted_ordinal: 0, version_ordinal: null });
    expect((await receipts(ledger, session, id)).at(-1)).toBe("refused_revoked");
    await ledger.advanceClock(READ_LEASE_MS);
    expect(await ledger.issueDueReads(session, { limit: 10, leaseMs: READ_LEASE_MS })).toEqual([]);
    expect(await ledger.millisecondsToNextRead(session)).toBeUndefined();
  });

  test("a covered part is dropped before it is kept, and the next read makes a new version of the same content (F5, F6)", async () => {
    const { session, id } = await oneResource("polled");
    await insertRevocation(ledger.sql, session, { uri: `${URI}/secret` });
    const parts = [
      { uri: `${URI}/secret`, text: "hidden" },
      { uri: `${URI}/open`, text: "shown" },
    ];
    const read = await issueOne(ledger, session);
    expect(await ledger.acceptResourceVersions(session, [{ ...answer(read, "v1"), parts }])).toMatchObject([
      { outcome: "accepted" },
    ]);
    expect(await ledger.sql("select position, text from fenceline.body where subscription_id = $1", [id])).toEqual([
      { position: 1, text: "shown" },
    ]);
    await ledger.sql(
      "delete from fenceline.revocation_cover c using fenceline.policy_scope p where p.scope_id = $1 and c.subject_id = p.subject_id",
      [session.scopeId],
    );
    await ledger.advanceClock(exactTiming.polledIntervalMs);
    const again = await issueOne(ledger, session);
    expect(await ledger.acceptResourceVersions(session, [{ ...answer(again, "v1"), parts }])).toMatchObject([
      { outcome: "accepted", lineageId: `${id}.2` },
    ]);
    expect(await ledger.sql("select position from fenceline.body where subscription_id = $1", [id])).toHaveLength(2);
  });

  test("one call takes one answer of each subscription", async () => {
    const { session } = await oneResource();
    const read = await issueOne(ledger, session);
    await expect(ledger.acceptResourceVersions(session, [answer(read, "a"), answer(read, "b")])).rejects.toMatchObject({
      code: "input_invalid",
      field: "answers[1].subscriptionId",
    });
  });
});
