/** The part of an open ledger that keeps its witness up to date, and begins anew where the witness proves a restore. */
import type { Queryable } from "./database/database.js";
import { FencelineError } from "./errors.js";
import { incarnationSeen, type RestoreLedger } from "./restore.js";
import type { RevocationLedger, RevocationRole } from "./revocations.js";
import { parseUriScope } from "./scope-text.js";
import type { SessionLedger } from "./sessions.js";
import type { Witness, WitnessedRevocation } from "./witness.js";

/** What opening a restored ledger found and did. */
export interface RestoreReport {
  readonly incarnation: number;
  /** What was accepted before, and is served as unverified until it is read again. */
  readonly unverified: number;
  readonly readsLost: number;
  /** Revocations given after the backup, which were asked for again and stand; also those that had been lifted since. */
  readonly askedAgain: readonly string[];
  /** Revocations that could not be asked for again, with the error of each: look at them. */
  readonly notAsked: readonly { readonly requestId: string; readonly error: FencelineError }[];
}

export interface WitnessOptions {
  /** Milliseconds between two positions while the ledger is open. Default 10 s. */
  readonly intervalMs?: number;
  /** Called when a position could not be kept, which is tried again after the interval. */
  readonly onFailure?: (error: unknown) => void;
}

const DEFAULT_INTERVAL_MS = 10_000;
/** Revocations commit in another order than their ids; further apart than this none does. */
const OUT_OF_ORDER = 1_000;

type Areas = RestoreLedger & Pick<RevocationLedger, "revoke"> & Pick<SessionLedger, "registerSource">;

/** Tells a witness what it has to know of one open ledger. */
export class WitnessKeeper {
  readonly #database: Queryable;
  readonly #areas: Areas;
  readonly #witness: Witness;
  readonly #onFailure: (error: unknown) => void;
  readonly #recorded = new Set<string>();
  #newestId = 0;
  #timer: NodeJS.Timeout | undefined;
  #closing: Promise<void> | undefined;
  /** Steps run one after the other. */
  #tail: Promise<unknown> = Promise.resolve();

  private constructor(database: Queryable, areas: Areas, witness: Witness, options: WitnessOptions) {
    this.#database = database;
    this.#areas = areas;
    this.#witness = witness;
    this.#onFailure = options.onFailure ?? (() => {});
  }

  /**
   * Compares the ledger with what its witness saw; where it is behind, begins a new incarnation and asks again for every
   * revocation that it does not know. Then keeps the witness up to date until `close`.
   *
   * @throws {FencelineError} `witness_failed`, `witness_of_another_ledger`
   */
  static async start(
    database: Queryable,
    areas: Areas,
    witness: Witness,
    options: WitnessOptions = {},
  ): Promise<{ keeper: WitnessKeeper; restored: RestoreReport | undefined }> {
    const keeper = new WitnessKeeper(database, areas, witness, options);
    const restored = await keeper.#recognize();
    await keeper.#advance();
    keeper.#advanceAfter(options.intervalMs ?? DEFAULT_INTERVAL_MS);
    return { keeper, restored };
  }

  /** To be awaited before a revocation is answered: the witness has it then. */
  async recordRevocations(): Promise<void> {
    await this.#inTurn(() => this.#recordNew());
  }

  /** Idempotent; never rejects. */
  close(): Promise<void> {
    clearTimeout(this.#timer);
    this.#closing ??= this.#inTurn(() => this.#advance()).catch(this.#onFailure);
    return this.#closing;
  }

  /** Counts from the end of the last: on a slow disk they must not pile up. */
  #advanceAfter(intervalMs: number): void {
    this.#timer = setTimeout(async () => {
      await this.#inTurn(() => this.#advance()).catch(this.#onFailure);
      if (this.#closing === undefined) this.#advanceAfter(intervalMs);
    }, intervalMs).unref();
  }

  async #recognize(): Promise<RestoreReport | undefined> {
    const { position, revocations } = await this.#witness.read();
    for (const { requestId } of revocations) this.#recorded.add(requestId);
    const requestIds = revocations.map(({ requestId }) => requestId);
    const unknown = new Set(await this.#areas.unknownRevocations(requestIds));
    let found = position === undefined ? undefined : await this.#areas.recognizeRestore({ position });
    const [lost] = unknown;
    if (found?.outcome !== "restored" && lost !== undefined && !(await this.#hasBegunSince(position))) {
      found = await this.#areas.recognizeRestore({ requestId: lost });
    }
    const answers = await this.#askAgain(revocations.filter(({ requestId }) => unknown.has(requestId)));
    // Whoever opened it at the same time may have begun the incarnation.
    if (found?.outcome !== "restored") return undefined;
    const { incarnation, subscriptions: unverified, readsLost } = found;
    return { incarnation, unverified, readsLost, ...answers };
  }

  /** Whether another process, which opened it at the same time, recognised the restore and has not asked for everything yet. */
  async #hasBegunSince(position: string | undefined): Promise<boolean> {
    const [newest] = await this.#areas.recognizedRestores();
    return position !== undefined && newest !== undefined && newest.incarnation > incarnationSeen(position);
  }

  async #askAgain(revocations: readonly WitnessedRevocation[]) {
    const askedAgain: string[] = [];
    const notAsked: { requestId: string; error: FencelineError }[] = [];
    for (const revocation of revocations) {
      try {
        if (revocation.source !== undefined) await this.#areas.registerSource({ name: revocation.source });
        await this.#areas.revoke(revocation);
        askedAgain.push(revocation.requestId);
      } catch (error) {
        if (!(error instanceof FencelineError) || error.code !== "request_id_reused") throw error;
        notAsked.push({ requestId: revocation.requestId, error });
      }
    }
    return { askedAgain, notAsked };
  }

  async #advance(): Promise<void> {
    await this.#recordNew();
    const { token, number } = await this.#areas.position();
    await this.#witness.advance(token, number);
  }

  /** Also those that another process, or a caller of the SQL function, asked for. */
  async #recordNew(): Promise<void> {
    const rows = await this.#database.query<RevocationRow>(
      `select v.revocation_id, v.request_id, src.name as source, subj.name as subject, v.role::text as role, v.scope_text,
              v.reason, v.requested_by
       from fenceline.revocation v
       join fenceline.subject subj using (subject_id) left join fenceline.source src on src.source_id = v.source_id
       where v.revocation_id > $1 and v.state <> 'LIFTED' order by v.revocation_id`,
      [this.#newestId - OUT_OF_ORDER],
    );
    const fresh = rows.filter(({ request_id }) => !this.#recorded.has(request_id));
    await this.#witness.record(fresh.map(revocationOf));
    for (const { request_id } of fresh) this.#recorded.add(request_id);
    this.#newestId = rows.at(-1)?.revocation_id ?? this.#newestId;
  }

  #inTurn<T>(step: () => Promise<T>): Promise<T> {
    const run = this.#tail.then(step, step);
    this.#tail = run.catch(() => {});
    return run;
  }
}

interface RevocationRow {
  readonly revocation_id: number;
  readonly request_id: string;
  readonly source: string | null;
  readonly subject: string;
  readonly role: RevocationRole;
  readonly scope_text: string;
  readonly reason: string;
  readonly requested_by: string;
}

function revocationOf(row: RevocationRow): WitnessedRevocation {
  return {
    requestId: row.request_id,
    ...(row.source !== null && { source: row.source }),
    subject: row.subject,
    role: row.role,
    scope: parseUriScope(row.scope_text),
    reason: row.reason,
    requestedBy: row.requested_by,
  };
}
