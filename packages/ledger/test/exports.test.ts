import { expect, test } from "vitest";
import {
  activeSource,
  advance,
  brokenInvariants,
  createDerivedIndex,
  createIndex,
  derive,
  describeWholeLedger,
  indexDue,
  purge,
  readNow,
} from "./whole-ledger.js";

const DIRECTORY = "catalog://plans/";
const BASIC = "catalog://plans/basic";
const PRO = "catalog://plans/pro";

describeWholeLedger("exports", (ledger) => {
  test("a revocation of a part lists exactly the exports that held it, also of versions long replaced (L6, F5)", async () => {
    const { session, source, leave } = await directory();
    await readNow(ledger, session, [DIRECTORY], () => ({ [BASIC]: "1", [PRO]: "1" }));
    await leave("with both");
    await readNow(ledger, session, [DIRECTORY], () => ({ [BASIC]: "2" }));
    await leave("without pro");
    const { revocationId } = await ledger.revoke({ source, subject: "svc:rag", scope: { uri: PRO }, reason: "r" });
    await advance(ledger, revocationId);
    const open = await ledger.exports({ open: true, revocationId });
    expect(open.map(({ destination }) => destination)).toEqual(["with both"]);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE_EXCEPT_EXPORTS", exports: 1 });
    expect(await ledger.acknowledgeExport(open[0]?.exportId as number)).toBe(true);
    expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE", exports: 0 });
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("what is left out of an export does not make it one of the part (L6, P2)", async () => {
    const { session, source, leave } = await directory();
    await readNow(ledger, session, [DIRECTORY], () => ({ [BASIC]: "1", [PRO]: "1" }));
    const first = await ledger.revoke({ source, subject: "svc:rag", scope: { uri: PRO }, reason: "r" });
    await leave("without pro");
    await advance(ledger, first.revocationId);
    expect(await ledger.revocation(first.revocationId)).toMatchObject({ state: "COMPLETE", exports: 0 });
  });

  test("an exported entry is listed by a revocation of any version it was made of, and of whom it was made for (L6, P3)", async () => {
    const { session, source } = await activeSource(ledger, [BASIC, PRO]);
    const index = await createIndex(ledger);
    await readNow(ledger, session, [BASIC, PRO], (uri) => uri);
    await indexDue(ledger, index, source);
    await ledger.grant({ source, reader: "svc:rag", audience: "user:alice", scope: { everything: true } });
    const answers = await createDerivedIndex(ledger);
    const parents = [...index.entries.keys()].map((entryId) => ({ as: "ingredient" as const, of: { entryId } }));
    const digests = [ledger.digestChunk("answer")];
    const id = await derive(ledger, answers, { kind: "answer", parents, digests, audience: "user:alice" }, "for alice");
    const leaving = { index: answers.ref.name, entryIds: [id], destination: "mail" };
    expect(await ledger.exportEntries({ ...leaving, asker: ["user:bob"] })).toEqual([]);
    const [left] = await ledger.exportEntries({ ...leaving, asker: ["user:alice"] });
    const audience = await ledger.revoke({ source, subject: "user:alice", scope: { uri: PRO }, reason: "r" });
    const reader = await ledger.revoke({ source, subject: "svc:rag", scope: { uri: BASIC }, reason: "r" });
    expect(await ledger.exportEntries({ ...leaving, asker: ["user:alice"] })).toEqual([]);
    for (const { revocationId } of [audience, reader]) await advance(ledger, revocationId);
    for (const each of [index, answers]) await purge(ledger, each);
    const [found, ...others] = await ledger.exports({ after: (left?.exportId as number) - 1, open: true });
    expect(others).toEqual([]);
    expect(found).toMatchObject({
      entryId: id,
      destination: "mail",
      revocations: [audience.revocationId, reader.revocationId],
    });
    expect(found?.versions.map(({ uri }) => uri).sort()).toEqual([BASIC, PRO]);
    for (const { revocationId } of [audience, reader]) {
      expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE_EXCEPT_EXPORTS", exports: 1 });
    }
    await ledger.acknowledgeExport(left?.exportId as number);
    for (const { revocationId } of [audience, reader]) {
      expect(await ledger.revocation(revocationId)).toMatchObject({ state: "COMPLETE", exports: 0 });
    }
    expect(await brokenInvariants(ledger)).toEqual([]);
  });

  test("the feed goes on after an id, open or not (L6)", async () => {
    const { session, leave } = await directory();
    await readNow(ledger, session, [DIRECTORY], () => ({ [BASIC]: "1" }));
    const before = (await ledger.exports()).at(-1)?.exportId ?? 0;
    for (const destination of ["a", "b", "c"]) await leave(destination);
    const first = await ledger.exports({ after: before, limit: 2 });
    expect(first.map(({ destination }) => destination)).toEqual(["a", "b"]);
    const rest = await ledger.exports({ after: first[1]?.exportId as number, open: false });
    expect(rest.map(({ destination }) => destination)).toEqual(["c"]);
    expect(await ledger.exports({ after: before, open: true })).toEqual([]);
  });

  async function directory() {
    const { session, source } = await activeSource(ledger, [DIRECTORY]);
    const leave = async (destination: string) => {
      expect(await ledger.exportVersions({ source, reader: "svc:rag", destination, limit: 10 })).toHaveLength(1);
    };
    return { session, source, leave };
  }
});
