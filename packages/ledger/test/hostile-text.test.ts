import { expect, test } from "vitest";
import { digest, publish, READ_LEASE_MS, subscriptionRow } from "./ledger-under-test.js";
import { activeSource, claimWork, createIndex, describeWholeLedger } from "./whole-ledger.js";

/** U+0000 and a lone surrogate: what PostgreSQL holds in no text. */
const BAD = "\0\ud800";
const GOOD_URI = "catalog://plans/basic";
const BAD_URI = `catalog://plans/${BAD}`;

/** A server sends what it likes; one bad text must not fail the page or the batch it comes in (F10). */
describeWholeLedger("text that no database holds", (ledger) => {
  test("in a listing spoils no other entry of its page (F10)", async () => {
    const { session } = await activeSource(ledger, []);
    const scanned = async () => {
      const begun = await ledger.beginScan(session);
      if (begun === "session_lost") return expect.fail(begun);
      const entries = [
        { uri: BAD_URI, name: BAD, title: BAD, mimeType: BAD, descriptorDigest: digest("bad") },
        { uri: GOOD_URI, descriptorDigest: digest("good") },
      ];
      await ledger.recordScanPage(session, begun.scanId, { cursorDigest: digest("page"), entries });
      await ledger.finishScan(session, begun.scanId, { complete: true });
      return begun.scanId;
    };
    const [first, second] = [await scanned(), await scanned()];
    expect(await ledger.publishCatalog(session, { first, second })).toMatchObject({ resources: 2, discovered: 2 });
  });

  test("in an answer spoils no other answer of its batch (F3, F5)", async () => {
    const { session, source } = await activeSource(ledger, [GOOD_URI, BAD_URI]);
    const index = await createIndex(ledger);
    const reads = await ledger.issueReads(session, {
      uris: [GOOD_URI, BAD_URI],
      reason: "demand",
      leaseMs: READ_LEASE_MS,
    });
    const accepted = await ledger.acceptResourceVersions(
      session,
      reads.map(({ uri, ...read }) => {
        const text = uri === GOOD_URI ? "text/plain" : BAD;
        return { ...read, digest: digest(uri), mimeType: text, parts: [{ uri: uri + text, mimeType: text, text }] };
      }),
    );
    expect(accepted.map(({ outcome }) => outcome)).toEqual(["accepted", "accepted"]);
    expect((await claimWork(ledger, index, source)).flatMap(({ parts }) => parts)).toHaveLength(2);
  });

  test("in the message of a failed read, or the server's own name, keeps neither from being recorded (F9, U1)", async () => {
    const { session, ids } = await activeSource(ledger, [GOOD_URI]);
    const [read] = await ledger.issueReads(session, { uris: [GOOD_URI], reason: "demand", leaseMs: READ_LEASE_MS });
    if (!read) return expect.fail("no read was issued");
    await ledger.settleReads(session, [{ ...read, as: "failed", message: BAD }]);
    expect(await subscriptionRow(ledger, ids[0] as number)).toMatchObject({ failures: 1 });
    await ledger.recordCapabilities(session, {
      era: "modern",
      protocolVersion: "2026-07-28",
      server: { name: `catalog${BAD}`, version: BAD },
      resources: true,
      subscribe: true,
      listChanged: true,
    });
    const [recorded] = await ledger.sql("select server_name from fenceline.session where session_id = $1", [
      session.sessionId,
    ]);
    expect(recorded).toEqual({ server_name: "catalog\ufffd\ufffd" });
  });

  test("in the URI of a scope reaches the resource that was listed by it (F10, P1, G1)", async () => {
    const { session, source } = await activeSource(ledger, [BAD_URI]);
    await publish(ledger, session, [BAD_URI]);
    const scope = { uri: BAD_URI };
    await ledger.grant({ source, reader: "svc:rag", audience: "user:alice", scope });
    expect(await ledger.revoke({ source, subject: "svc:rag", scope, reason: BAD })).toMatchObject({
      nothingCovered: false,
    });
  });
});
