import { FencelineError, type Freshness, type VisibilityLedger, type VisibleEntry } from "@fenceline/ledger";

/**
 * Who may see which entry, written down by the test. It stands for the ledger where a test is about what the retriever
 * does between store and ledger: how often it asks, in which order, with what.
 */
export class ScriptedVisibility implements VisibilityLedger {
  readonly #entries = new Map<string, { audience: string[]; freshness: Freshness; verifiedAt: Date | undefined }>();
  /** Ids of each query, in order. */
  readonly queries: string[][] = [];
  /** Runs before each answer. */
  onQuery: (asker: readonly string[]) => void | Promise<void> = () => {};

  show(id: string, to: string[], freshness: Freshness = "fresh", verifiedAt: Date | undefined = new Date()): void {
    this.#entries.set(id, { audience: to, freshness, verifiedAt });
  }

  hide(id: string): void {
    this.#entries.delete(id);
  }

  async visibleEntries(request: Parameters<VisibilityLedger["visibleEntries"]>[0]): Promise<VisibleEntry[]> {
    this.queries.push([...request.entryIds]);
    await this.onQuery(request.asker);
    return request.entryIds.flatMap((entryId) => {
      const entry = this.#entries.get(entryId);
      if (!entry?.audience.some((audience) => request.asker.includes(audience))) return [];
      const { freshness, verifiedAt } = entry;
      const uri = `catalog://plans/${entryId}`;
      const ageMs = verifiedAt && Date.now() - verifiedAt.getTime();
      const lineage = { lineageId: `lineage-${entryId}`, source: "catalog", reader: "svc:rag", uri };
      return [{ entryId, ...lineage, freshness, verifiedAt, ageMs }];
    });
  }
}

export const unreachable = () => {
  throw new FencelineError("database_unreachable", "no connection within 15 s");
};
