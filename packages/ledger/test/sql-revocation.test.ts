import { randomUUID } from "node:crypto";
import { expect, test, vi } from "vitest";
import { readSchemaFiles } from "#src/database/migration-files.js";
import { migrate } from "#src/database/migrations.js";
import { queryableInSchema } from "#src/ledger-schema.js";
import {
  activeSource,
  advance,
  brokenInvariants,
  createIndex,
  describeWholeLedger,
  describeWholeLedgerOnPostgres,
  indexDue,
  purge,
  readNow,
  seen,
  type WholeLedger,
} from "./whole-ledger.js";

const URIS = ["catalog://plans/basic", "catalog://plans/pro", "catalog://other/terms"];
const PLANS = { prefix: "catalog://plans/" };

interface Report {
  readonly revocation_id: number;
  readonly request_id: string;
  readonly state: string;
  readonly nothing_covered: boolean;
  readonly effective_at: Date;
  readonly remaining_entries: number;
  readonly covered_entries: number;
}

type Arguments = Readonly<Record<string, string | null>>;

/** `select * from fenceline.fenceline_revoke(name => …)`, as another language calls it. */
async function revokeInSql(connection: Pick<WholeLedger, "sql">, named: Arguments): Promise<Report> {
  const parameters = Object.keys(named).map((name, index) => `${name} => $${index + 1}`);
  const rows = await connection.sql<Report>(
    `select * from fenceline.fenceline_revoke(${parameters.join(", ")})`,
    Object.values(named),
  );
  return rows[0] as Report;
}

