import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import type { IssuedRead } from "#src/reads.js";
import type { PurgeClaim } from "#src/revocations.js";
import type { Session } from "#src/sessions.js";
import { createIndex, type IndexUnderTest, type PlannedVersion, type WholeLedger } from "../whole-ledger.js";
import type { ModelPlan } from "./ledger-model.js";

export const SOURCE = "catalog";
export const READERS = ["svc:one", "svc:two"] as const;
export const DIRECTORY = "catalog://b/dir";
export const URIS = ["catalog://a/1", "catalog://a/2", "catalog://b/1", DIRECTORY] as const;

/** The ledger under test with what its clients hold in their hands: sessions, unanswered reads, plans, claims. */
export class RealLedger {
  readonly sessions = new Map<string, Session>();
  readonly pastSessions = new Map<string, Session>();
  reads: (IssuedRead & { reader: string; session: Session })[] = [];
  plans: { real: PlannedVersion; model: ModelPlan }[] = [];
  claims: PurgeClaim[][] = [];
  /** Ids of revocations by their number in the model. */
  readonly revocations: number[] = [];
  readonly ids = new Map<string, number>();

  private constructor(
    readonly ledger: WholeLedger,
    readonly index: IndexUnderTest,
    /** Commands run so far, over all runs. */
    readonly count: { commands: number },
  ) {}

  /** The same ledger with empty tables, and its clock at its beginning. */
  static async empty(ledger: WholeLedger, count: { commands: number }): Promise<RealLedger> {
    const tables = await ledger.sql<{ name: string }>(
      "select tablename as name from pg_tables where schemaname = $1 and tablename <> all ($2)",
      [ledger.schema, ["identity", "migration", "function_set", "test_clock"]],
    );
    const deletions = tables.map(({ name }) => `delete from fenceline.${name};`).join(" ");
    await ledger.sql(`do $$ begin ${deletions} update fenceline.test_clock set at = '2026-01-01T00:00:00Z'; end $$`);
    await ledger.registerSource({ name: SOURCE });
    return new RealLedger(ledger, await createIndex(ledger, "main"), count);
  }

  /** Today's session of a reader, or the one before it. */
  session(reader: string, past = false): Session {
    const session = (past ? this.pastSessions.get(reader) : undefined) ?? this.sessions.get(reader);
    return session ?? expect.fail(`${reader} has no session`);
  }

  take(session: Session): void {
    const before = this.sessions.get(session.reader);
    if (before) this.pastSessions.set(session.reader, before);
    this.sessions.set(session.reader, session);
  }

  async learnIds(): Promise<void> {
    const rows = await this.ledger.sql<{ key: string; id: number }>(
      `select concat(u.name, ' ', s.uri) as key, s.subscription_id as id from fenceline.subscription s
       join fenceline.policy_scope p using (scope_id) join fenceline.subject u using (subject_id)`,
    );
    for (const { key, id } of rows) this.ids.set(key, id);
  }

  idsOf(reader: string, uris: readonly string[]): number[] {
    return uris.flatMap((uri) => this.ids.get(`${reader} ${uri}`) ?? []);
  }

  /** A request id that was never sent. */
  static unknownRequest(): string {
    return randomUUID();
  }
}
