import { randomBytes } from "node:crypto";
import type { AcceptedRead, IssuedRead, Ledger, ReadAnswer, Session } from "@fenceline/ledger";
import { assert } from "@fenceline/ledger";
import { READ_LEASE_MS } from "./ledger-bench.js";

const BATCH = 500;

/** A stock of issued reads, one per resource, from which a round takes what it accepts. */
export class IssuedReads {
  readonly #ledger: Ledger;
  readonly #session: Session;
  #wanted: string[];
  #stock: IssuedRead[] = [];

  constructor(ledger: Ledger, session: Session, uris: readonly string[]) {
    this.#ledger = ledger;
    this.#session = session;
    this.#wanted = [...uris];
  }

  /** Issues a read for each resource that has none in flight, so many at a time. */
  async stockUp(batch = BATCH): Promise<void> {
    const wanted = this.#wanted;
    this.#wanted = [];
    for (let start = 0; start < wanted.length; start += batch) {
      const uris = wanted.slice(start, start + batch);
      const request = { uris, reason: "demand" as const, leaseMs: READ_LEASE_MS };
      const reads = await this.#ledger.issueReads(this.#session, request);
      assert(reads.length === uris.length, "Every resource of the stock may be read.");
      this.#stock.push(...reads);
    }
  }

  /** At most `count` answers with new content; fewer, down to none, at the end of the stock. */
  take(count: number): ReadAnswer[] {
    const taken = this.#stock.splice(Math.max(0, this.#stock.length - count));
    this.#wanted.push(...taken.map(({ uri }) => uri));
    return taken.map(({ subscriptionId, ordinal, requestId, uri }) => ({
      subscriptionId,
      ordinal,
      requestId,
      digest: randomBytes(32),
      mimeType: "text/plain",
      parts: [{ uri, text: "price=100" }],
    }));
  }
}

/** A figure counts only if every answer was accepted. */
export function assertAccepted(accepted: readonly AcceptedRead[], count: number): number {
  assert(accepted.length === count, "Every answer has an outcome.");
  for (const { outcome } of accepted) assert(outcome === "accepted", `A read was ${outcome}.`);
  return count;
}
