import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Ledger, Session } from "@fenceline/ledger";

/** Reads take part in the ledger's fence for this long; what comes later may find a newer one accepted. */
const READ_LEASE_MS = 10_000;

/** A source that is no MCP server: every file of a folder is a resource, `notes://team/<file>`. */
export class NotesFolder {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  static uri(file: string): string {
    return `notes://team/${encodeURIComponent(file)}`;
  }

  /** Walks the folder twice and publishes what both walks agree on (S4): a single one is no catalogue (S7). */
  async discover(ledger: Ledger, session: Session): Promise<number> {
    const first = await this.#scan(ledger, session);
    const second = await this.#scan(ledger, session);
    const published = await ledger.publishCatalog(session, { first, second });
    if (published.outcome !== "published") throw new Error(`The folder could not be published: ${published.outcome}.`);
    // A folder announces nothing, so its files are read on a timer and on demand (U3).
    const subscriptions = await ledger.subscriptionsToOpen(session, { limit: 1_000 });
    const polled = subscriptions.map(({ subscriptionId }) => subscriptionId);
    await ledger.activateSubscriptions(session, { shard: 0, pushed: [], polled });
    return published.resources;
  }

  /** Reads these files now, and lets the ledger decide what becomes of each answer (F3). */
  async read(ledger: Ledger, session: Session, files: readonly string[]): Promise<string[]> {
    const uris = files.map((file) => NotesFolder.uri(file));
    const issued = await ledger.issueReads(session, { uris, reason: "demand", leaseMs: READ_LEASE_MS });
    const answers = await Promise.all(
      issued.map(async ({ subscriptionId, ordinal, requestId, uri }) => {
        const text = await readFile(join(this.#directory, decodeURIComponent(uri.split("/").at(-1) ?? "")), "utf8");
        return { subscriptionId, ordinal, requestId, digest: sha256(text), parts: [{ uri, text }] };
      }),
    );
    const accepted = await ledger.acceptResourceVersions(session, answers);
    return accepted.map(({ outcome }) => outcome);
  }

  async #scan(ledger: Ledger, session: Session): Promise<number> {
    const begun = await ledger.beginScan(session);
    if (typeof begun === "string") throw new Error(`The scan could not begin: ${begun}.`);
    const entries = (await readdir(this.#directory)).map((file) => ({
      uri: NotesFolder.uri(file),
      name: file,
      descriptorDigest: sha256(file),
    }));
    await ledger.recordScanPage(session, begun.scanId, { cursorDigest: sha256(""), entries });
    await ledger.finishScan(session, begun.scanId, { complete: true });
    return begun.scanId;
  }
}

function sha256(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
