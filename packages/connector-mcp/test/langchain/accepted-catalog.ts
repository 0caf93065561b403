/** Ledgers, and a source in them whose accepted versions a test decides. */
import { createHash } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  type AcceptOutcome,
  type Database,
  type Ledger,
  openDatabase,
  openLedger,
  type ReadPart,
  type Session,
} from "@fenceline/ledger";
import { copyDatabase } from "@fenceline/test-services";
import { afterAll, beforeAll, beforeEach } from "vitest";

/** An embedded database that holds any number of ledgers, each in a schema of its own. */
class LedgerHouse {
  readonly #directory: string;
  readonly #holder: Database;
  #ledgers = 0;

  private constructor(directory: string, holder: Database) {
    this.#directory = directory;
    this.#holder = holder;
  }

  static async open(): Promise<LedgerHouse> {
    const directory = await mkdtemp(join(tmpdir(), "fenceline-langchain-"));
    await copyDatabase("database", openDatabase, directory);
    return new LedgerHouse(directory, await openDatabase(`file:${directory}`));
  }

  /** A fresh ledger. */
  async ledger(): Promise<Ledger> {
    this.#ledgers += 1;
    return openLedger(`file:${this.#directory}`, { schema: `ledger_${this.#ledgers}` });
  }

  async close(): Promise<void> {
    await this.#holder.close();
    await rm(this.#directory, { recursive: true, force: true });
  }
}

/**
 * Gives each test of the file a fresh ledger, closed after it; for all of them one house.
 *
 * @param begin what else each test begins with
 */
export function withFreshLedger(begin: (ledger: Ledger) => unknown): void {
  let house: LedgerHouse;
  beforeAll(async () => {
    house = await LedgerHouse.open();
  });
  afterAll(() => house?.close());
  beforeEach(async () => {
    const ledger = await house.ledger();
    await begin(ledger);
    return () => ledger.close();
  });
}

/** What scans and reads of one reader would have brought, decided by the test. */
export class AcceptedCatalog {
  readonly #ledger: Ledger;
  readonly #session: Session;
  readonly source: string;
  readonly reader: string;

  private constructor(ledger: Ledger, session: Session) {
    this.#ledger = ledger;
    this.#session = session;
    this.source = session.source;
    this.reader = session.reader;
  }

  /** A source of its own, held by a session, listing these URIs. */
  static async open(
    ledger: Ledger,
    uris: readonly string[],
    { source = "catalog", reader = "svc:rag" } = {},
  ): Promise<AcceptedCatalog> {
    await ledger.registerSource({ name: source });
    const opened = await ledger.openSession({ source, reader, owner: "test", leaseMs: 600_000 });
    if (opened.outcome !== "opened") throw new RangeError(`the session of ${source} is held by ${opened.owner}`);
    const catalog = new AcceptedCatalog(ledger, opened.session);
    await catalog.#list(uris);
    return catalog;
  }

  async #list(uris: readonly string[]): Promise<void> {
    const [first, second] = [await this.#scan(uris), await this.#scan(uris)];
    const published = await this.#ledger.publishCatalog(this.#session, { first, second });
    if (published.outcome !== "published") throw new RangeError(`the catalogue is ${published.outcome}`);
    const toOpen = await this.#ledger.subscriptionsToOpen(this.#session, { limit: 1_000 });
    await this.#ledger.activateSubscriptions(this.#session, {
      shard: 0,
      pushed: [],
      polled: toOpen.map(({ subscriptionId }) => subscriptionId),
    });
  }

  async #scan(uris: readonly string[]): Promise<number> {
    const scan = await this.#ledger.beginScan(this.#session);
    if (typeof scan === "string") throw new RangeError(scan);
    const entries = uris.map((uri) => ({ uri, mimeType: "text/plain", descriptorDigest: sha256(uri) }));
    await this.#ledger.recordScanPage(this.#session, scan.scanId, { cursorDigest: sha256(""), entries });
    await this.#ledger.finishScan(this.#session, scan.scanId, { complete: true });
    return scan.scanId;
  }

  /** Has a new content of the resource read and accepted. */
  async accept(uri: string, content: string | readonly ReadPart[]): Promise<AcceptOutcome> {
    const parts = typeof content === "string" ? [{ uri, mimeType: "text/plain", text: content }] : content;
    const [read] = await this.#ledger.issueReads(this.#session, { uris: [uri], reason: "demand", leaseMs: 60_000 });
    if (read === undefined) throw new RangeError(`no read was issued for ${uri}`);
    const [accepted] = await this.#ledger.acceptResourceVersions(this.#session, [
      {
        subscriptionId: read.subscriptionId,
        ordinal: read.ordinal,
        requestId: read.requestId,
        digest: sha256(JSON.stringify(parts)),
        mimeType: "text/plain",
        parts,
      },
    ]);
    if (accepted === undefined) throw new RangeError(`no answer about ${uri}`);
    return accepted.outcome;
  }

  /** Announces a change, without a new content. */
  async notify(uri: string): Promise<void> {
    await this.#ledger.recordNotifications(this.#session, [uri]);
  }

  /** Lets somebody see everything that this reader read. */
  async grant(audience: string): Promise<void> {
    const { source, reader } = this;
    await this.#ledger.grant({ source, reader, audience, scope: { everything: true } });
  }
}

function sha256(text: string): Uint8Array {
  return createHash("sha256").update(text).digest();
}