describeWholeLedger("revoking from SQL", (ledger) => {
  async function indexed() {
    const { session, source } = await activeSource(ledger, URIS);
    const index = await createIndex(ledger);
    await readNow(ledger, session, URIS, (uri) => uri);
    await indexDue(ledger, index, source);
    return { session, source, index };
  }

  const request = (source: string | null): Arguments & { request_id: string } => ({
    request_id: `HR-${randomUUID()}`,
    subject: "svc:rag",
    reason: "left the team",
    source,
  });

  test("a revocation asked for in SQL is the one the API would make, and is answered once (P1, P2)", async () => {
    const { source, index } = await indexed();
    const asked = { ...request(source), prefix: "CATALOG://plans/%61%2F..", role: "reader", requested_by: "hr" };
    const report = await revokeInSql(ledger, asked);
    expect(report).toMatchObject({ request_id: asked.request_id, state: "EFFECTIVE", nothing_covered: false });
    expect(await seen(ledger, index, ["svc:rag"])).toEqual(["catalog://other/terms"]);
    expect(await revokeInSql(ledger, asked)).toEqual(report);
    const throughApi = await ledger.revoke({
      requestId: asked.request_id,
      source,
      subject: "svc:rag",
      role: "reader",
      scope: { prefix: "catalog://plans/%61%2F.." },
      reason: "left the team",
    });
    expect(throughApi).toMatchObject({ revocationId: report.revocation_id, requestedBy: "hr", role: "reader" });
    const covers = await ledger.sql(
      "select hash::text from fenceline.revocation_cover where revocation_id = $1 order by hash",
      [report.revocation_id],
    );
    const other = await ledger.revoke({
      source,
      subject: "svc:rag",
      scope: { prefix: "catalog://plans/%61%2F.." },
      reason: "r",
    });
    expect(
      await ledger.sql("select hash::text from fenceline.revocation_cover where revocation_id = $1 order by hash", [
        other.revocationId,
      ]),
    ).toEqual(covers);
  });

  test("who asked in SQL sees when it is complete, and what it waits for until then (P3, P5)", async () => {
    const { source, index } = await indexed();
    const asked = request(source);
    const { revocation_id } = await revokeInSql(ledger, { ...asked, ...PLANS });
    await advance(ledger, revocation_id);
    const report = () =>
      ledger.sql<Report>("select * from fenceline.fenceline_revocation(request_id => $1)", [asked.request_id]);
    expect(await report()).toMatchObject([
      { revocation_id, state: "EFFECTIVE", covered_entries: 2, remaining_entries: 2 },
    ]);
    await purge(ledger, index);
    expect(await report()).toMatchObject([{ state: "COMPLETE", covered_entries: 2, remaining_entries: 0 }]);
    expect(await ledger.sql("select * from fenceline.fenceline_revocation($1)", [revocation_id])).toMatchObject([
      { state: "COMPLETE" },
    ]);
    expect(await ledger.sql("select * from fenceline.fenceline_revocation(1000000)")).toEqual([]);
    await expect(ledger.sql("select * from fenceline.fenceline_revocation()")).rejects.toThrow(
      /revocation_id or request_id/,
    );
  });

  test("a lift in SQL denies nothing from its commit on, and leaves the reopening to the batches (P2, F6)", async () => {
    const { session, source, index } = await indexed();
    const { revocation_id } = await revokeInSql(ledger, request(source));
    await advance(ledger, revocation_id);
    await purge(ledger, index);
    for (let time = 0; time < 2; time += 1) {
      expect(await ledger.sql("select * from fenceline.fenceline_lift($1)", [revocation_id])).toMatchObject([
        { state: "LIFTED" },
      ]);
    }
    expect(await ledger.revocationsToAdvance()).toContain(revocation_id);
    await advance(ledger, revocation_id);
    expect(await ledger.revocationsToAdvance()).not.toContain(revocation_id);
    const lifecycles = await ledger.sql(
      "select distinct lifecycle, generation from fenceline.subscription where scope_id = $1",
      [session.scopeId],
    );
    expect(lifecycles).toEqual([{ lifecycle: "SUBSCRIBING", generation: 2 }]);
    await expect(ledger.sql("select * from fenceline.fenceline_lift(1000000)")).rejects.toThrow(
      "there is no revocation 1000000",
    );
  });

  test("one that covers nothing known says so and stands, and what it then covers is counted (P1)", async () => {
    const { source } = await indexed();
    const named = await revokeInSql(ledger, { ...request(source), uri: "catalog://unknown" });
    expect(named).toMatchObject({ state: "NOTHING_COVERED", nothing_covered: true });
    const everywhere = await revokeInSql(ledger, { ...request(null), subject: `user:${randomUUID()}` });
    expect(everywhere).toMatchObject({ state: "NOTHING_COVERED" });
    await advance(ledger, everywhere.revocation_id);
    expect(await ledger.revocation(everywhere.revocation_id)).toMatchObject({
      state: "COMPLETE",
      nothingCovered: true,
    });
  });

  test("running pools are told when it commits (P2, P6)", async () => {
    const { source } = await indexed();
    const heard: string[] = [];
    const listening = await ledger.database.listen(`${ledger.schema}.wake`, (payload) => heard.push(payload));
    try {
      const { revocation_id } = await revokeInSql(ledger, request(source));
      const wake = JSON.stringify({ kind: "revocation", revocationId: revocation_id });
      await vi.waitFor(() =>
        expect(heard.map((payload) => payload.replaceAll(" ", ""))).toContain(wake.replaceAll(" ", "")),
      );
    } finally {
      await listening.close();
    }
  });

  test("bad arguments are refused by name, with a code and a hint, and leave no row (P1)", async () => {
    const { source } = await indexed();
    const good = request(source);
    const used = request(source);
    await revokeInSql(ledger, { ...used, ...PLANS });
    const rows = () =>
      ledger.sql(
        "select (select count(*) from fenceline.revocation) as revocations, (select count(*) from fenceline.subject) as subjects, (select count(*) from fenceline.policy_scope) as scopes",
      );
    const before = await rows();
    const cases: [Arguments, string, RegExp][] = [
      [{ ...good, request_id: null }, "22023", /request_id is empty/],
      [{ ...good, subject: " \u3000" }, "22023", /subject is empty/],
      [{ ...good, subject: "s".repeat(513) }, "22023", /subject has more than 512/],
      [{ ...good, requested_by: "" }, "22023", /requested_by is empty/],
      [{ ...good, uri: `c:${"a".repeat(8_191)}` }, "22023", /uri has more than 8192/],
      [{ ...good, reason: "" }, "22023", /reason is empty/],
      [{ ...good, role: "owner" }, "22023", /role is owner/],
      [{ ...good, role: null }, "22023", /role is null/],
      [{ ...good, uri: "c:a", prefix: "c:" }, "22023", /both uri and prefix/],
      [{ ...good, uri: "" }, "22023", /uri is empty/],
      [{ ...good, prefix: "" }, "22023", /prefix is empty/],
      [{ ...good, prefix: "c://a?" }, "22023", /segment bound/],
      [{ ...good, prefix: `c://${"a".repeat(600)}` }, "22023", /more than 600/],
      [{ ...good, prefix: "https://b\u00fccher.example/" }, "22023", /prefix https:.* SQL cannot fold/],
      [{ ...good, uri: "https://xn--bcher-kva.example/" }, "22023", /uri https:.* SQL cannot fold/],
      [{ ...good, source: "nowhere" }, "42704", /no source named 'nowhere'/],
      [{ ...good, request_id: used.request_id }, "23505", /made before with other contents/],
      [
        { ...good, request_id: used.request_id, subject: "user:never-seen" },
        "23505",
        /made before with other contents/,
      ],
    ];
    for (const [named, code, message] of cases) {
      const error = await revokeInSql(ledger, named).catch((thrown: unknown) => thrown);
      expect(error, JSON.stringify(named).slice(0, 200)).toMatchObject({
        cause: { code, hint: expect.stringMatching(/\w/) },
      });
      expect((error as Error).message).toMatch(message);
    }
    expect(await rows()).toEqual(before);
    expect(await brokenInvariants(ledger)).toEqual([]);
  });
});

