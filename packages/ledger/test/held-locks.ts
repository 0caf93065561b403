import { expect } from "vitest";
import { type Database, openDatabase } from "#src/database/database.js";
import { type Areas, areasOn } from "./overlapping.js";
import type { WholeLedger } from "./whole-ledger.js";

/**
 * What operations hold while they wait, found out one row after the other: a row that an operation locks is taken from it
 * beforehand, and when it waits for that row, everything else it has locked by then is looked up. Two operations of which each
 * holds what the other waits for are a circle, whatever the odds that they meet.
 */

/** By row (its table and place) or advisory lock; whether others may share it. */
type Held = ReadonlyMap<string, "alone" | "shared">;

export interface Wait {
  readonly operation: string;
  readonly row: string;
  readonly held: Held;
}

/** In what order the planner lets rows come: that of an index, or the one in which they lie. */
export type Order = "index" | "place";

export type LockingOperation = (areas: Areas) => Promise<unknown>;

/** At most, that are taken away from operations. */
const ROWS_OF_A_TABLE = 12;

class Undone extends Error {}

/** Locks whatever it can until it has answered. */
const LOCKABLE_ROWS = `
  create function fenceline.lockable_rows(p_mode text) returns setof text language plpgsql volatile as $$
  declare
    v_table text;
  begin
    for v_table in
      select c.relname from pg_class c
      where c.relkind = 'r' and c.relnamespace = (select i.relnamespace from pg_class i where i.oid = 'fenceline.identity'::regclass)
    loop
      return query execute format('select %L || ctid from fenceline.%I for %s skip locked', v_table || ' ', v_table, p_mode);
    end loop;
  end $$`;

export class LockProbe {
  readonly #schema: string;
  /** The three parts: who takes the row away, who runs the operation, and who looks. */
  readonly #holder: Database;
  readonly #runner: Database;
  readonly #observer: Database;
  readonly #names = new Map<string, string>();
  readonly #sampled = new Set<string>();

