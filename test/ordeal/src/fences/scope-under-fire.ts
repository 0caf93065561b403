import type { IssuedRead, Ledger, Session, UriScope } from "@fenceline/ledger";
import type { Random } from "../random.js";

/** A read that was sent and may be answered, once or several times, whenever the ordeal likes. */
export interface SentRead extends IssuedRead {
  readonly session: Session;
  answered: boolean;
}

/** A revocation of the ordeal, with what it was asked for: the checker judges its coverage by this. */
export interface AskedRevocation {
  readonly revocationId: number;
  readonly source: string;
  readonly reader: string;
  readonly scope: UriScope;
}

const OUTSTANDING = 150;
/** Share of the reads that are answered late, and of the answers that are late ones. */
const LATE = 0.15;
const REMEMBERED_SESSIONS = 4;

/** One source under one reader, as all the connections know it: they share it, and run into one another over it. */
export class ScopeUnderFire {
  /** Undefined until the first session is opened. */
  session: Session | undefined;
  readonly pastSessions: Session[] = [];
  private outstanding: SentRead[] = [];
  private late: SentRead[] = [];
  readonly pushed = new Map<number, Set<number>>();
  readonly standing: AskedRevocation[] = [];
  readonly #generations = new Map<number, number>();

  constructor(
    readonly source: string,
    readonly reader: string,
    readonly uris: readonly string[],
  ) {}

  /** Another holder from now on; what the one before sent is still out. */
  take(session: Session): void {
    if (this.session) this.pastSessions.unshift(this.session);
    this.pastSessions.splice(REMEMBERED_SESSIONS);
    this.session = session;
  }

  sent(random: Random, session: Session, reads: readonly IssuedRead[]): void {
    for (const read of reads) {
      this.knowGeneration(read.subscriptionId, read.generation);
      // Some answers come much later, when sessions and generations have passed.
      (random.chance(LATE) ? this.late : this.outstanding).push({ ...read, session, answered: false });
    }
    this.outstanding = random.some(this.outstanding, OUTSTANDING);
    this.late = random.some(this.late, OUTSTANDING);
  }

  knowGeneration(subscriptionId: number, generation: number): void {
    this.#generations.set(subscriptionId, Math.max(generation, this.#generations.get(subscriptionId) ?? 0));
  }

  /** Whether the subscription is known to have been opened again since. */
  isOld(read: SentRead): boolean {
    return read.generation < (this.#generations.get(read.subscriptionId) ?? 0);
  }

  /** At most `count` reads to answer now, of different subscriptions. Some stay out, to be answered again. */
  toAnswer(random: Random, count: number): SentRead[] {
    const from = random.chance(LATE) ? this.late : this.outstanding;
    const chosen = new Map(random.some(from, count).map((read) => [read.subscriptionId, read]));
    for (const read of chosen.values()) if (!random.chance(0.25)) from.splice(from.indexOf(read), 1);
    return [...chosen.values()];
  }
}

/** Everything a connection of the ordeal works with. */
export interface Fire {
  readonly ledger: Ledger;
  readonly random: Random;
  /** Another name for each connection, as an owner of sessions. */
  readonly owner: string;
}