describeWholeLedgerOnPostgres("revoking from SQL, by a role of its own", (ledger) => {
  const named = (source: string): Arguments => ({ request_id: randomUUID(), subject: "svc:rag", reason: "r", source });

  test("a role revokes with the right to execute and no right on a table; it lifts only if that was granted as well (P1)", async () => {
    const { source } = await activeSource(ledger, URIS);
    const role = `hr_${randomUUID().slice(0, 8)}`;
    /** As that role, in a transaction that is undone where it fails. */
    const asRole = <Answer>(run: (connection: Pick<WholeLedger, "sql">) => Promise<Answer>) =>
      ledger.database.transaction(async (transaction) => {
        await transaction.query(`set local role ${role}`);
        const { query } = queryableInSchema(transaction, ledger.schema);
        return run({ sql: query });
      });
    await ledger.sql(`create role ${role}`);
    try {
      await ledger.sql(`grant usage on schema ${ledger.schema} to ${role}`);
      await expect(asRole((hr) => revokeInSql(hr, named(source)))).rejects.toThrow(
        /permission denied for function fenceline_revoke/,
      );
      const signature = "(text, text, text, text, text, text, text, text)";
      await ledger.sql(`grant execute on function fenceline.fenceline_revoke${signature} to ${role}`);
      const report = await asRole((hr) => revokeInSql(hr, named(source)));
      expect(await ledger.revocation(report.revocation_id)).toMatchObject({
        state: "EFFECTIVE",
        requestedBy: "postgres",
      });
      const lift = () => asRole((hr) => hr.sql("select * from fenceline.fenceline_lift($1)", [report.revocation_id]));
      await expect(lift()).rejects.toThrow(/permission denied for function fenceline_lift/);
      await expect(asRole((hr) => hr.sql("select * from fenceline.revocation"))).rejects.toThrow(
        /permission denied for table/,
      );
      // What lies on the caller's path is not what runs.
      await ledger.sql(`create schema ${role}_path`);
      await expect(
        asRole(async (hr) => {
          await hr.sql(`set local search_path = ${role}_path, pg_temp`);
          return revokeInSql(hr, named(source));
        }),
      ).resolves.toMatchObject({ state: "EFFECTIVE" });
      // An upgrade creates every function anew.
      await ledger.sql("update fenceline.function_set set digest = 'of an older version'");
      expect((await migrate(ledger.database, { schema: ledger.schema, files: readSchemaFiles() })).functions).toContain(
        "revocation-requests",
      );
      await expect(asRole((hr) => revokeInSql(hr, named(source)))).resolves.toMatchObject({ state: "EFFECTIVE" });
      await expect(lift()).rejects.toThrow(/permission denied for function fenceline_lift/);
    } finally {
      await ledger.sql(`drop owned by ${role}`);
      await ledger.sql(`drop role ${role}`);
      await ledger.sql(`drop schema if exists ${role}_path`);
    }
  });

  test("a session that reads string constants in the old way revokes what was named, also once its plans are made (P1)", async () => {
    const { source } = await activeSource(ledger, URIS);
    const prefixOf = async (connection: Pick<WholeLedger, "sql">) => {
      const { revocation_id } = await revokeInSql(connection, { ...named(source), prefix: "catalog://plans/a?x" });
      const [row] = await connection.sql("select key_from from fenceline.revocation where revocation_id = $1", [
        revocation_id,
      ]);
      return row;
    };
    const [old, fresh] = await ledger.database.transaction(async (transaction) => {
      const connection = { sql: queryableInSchema(transaction, ledger.schema).query };
      await transaction.query("set local plan_cache_mode = force_generic_plan");
      for (const uri of URIS) await revokeInSql(connection, { ...named(source), uri });
      await transaction.query("set local standard_conforming_strings = off");
      const old = await prefixOf(connection);
      await transaction.query("set local standard_conforming_strings = on");
      return [old, await prefixOf(connection)];
    });
    expect(old).toEqual(fresh);
    expect(old).toEqual({ key_from: "catalog/://plans/a/?x/" });
  });

  test("a caller whose transaction is serializable is refused, as it would decide from an old snapshot (P2)", async () => {
    const { source } = await activeSource(ledger, URIS);
    const refused = ledger.database.transaction(async (transaction) => {
      await transaction.query("set transaction isolation level serializable");
      const { query } = queryableInSchema(transaction, ledger.schema);
      await revokeInSql({ sql: query }, named(source));
    });
    await expect(refused).rejects.toThrow(/READ COMMITTED/);
  });
});