  private constructor(schema: string, databases: readonly [Database, Database, Database]) {
    this.#schema = schema;
    [this.#holder, this.#runner, this.#observer] = databases;
  }

  /** Of the rows that are there now. */
  static async open(ledger: WholeLedger): Promise<LockProbe> {
    const tables = await ledger.sql<{ name: string }>(
      "select tablename as name from pg_tables where schemaname = $1 and tablename <> all ($2)",
      [ledger.schema, ["migration", "function_set", "test_clock"]],
    );
    const { address } = ledger.database;
    const probe = new LockProbe(ledger.schema, [
      await openDatabase(address),
      await openDatabase(address),
      await openDatabase(address),
    ]);
    await ledger.sql(LOCKABLE_ROWS);
    for (const { name } of tables) {
      const rows = await ledger.sql<{ place: string; row: object }>(
        `select ctid::text as place, row_to_json(t) as row from fenceline.${name} t`,
      );
      for (const [number, { place, row }] of rows.entries()) {
        if (number % Math.ceil(rows.length / ROWS_OF_A_TABLE) === 0) probe.#sampled.add(`${name} ${place}`);
        const [first, second] = Object.entries(row).map(([column, value]) => `${column} ${value}`);
        probe.#names.set(`${name} ${place}`, `${name} (${first}, ${second})`);
      }
    }
    return probe;
  }

  async close(): Promise<void> {
    for (const database of [this.#holder, this.#runner, this.#observer]) await database.close();
  }

  /** The row as its first columns name it. */
  nameOf(row: string): string {
    return this.#names.get(row) ?? row;
  }

  /** Every wait of an operation for a row that it locks; nothing it does is kept. */
  async waitsOf(operation: string, run: LockingOperation, order: Order): Promise<Wait[]> {
    let locked: Held = new Map();
    await this.#undone(async (areas) => {
      await run(areas);
      locked = await this.#heldRows();
    }, order);
    const waits: Wait[] = [];
    for (const row of this.#sample(locked)) {
      const held = await this.#heldWhileWaitingFor(row, run, order);
      if (held !== undefined) waits.push({ operation, row, held });
    }
    return waits;
  }

  /** Of each table the same rows for every operation, so that two that meet in one are seen to. */
  #sample(locked: Held): string[] {
    return [...locked.keys()].filter((row) => this.#sampled.has(row));
  }

  /** `undefined`: it did not wait, as it passes over what is locked. */
  async #heldWhileWaitingFor(row: string, run: LockingOperation, order: Order): Promise<Held | undefined> {
    let held: Map<string, "alone" | "shared"> | undefined;
    await this.#holder.transaction(async (transaction) => {
      const [table, place] = row.split(" ");
      await transaction.query(`select 1 from ${this.#schema}.${table} where ctid = $1::text::tid for update`, [place]);
      let pid = 0;
      let ended = false;
      const running = this.#undone(async (areas, own) => {
        pid = own;
        await run(areas);
      }, order)
        .catch(() => {})
        .finally(() => {
          ended = true;
        });
      await expect
        .poll(async () => ended || (pid > 0 && (await this.#waits(pid))), { timeout: 10_000, interval: 1 })
        .toBe(true);
      if (!ended) {
        held = new Map([...(await this.#heldRows()), ...(await this.#heldFences(pid))]);
        held.delete(row);
        await this.#observer.query("select pg_cancel_backend($1)", [pid]);
      }
      await running;
    });
    return held;
  }

  async #waits(pid: number): Promise<boolean> {
    const [row] = await this.#observer.query<{ waits: boolean }>(
      "select wait_event_type is not distinct from 'Lock' as waits from pg_stat_activity where pid = $1",
      [pid],
    );
    return row?.waits === true;
  }

  async #undone(step: (areas: Areas, pid: number) => Promise<unknown>, order: Order): Promise<void> {
    try {
      await this.#runner.transaction(async (transaction) => {
        const areas = await areasOn(transaction, this.#schema);
        await areas.sql("discard plans");
        const avoided = order === "index" ? ["seqscan", "bitmapscan"] : ["indexscan", "indexonlyscan"];
        for (const scan of avoided) await areas.sql(`set local enable_${scan} = off`);
        const [row] = await areas.sql<{ pid: number }>("select pg_backend_pid() as pid");
        await step(areas, row?.pid as number);
        throw new Undone();
      });
    } catch (error) {
      if (!(error instanceof Undone)) throw error;
    }
  }

  async #heldRows(): Promise<Map<string, "alone" | "shared">> {
    const held = new Map<string, "alone" | "shared">();
    for (const row of await this.#lockedFor("update")) held.set(row, "shared");
    for (const row of await this.#lockedFor("share")) held.set(row, "alone");
    return held;
  }

  /** The rows that cannot be locked so. */
  async #lockedFor(mode: "update" | "share"): Promise<string[]> {
    const rows = await this.#observer.query<{ row: string }>(`select row from ${this.#schema}.lockable_rows($1) row`, [
      mode,
    ]);
    const free = new Set(rows.map(({ row }) => row));
    return [...this.#names.keys()].filter((row) => !free.has(row));
  }

  async #heldFences(pid: number): Promise<Map<string, "alone" | "shared">> {
    const locks = await this.#observer.query<{ fence: string; shared: boolean }>(
      `select classid || ' ' || objid as fence, mode = 'ShareLock' as shared from pg_locks
       where pid = $1 and locktype = 'advisory' and granted`,
      [pid],
    );
    return new Map(locks.map(({ fence, shared }) => [fence, shared ? "shared" : "alone"]));
  }
}

/** Pairs of which each holds what the other waits for, and that nothing else both need keeps apart. */
export function circlesAmong(waits: readonly Wait[], nameOf: (row: string) => string): string[] {
  const circles = new Set<string>();
  for (const [place, one] of waits.entries()) {
    for (const other of waits.slice(place + 1)) {
      if (!one.held.has(other.row) || !other.held.has(one.row)) continue;
      const keptApart = [...one.held].some(
        ([lock, mode]) =>
          lock !== other.row &&
          lock !== one.row &&
          other.held.has(lock) &&
          (mode === "alone" || other.held.get(lock) === "alone"),
      );
      if (keptApart) continue;
      const ways = [
        `${one.operation} holds ${nameOf(other.row)} and waits for ${nameOf(one.row)}`,
        `${other.operation} the other way round`,
      ];
      const swapped = [
        `${other.operation} holds ${nameOf(one.row)} and waits for ${nameOf(other.row)}`,
        `${one.operation} the other way round`,
      ];
      circles.add((one.operation <= other.operation ? ways : swapped).join("; "));
    }
  }
  return [...circles].sort();
}
