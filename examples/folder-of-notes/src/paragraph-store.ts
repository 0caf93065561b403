import { readFile, writeFile } from "node:fs/promises";
import type { IndexRef, IndexWork, Ledger } from "@fenceline/ledger";

const LEASE_MS = 10_000;

/**
 * A store of the caller's own: a JSON file of texts by entry id. The ledger never sees it; it says what may be written, what
 * may be shown, and what has to go.
 */
export class ParagraphStore {
  readonly #file: string;

  constructor(file: string) {
    this.#file = file;
  }

  async entries(): Promise<Map<string, string>> {
    try {
      return new Map(Object.entries(JSON.parse(await readFile(this.#file, "utf8")) as Record<string, string>));
    } catch {
      return new Map();
    }
  }

  /** Writes every version that waits in the index, a paragraph each: record, write, confirm (L2, L3). */
  async index(ledger: Ledger, index: IndexRef): Promise<string[]> {
    const outcomes: string[] = [];
    for (const work of await ledger.claimIndexWork(index, { limit: 100, leaseMs: LEASE_MS })) {
      const { reused, added } = compare(ledger, work);
      const intents = added.length === 0 ? [] : [{ work, partId: added[0]?.partId ?? 0, chunkDigests: digests(added) }];
      const written = await ledger.recordIntents(index, intents, { writerLeaseMs: LEASE_MS / 2 });
      await this.write(written.flatMap(({ entryIds }) => entryIds.map((id, place) => [id, added[place]?.text ?? ""])));
      const [confirmed] = await ledger.confirmVersions(index, [{ work, written, reused }]);
      outcomes.push(`${work.uri} ${confirmed?.outcome}`);
    }
    return outcomes.sort();
  }

  async write(texts: readonly (readonly string[])[]): Promise<void> {
    const entries = await this.entries();
    for (const [id, text] of texts) if (id !== undefined && text !== undefined) entries.set(id, text);
    await this.#save(entries);
  }

  /** Removes what nothing holds any more, looks that it is gone, and only then says so (P3). */
  async purge(ledger: Ledger, store: string): Promise<number> {
    let removed = 0;
    for (;;) {
      const claims = await ledger.claimPurge({ store, limit: 100, leaseMs: LEASE_MS });
      if (claims.length === 0) return removed;
      const entries = await this.entries();
      const ids = claims.flatMap((claim) => claim.entries.map(({ entryId }) => entryId));
      for (const id of ids) if (entries.delete(id)) removed += 1;
      await this.#save(entries);
      const left = await this.entries();
      if (ids.some((id) => left.has(id))) throw new Error("The store still shows what was deleted.");
      await ledger.confirmPurge(store, claims, { claim: "absent" });
    }
  }

  async #save(entries: ReadonlyMap<string, string>): Promise<void> {
    await writeFile(this.#file, JSON.stringify(Object.fromEntries(entries), null, 2));
  }
}

interface Paragraph {
  readonly partId: number;
  readonly text: string;
  readonly digest: string;
}

/** Paragraphs the index has already are neither embedded nor written again (L3). */
function compare(ledger: Ledger, work: IndexWork): { reused: string[]; added: Paragraph[] } {
  const free = [...work.present];
  const reused: string[] = [];
  const added: Paragraph[] = [];
  for (const { partId, text = "" } of work.parts) {
    for (const paragraph of text.split("\n\n").filter((each) => each.trim() !== "")) {
      const digest = ledger.digestChunk(paragraph);
      const place = free.findIndex((entry) => entry.partId === partId && entry.chunkDigest === digest);
      if (place < 0) added.push({ partId, text: paragraph, digest });
      else reused.push(...free.splice(place, 1).map(({ entryId }) => entryId));
    }
  }
  return { reused, added };
}

function digests(paragraphs: readonly Paragraph[]): string[] {
  return paragraphs.map(({ digest }) => digest);
}
