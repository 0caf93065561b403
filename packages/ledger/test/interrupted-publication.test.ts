import { expect, test, vi } from "vitest";
import { openDatabase, type Queryable } from "#src/database/database.js";
import type { Session } from "#src/sessions.js";
import {
  areasOver,
  describeLedger,
  describeLedgerOnPostgres,
  type LedgerUnderTest,
  openSession,
  publish,
  readDue,
  receipts,
  scan,
} from "./ledger-under-test.js";

const KNOWN = Array.from({ length: 20 }, (_, number) => `catalog://old/${number}`);
const LISTED = Array.from({ length: 250 }, (_, number) => `catalog://new/${String(number).padStart(3, "0")}`);

interface Interrupted {
  readonly session: Session;
  readonly scans: { readonly first: number; readonly second: number };
}

/** A published catalogue, and two scans of another one that is about to be published. */
async function prepare(ledger: LedgerUnderTest): Promise<Interrupted> {
  const session = await openSession(ledger);
  await publish(ledger, session, KNOWN);
  const first = await scan(ledger, session, LISTED);
  return { session, scans: { first, second: await scan(ledger, session, LISTED) } };
}

async function catalogue(ledger: LedgerUnderTest, { session }: Interrupted) {
  const [row] = await ledger.sql(
    `select catalog_scan_id, catalog_verdict, catalog_measured_at, next_review_at,
       (select count(*) from fenceline.subscription s where s.scope_id = c.scope_id) as known,
       (select count(*) from fenceline.subscription s where s.scope_id = c.scope_id and s.vanished_scan_id is not null) as vanished
     from fenceline.policy_scope c where scope_id = $1`,
    [session.scopeId],
  );
  return row as { known: number } & Record<string, unknown>;
}

/** The connection of a publisher that does something before its second batch. */
function before(connection: Queryable, secondBatch: () => Promise<void>): Queryable {
  let batches = 0;
  return {
    async query(text, values) {
      if (text.includes("publish_entries")) {
        batches += 1;
        if (batches === 2) await secondBatch();
      }
      return connection.query(text, values);
    },
  };
}

async function goesOnFromItsScans(ledger: LedgerUnderTest, interrupted: Interrupted): Promise<void> {
  const { session, scans } = interrupted;
  expect(await ledger.publishCatalog(session, scans)).toMatchObject({
    outcome: "published",
    resources: 250,
    discovered: 150,
    vanished: 20,
  });
  expect(await catalogue(ledger, interrupted)).toMatchObject({
    catalog_scan_id: scans.second,
    known: 270,
    vanished: 20,
  });
  expect((await receipts(ledger, session)).filter((kind) => kind === "discovered")).toHaveLength(270);
}

describeLedger("an interrupted publication", (ledger) => {
  test("S8: a publisher that dies between two batches leaves the old catalogue, removes nothing, and is gone on from", async () => {
    const interrupted = await prepare(ledger);
    const whole = await catalogue(ledger, interrupted);
    const dies = before(ledger.database, () => Promise.reject(new Error("killed")));
    const publisher = areasOver(dies, ledger.schema);
    await expect(publisher.publishCatalog(interrupted.session, interrupted.scans)).rejects.toThrow("killed");
    expect(await catalogue(ledger, interrupted)).toEqual({ ...whole, known: whole.known + 100 });
    await goesOnFromItsScans(ledger, interrupted);
  });

  test("S4: a list_changed between two batches stops the publication, and what both scans list is harmless", async () => {
    const interrupted = await prepare(ledger);
    const { session, scans } = interrupted;
    const whole = await catalogue(ledger, interrupted);
    const changes = before(ledger.database, async () => {
      await ledger.recordListChanged(session);
    });
    expect(await areasOver(changes, ledger.schema).publishCatalog(session, scans)).toEqual({ outcome: "list_changed" });
    expect(await catalogue(ledger, interrupted)).toMatchObject({
      catalog_scan_id: whole["catalog_scan_id"],
      known: 120,
      vanished: 0,
    });
    // Not subscribed, not read, not due: DISCOVERED is all that they are.
    expect(await readDue(ledger, session, () => "v1")).toBe(0);
    expect(await publish(ledger, session, KNOWN)).toMatchObject({ outcome: "published", held: true, vanished: 100 });
  });

  test("S8: a session lost between two batches stops the publication", async () => {
    const interrupted = await prepare(ledger);
    const { session, scans } = interrupted;
    const whole = await catalogue(ledger, interrupted);
    const loses = before(ledger.database, () => ledger.endSession(session));
    expect(await areasOver(loses, ledger.schema).publishCatalog(session, scans)).toEqual({ outcome: "session_lost" });
    expect(await catalogue(ledger, interrupted)).toEqual({ ...whole, known: 120 });
  });

  test("S8: gone on from after its entries were forgotten, it removes nothing, and no catalogue goes back", async () => {
    const { session, scans } = await prepare(ledger);
    expect(await publish(ledger, session, KNOWN)).toMatchObject({ outcome: "published", vanished: 0 });
    expect(await ledger.publishCatalog(session, scans)).toEqual({ outcome: "incomplete" });
    expect(await ledger.publishUnsettled(session, scans)).toMatchObject({ outcome: "incomplete" });
    await scan(ledger, session, KNOWN);
    expect(await ledger.publishCatalog(session, scans)).toEqual({ outcome: "incomplete" });
    expect(await catalogue(ledger, { session, scans })).toMatchObject({ known: 20, vanished: 0 });
  });
});

describeLedgerOnPostgres("a publication whose connection is killed", (ledger) => {
  test("S8: killed inside a batch, it leaves the batches before it and the old catalogue", async () => {
    const interrupted = await prepare(ledger);
    const { session, scans } = interrupted;
    const whole = await catalogue(ledger, interrupted);
    const own = await openDatabase(process.env["FENCELINE_TEST_POSTGRES_URL"] as string, { maxConnections: 1 });
    try {
      const [backend] = await own.query<{ pid: number }>("select pg_backend_pid() as pid");
      let release = () => {};
      let fenced: Promise<void> | undefined;
      // Somebody holds the fence, so that the second batch waits inside its statement.
      const connection = before(own, async () => {
        await new Promise<void>((holds) => {
          fenced = ledger.database.transaction(async (transaction) => {
            await transaction.query(`select ${ledger.schema}.fence_exclusive($1)`, [session.scopeId]);
            holds();
            await new Promise<void>((ends) => {
              release = ends;
            });
          });
        });
      });
      const publication = areasOver(connection, ledger.schema).publishCatalog(session, scans);
      const failed = expect(publication).rejects.toMatchObject({ code: "connection_lost" });
      await vi.waitFor(async () => {
        const [row] = await ledger.sql<{ waits: boolean }>(
          "select exists (select 1 from pg_stat_activity where pid = $1 and wait_event_type = 'Lock') as waits",
          [backend?.pid],
        );
        expect(row?.waits).toBe(true);
      });
      await ledger.sql("select pg_terminate_backend($1)", [backend?.pid]);
      await failed;
      release();
      await fenced;
    } finally {
      await own.close();
    }
    expect(await catalogue(ledger, interrupted)).toEqual({ ...whole, known: 120 });
    await goesOnFromItsScans(ledger, interrupted);
  });
});
