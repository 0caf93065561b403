import { randomUUID } from "node:crypto";
import { expect, test } from "vitest";
import { formatEntryId } from "#src/entry-id.js";
import { type Ledger, type OpenLedgerOptions, openLedger } from "#src/ledger.js";
import type { Witness, WitnessedRevocation } from "#src/witness.js";
import { describeLedger } from "./ledger-under-test.js";

function tokenOf(seen: object): string {
  return `fenceline-position.v1.${Buffer.from(JSON.stringify(seen)).toString("base64url")}`;
}

/** One that saw this, and keeps nothing. */
function witnessOf(position: string, requestIds: readonly string[]): Witness {
  const revocations = requestIds.map(
    (requestId): WitnessedRevocation => ({ requestId, subject: "user:alice", reason: "left" }),
  );
  return { read: async () => ({ position, revocations }), advance: async () => {}, record: async () => {} };
}

describeLedger("the evidence of a restored backup", (ledger) => {
  async function withLedger<T>(options: OpenLedgerOptions, use: (facade: Ledger) => Promise<T>): Promise<T> {
    const facade = await openLedger(ledger.database.address, { schema: ledger.schema, ...options });
    try {
      return await use(facade);
    } finally {
      await facade.close();
    }
  }

  test("a position that no ledger gave is refused before anything is looked at", async () => {
    await withLedger({}, async (facade) => {
      const { mark, incarnation } = await facade.position();
      const seen = { mark, incarnation, number: 1, sequences: {} };
      for (const wrong of [
        { incarnation: "one" },
        { incarnation: 3_000_000_000 },
        { incarnation: 2 ** 31 - 1 },
        { number: -1 },
        { number: 2 ** 53 - 1 },
        { mark: "\0" },
        { sequences: null },
        { sequences: { receipt_receipt_id_seq: "many" } },
        { sequences: { entry_number: 2 ** 53 - 1 } },
        { sequences: { "\0": 1 } },
        { sequences: { "\ud800": 1 } },
      ]) {
        await expect(facade.recognizeRestore({ position: tokenOf({ ...seen, ...wrong }) })).rejects.toMatchObject({
          code: "position_invalid",
        });
      }
      for (const position of ["", "fenceline-position.v1.", tokenOf([]), "fenceline-position.v1.e30"]) {
        await expect(facade.recognizeRestore({ position })).rejects.toMatchObject({ code: "position_invalid" });
      }
      expect((await facade.position()).incarnation).toBe(incarnation);
    });
  });

  test("an entry with a number that leaves none for the next is made up, and proves nothing", async () => {
    await withLedger({}, async (facade) => {
      const { mark, incarnation } = await facade.position();
      const entryId = formatEntryId({ mark, indexId: 1, number: Number.MAX_SAFE_INTEGER });
      expect(await facade.recognizeRestore({ entryId })).toEqual({ outcome: "not_restored" });
      expect((await facade.position()).incarnation).toBe(incarnation);
    });
  });

  test("a lost revocation proves one restore, however often it is named before it is asked for again", async () => {
    await withLedger({}, async (facade) => {
      const requestId = randomUUID();
      expect(await facade.recognizeRestore({ requestId })).toMatchObject({ outcome: "restored" });
      expect(await facade.recognizeRestore({ requestId })).toEqual({ outcome: "not_restored" });
    });
  });

  test("a session of a scope that had none in the backup has a generation that no lost session had", async () => {
    await withLedger({}, async (facade) => {
      const [granted, added] = [randomUUID(), randomUUID()];
      await facade.registerSource({ name: granted });
      const everything = { everything: true } as const;
      await facade.grant({ source: granted, reader: "svc:rag", audience: "group:sales", scope: everything });
      await facade.recognizeRestore({ confirmedBy: "ops" });
      await facade.registerSource({ name: added });
      for (const source of [granted, added]) {
        const opened = await facade.openSession({ source, reader: "svc:rag", owner: "worker-1", leaseMs: 1_000 });
        expect(opened).toMatchObject({ outcome: "opened" });
        if (opened.outcome === "opened") expect(opened.session.generation).toBeGreaterThan(2 ** 32);
      }
    });
  });

  test("two processes that open it at once recognise one restore, and both ask again for what was lost", async () => {
    const { mark, incarnation, number } = await withLedger({}, (facade) => facade.position());
    const position = tokenOf({ mark, incarnation, number: number + 100, sequences: {} });
    const [lost, notAskedYet] = [randomUUID(), randomUUID()];
    const first = await withLedger({ witness: witnessOf(position, [lost]) }, async ({ restored }) => restored);
    expect(first).toMatchObject({ incarnation: incarnation + 1, askedAgain: [lost] });
    // The other began before the first had asked for everything.
    await withLedger({ witness: witnessOf(position, [lost, notAskedYet]) }, async (facade) => {
      expect((await facade.position()).incarnation).toBe(incarnation + 1);
      expect(await facade.unknownRevocations([lost, notAskedYet])).toEqual([]);
    });
  });
});
