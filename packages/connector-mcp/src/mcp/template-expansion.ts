import { UriTemplate } from "@modelcontextprotocol/client";
import { storableText } from "../storable-text.js";
import { digestFields } from "./canonical-digest.js";
import type { TemplateValues } from "./resource-choice.js";
import type { ListedEntry, ScanEnd } from "./resource-scan.js";
import { snapshotIdIn } from "./snapshot-id.js";
import type { SourceConnection } from "./source-connection.js";

/** Entries handed out at once. */
const PAGE = 1_000;

export interface ExpansionOptions {
  /** Listed templates, each with what its variables stand for. */
  readonly templates: readonly {
    readonly listed: ListedEntry;
    readonly values: Readonly<Record<string, TemplateValues>>;
  }[];
  /** Completions asked for, at most. */
  readonly maxRequests: number;
  readonly signal?: AbortSignal;
}

export interface ExpandedPage {
  readonly entries: ListedEntry[];
  /** Ids that the completions bound which led to them, in order; `undefined` for one that bound none (S3). */
  readonly snapshotIds: (string | undefined)[];
  /** Variables whose completions the server cut short, by their template. */
  readonly truncated: { readonly template: string; readonly variable: string }[];
}

/**
 * The resources that templates stand for: every combination of their variables' values. A completion that fails leaves the whole
 * listing unknown: what it would have named is not gone (S8). Like `scanPages` it *returns* how it ended and never throws.
 */
export async function* expandTemplates(
  connection: SourceConnection,
  options: ExpansionOptions,
): AsyncGenerator<ExpandedPage, ScanEnd, void> {
  let page = emptyPage();
  const completions = new Completions(connection, options, (result) => {
    page.snapshotIds.push(result.snapshotId);
    if (result.truncated) page.truncated.push(result.truncated);
  });
  try {
    for (const { listed, values } of options.templates) {
      const template = new UriTemplate(listed.uri);
      for await (const chosen of combinations(listed.uri, template.variableNames, values, completions)) {
        page.entries.push(expanded(listed, template.expand(chosen)));
        if (page.entries.length < PAGE) continue;
        yield page;
        page = emptyPage();
      }
    }
  } catch (error) {
    if (error instanceof ExpansionStopped) return error.end;
    throw error;
  }
  yield page;
  return { verdict: "COMPLETE" };
}

function emptyPage(): ExpandedPage {
  return { entries: [], snapshotIds: [], truncated: [] };
}

function expanded(listed: ListedEntry, uri: string): ListedEntry {
  const { mimeType } = listed;
  const descriptorDigest = digestFields("expanded", [uri, listed.uri, listed.descriptorDigest]);
  return { uri, name: uri, ...(mimeType !== undefined && { mimeType }), descriptorDigest, uriTemplate: listed.uri };
}

async function* combinations(
  template: string,
  [variable, ...others]: readonly string[],
  values: ExpansionOptions["templates"][number]["values"],
  completions: Completions,
  chosen: Readonly<Record<string, string>> = {},
): AsyncGenerator<Record<string, string>, void, void> {
  if (variable === undefined) {
    yield { ...chosen };
    return;
  }
  const given = values[variable] ?? [];
  for (const value of given === "completions" ? await completions.of(template, variable, chosen) : given) {
    yield* combinations(template, others, values, completions, { ...chosen, [variable]: value });
  }
}

/** How the expansion ended early. Never leaves this file. */
class ExpansionStopped extends Error {
  constructor(readonly end: ScanEnd) {
    super(end.verdict);
  }
}

interface CompletionResult {
  readonly snapshotId: string | undefined;
  readonly truncated: ExpandedPage["truncated"][number] | undefined;
}

class Completions {
  #requests = 0;

  constructor(
    private readonly connection: SourceConnection,
    private readonly options: ExpansionOptions,
    private readonly onResult: (result: CompletionResult) => void,
  ) {}

  async of(template: string, variable: string, chosen: Readonly<Record<string, string>>): Promise<string[]> {
    const { maxRequests, signal } = this.options;
    this.#requests += 1;
    if (this.#requests > maxRequests) {
      const message = `templates ask for more than ${maxRequests} completions`;
      throw new ExpansionStopped({ verdict: "INCOMPLETE", reason: "page_budget", message });
    }
    const { client, http, requestTimeoutMs } = this.connection.wire;
    await http?.patience.wait(signal);
    try {
      const { completion, _meta } = await client.complete(
        {
          ref: { type: "ref/resource", uri: template },
          argument: { name: variable, value: "" },
          ...(Object.keys(chosen).length > 0 && { context: { arguments: { ...chosen } } }),
        },
        { timeout: requestTimeoutMs, ...(signal && { signal }) },
      );
      const { values, hasMore = false, total = values.length } = completion;
      const isCut = hasMore || total > values.length;
      this.onResult({ snapshotId: snapshotIdIn(_meta), truncated: isCut ? { template, variable } : undefined });
      return values.map(storableText);
    } catch (error) {
      throw new ExpansionStopped(this.#failed(`completing ${variable} of ${template}`, error));
    }
  }

  #failed(what: string, error: unknown): ScanEnd {
    const { wire } = this.connection;
    const kind = wire.failure(error, this.options.signal);
    const reason = kind === "not_found" ? "failed" : kind;
    return { verdict: "UNKNOWN", reason, message: `${what}: ${wire.explain(error)}`, cause: error };
  }
}
