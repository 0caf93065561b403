import { createHash } from "node:crypto";
import type { IndexWork, LineageLedger } from "@fenceline/ledger";
import { BaseDocumentLoader } from "@langchain/core/document_loaders/base";
import { Document } from "@langchain/core/documents";
import type { EntryMetadata } from "./store-adapter.js";
import { type TextPorts, textsOf, type VersionText } from "./version-texts.js";

const PAGE = 32;

export interface McpResourceLoaderOptions extends TextPorts {
  readonly ledger: LineageLedger;
  readonly source: string;
  /** Whose accepted versions: what this subject was authorized to read. */
  readonly reader: string;
  /** Where the documents go, as shown in `exports`. Default `loader`. */
  readonly destination?: string;
}

/**
 * A LangChain loader of what was accepted from a source: one document per text of the newest version of each resource.
 *
 * What it hands out is out of Fenceline's sight, so each page is recorded as an *export* before it is handed out: a
 * revocation lists it, and is not complete until somebody says that the copies are gone (L6).
 *
 * `Document.id` is a UUID that stays the same over all versions of a resource, so a store that overwrites by id keeps
 * one. What the guard found is kept with the version before its documents are handed out (spec §5), also where it left a part
 * out. Metadata: `source`, `uri`, `resourceUri`, `lineageId`, `mimeType`, `title`, `guardFindings`, all flat.
 */
export class McpResourceLoader extends BaseDocumentLoader {
  readonly #options: McpResourceLoaderOptions;

  constructor(options: McpResourceLoaderOptions) {
    super();
    this.#options = options;
  }

  /**
   * All documents at once.
   *
   * @throws {FencelineError} those of the ledger
   */
  override async load(): Promise<Document<EntryMetadata>[]> {
    const documents: Document<EntryMetadata>[] = [];
    for await (const document of this.lazyLoad()) documents.push(document);
    return documents;
  }

  /** The same, a page at a time: for sources that do not fit in memory. */
  async *lazyLoad(): AsyncGenerator<Document<EntryMetadata>> {
    const { ledger, source, reader, destination = "loader" } = this.#options;
    let afterId: number | undefined;
    while (true) {
      const page = await ledger.exportVersions({
        source,
        reader,
        destination,
        limit: PAGE,
        ...(afterId !== undefined && { afterId }),
      });
      for (const work of page) {
        const { texts, findings } = await textsOf(work, this.#options);
        if (findings.length > 0) await ledger.recordFindings([{ work, findings }]);
        for (const text of texts) yield this.#document(work, text);
      }
      afterId = page.at(-1)?.subscriptionId;
      if (afterId === undefined) return;
    }
  }

  #document(work: IndexWork, { uri, mimeType, text, findings }: VersionText): Document<EntryMetadata> {
    const type = mimeType ?? work.mimeType;
    const title = work.title ?? work.name;
    return new Document({
      id: stableId([work.source, work.reader, work.uri, uri]),
      pageContent: text,
      metadata: {
        source: work.source,
        uri,
        resourceUri: work.uri,
        lineageId: work.lineageId,
        ...(type !== undefined && { mimeType: type }),
        ...(title !== undefined && { title }),
        ...(findings.length > 0 && { guardFindings: findings.join(" ") }),
      },
    });
  }
}

/** A UUID of version 8 (RFC 9562: contents of our own choice) made from the names. */
function stableId(names: readonly string[]): string {
  const bytes = createHash("sha256").update(JSON.stringify(names)).digest().subarray(0, 16);
  bytes[6] = ((bytes[6] as number) & 0x0f) | 0x80;
  bytes[8] = ((bytes[8] as number) & 0x3f) | 0x80;
  const hex = bytes.toString("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
