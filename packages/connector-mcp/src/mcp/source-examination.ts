import { defaultScanBudgets, FencelineError } from "@fenceline/ledger";
import { storableText } from "../storable-text.js";
import { adviceFor } from "./examination-advice.js";
import { type ReadContent, type ReadOutcome, readResource } from "./fenced-read.js";
import type { ResourceChoice } from "./resource-choice.js";
import { type ScanEnd, type ScanPage, scanPages } from "./resource-scan.js";
import { openResourceStream, type ResourceStream } from "./resource-stream.js";
import { connectSource, type SourceCapabilities, type SourceConnection } from "./source-connection.js";
import { describeEndpoint, redactor, type SourceEndpoint } from "./source-endpoint.js";

/** Resources of the first page that are asked to be pushed, at most. */
const MAX_SUBSCRIBED = 1_000;
/** Reads tried until one brings content. */
const MAX_READS = 3;
/** Malformed entries of the page that are named, at most. */
const MAX_FAULTS = 10;
/** Of what a server wrote to standard error, in characters. */
const MAX_SAID = 4_000;

/** Something that will not work, or not as well as it could. A fault keeps content away; a remark does not. */
export interface ExaminationProblem {
  readonly severity: "fault" | "remark";
  readonly code: string;
  readonly message: string;
  readonly advice: string;
}

/** What {@link examineSource} found; what could not be tried is `undefined`. */
export interface SourceExamination {
  /** As it may be shown: without arguments, credentials or a query. */
  readonly endpoint: string;
  readonly connection:
    | {
        readonly ms: number;
        readonly era: SourceConnection["era"];
        readonly protocolVersion: string;
        readonly server: { readonly name: string; readonly version: string } | undefined;
        readonly capabilities: SourceCapabilities;
        /** Names of the protocol extensions that the server declares. */
        readonly extensions: readonly string[];
      }
    | undefined;
  /** Of the first page of the list; `chosen` are those that the configuration takes. */
  readonly list:
    | { readonly ms: number; readonly entries: number; readonly chosen: number; readonly more: boolean }
    | undefined;
  /** Of the first page of their list: what `resources.templates` may name. */
  readonly templates: readonly string[];
  /** What came of asking for the resources of that page to be pushed. */
  readonly delivery:
    | {
        readonly ms: number;
        readonly pushed: number;
        readonly polled: number;
        /** Why any of them is polled. */
        readonly polledBecause: string | undefined;
        readonly listChanges: "pushed" | "polled";
      }
    | undefined;
  /** The last read that was tried. */
  readonly read:
    | {
        readonly ms: number;
        readonly uri: string;
        readonly outcome: ReadOutcome["outcome"];
        readonly bytes: number | undefined;
        readonly mimeType: string | undefined;
      }
    | undefined;
  readonly problems: readonly ExaminationProblem[];
}

export interface ExaminationOptions {
  readonly maxBodyBytes: number;
  /** What of the source is taken: nothing else is subscribed or read. Default: everything. */
  readonly choice?: ResourceChoice;
  readonly signal?: AbortSignal;
}

/**
 * Tries a source out as a worker would use it: connects, lists one page, asks for its resources to be pushed, reads one,
 * and ends the connection. Nothing is recorded anywhere. Never throws for what the source does.
 */
export async function examineSource(endpoint: SourceEndpoint, options: ExaminationOptions): Promise<SourceExamination> {
  return new Examination(endpoint, options).run();
}

type Findings = { -readonly [Part in keyof SourceExamination]: SourceExamination[Part] };

class Examination {
  readonly #problems: ExaminationProblem[] = [];
  #said = "";

  constructor(
    private readonly endpoint: SourceEndpoint,
    private readonly options: ExaminationOptions,
  ) {}

  async run(): Promise<SourceExamination> {
    const found: Findings = {
      endpoint: this.#name(),
      connection: undefined,
      list: undefined,
      templates: [],
      delivery: undefined,
      read: undefined,
      problems: this.#problems,
    };
    const [ms, connection] = await timed(() => this.#connect());
    if (!connection) return found;
    try {
      const { era, protocolVersion, server, capabilities } = connection;
      const extensions = Object.keys(connection.wire.client.getServerCapabilities()?.extensions ?? {});
      found.connection = { ms, era, protocolVersion, server, capabilities, extensions };
      const page = await this.#list(connection, found);
      found.templates = await this.#listTemplates(connection);
      if (page) await this.#tryOut(connection, this.#chosen(page), found);
    } finally {
      await connection.close();
    }
    return found;
  }

  async #tryOut(connection: SourceConnection, uris: readonly string[], found: Findings): Promise<void> {
    found.delivery = await this.#subscribe(connection, uris.slice(0, MAX_SUBSCRIBED));
    const failed: { uri: string; outcome: Exclude<ReadOutcome, ReadContent> }[] = [];
    for (const uri of uris.slice(0, MAX_READS)) {
      const [ms, outcome] = await timed(() => this.#read(connection, uri));
      found.read = { ms, uri, ...summaryOf(outcome) };
      if (outcome.outcome === "content") break;
      failed.push({ uri, outcome });
    }
    // One that cannot be read beside one that can is that resource's own trouble.
    const severity = found.read?.outcome === "content" ? "remark" : "fault";
    for (const { uri, outcome } of failed) {
      const { message } = outcome;
      this.#add(severity, `read_${outcome.outcome}`, `${short(uri)}: ${message}`);
    }
  }

  async #connect(): Promise<SourceConnection | undefined> {
    try {
      return await connectSource(this.endpoint, {
        maxBodyBytes: this.options.maxBodyBytes,
        onStderr: (chunk) => {
          this.#said = (this.#said + chunk).slice(-MAX_SAID);
        },
        ...(this.options.signal && { signal: this.options.signal }),
      });
    } catch (error) {
      this.#notConnected(error);
      return undefined;
    }
  }

  /** The first page, and what is wrong with it. */
  async #list(connection: SourceConnection, found: Findings): Promise<ScanPage | undefined> {
    const { signal } = this.options;
    const pages = scanPages(connection, {
      kind: "resources",
      budgets: defaultScanBudgets,
      ...(signal && { signal }),
    });
    const [ms, first] = await timed(() => pages.next());
    if (first.done) {
      this.#notListed(first.value);
      return undefined;
    }
    const page = first.value;
    const more = page.nextCursorDigest !== null;
    const entries = page.entries.length + page.refused.length;
    const chosen = this.#chosen(page).length;
    found.list = { ms, entries, chosen, more };
    if (chosen === 0 && page.entries.length > 0) {
      this.#add("remark", "none_chosen", `of the ${page.entries.length} resources of its first page none is chosen`);
    }
    for (const { uri } of page.refused) {
      this.#add("remark", "uri_refused", `listed under a URI that is empty, too long or no valid text: ${short(uri)}`);
    }
    for (const { uri, message } of page.faults.slice(0, MAX_FAULTS)) {
      this.#add("remark", "list_malformed", uri === undefined ? message : `${short(uri)}: ${message}`);
    }
    if (entries === 0) {
      const where = more ? "its first page is empty, though more follow" : "it lists no resource";
      this.#add("remark", "list_empty", where);
    }
    return page;
  }

  #chosen({ entries }: ScanPage): string[] {
    const { choice } = this.options;
    return (choice ? entries.filter((entry) => choice.takes(entry)) : entries).map(({ uri }) => uri);
  }

  /** Many servers have none, and say so by an error. */
  async #listTemplates(connection: SourceConnection): Promise<readonly string[]> {
    const { signal } = this.options;
    const options = { kind: "templates", budgets: defaultScanBudgets, ...(signal && { signal }) } as const;
    const first = await scanPages(connection, options).next();
    return first.done ? [] : first.value.entries.map(({ uri }) => uri);
  }

  #notListed(end: ScanEnd): void {
    if (end.verdict === "COMPLETE") return;
    this.#add(
      "fault",
      end.reason === "capability_absent" ? "resources_not_offered" : `list_${end.reason}`,
      end.message,
    );
  }

  async #subscribe(connection: SourceConnection, uris: readonly string[]): Promise<SourceExamination["delivery"]> {
    const { subscribe, listChanged } = connection.capabilities;
    const startedAt = performance.now();
    let failure: string | undefined;
    const stream = await this.#openStream(connection, uris).catch((error: unknown) => {
      failure = error instanceof Error ? error.message : String(error);
      this.#add("remark", "stream_failed", storableText(failure));
      return undefined;
    });
    const pushed = stream?.acknowledged.length ?? 0;
    const polled = uris.length - pushed;
    const listIsPushed = stream?.listChanged ?? false;
    await stream?.close();
    if (subscribe && polled > 0 && failure === undefined) {
      this.#add(
        "remark",
        "not_acknowledged",
        `it offers subscriptions, and does not acknowledge ${polled} of ${uris.length}`,
      );
    }
    if (listChanged && !listIsPushed && failure === undefined) {
      this.#add(
        "remark",
        "list_changes_not_acknowledged",
        "it offers changes of the list, and does not acknowledge them",
      );
    }
    return {
      ms: since(startedAt),
      pushed,
      polled,
      polledBecause: polled === 0 ? undefined : whyPolled(subscribe, failure),
      listChanges: listIsPushed ? "pushed" : "polled",
    };
  }

  #openStream(connection: SourceConnection, uris: readonly string[]): Promise<ResourceStream> {
    const ignore = (): void => undefined;
    const { signal } = this.options;
    return openResourceStream(connection, {
      uris: connection.capabilities.subscribe ? uris : [],
      listChanged: connection.capabilities.listChanged,
      onUpdated: ignore,
      onListChanged: ignore,
      onClosed: ignore,
      ...(signal && { signal }),
    });
  }

  #read(connection: SourceConnection, uri: string): Promise<ReadOutcome> {
    const { maxBodyBytes, signal } = this.options;
    return readResource(connection, uri, { maxBodyBytes, ...(signal && { signal }) });
  }

  #name(): string {
    try {
      return describeEndpoint(this.endpoint);
    } catch {
      return "an endpoint that cannot be used"; // connecting says why
    }
  }

  #notConnected(error: unknown): void {
    const code = error instanceof FencelineError ? error.code : "unexpected";
    const message = error instanceof Error ? error.message : String(error);
    const parts = [message, systemCodeIn(error), this.#complaint()].filter((part) => part !== undefined);
    this.#add("fault", code, storableText(parts.join("; ")));
  }

  /** The line of standard error that most likely says why a server's process ended. */
  #complaint(): string | undefined {
    if (this.#said === "") return undefined;
    const lines = redactor(this.endpoint)(this.#said)
      .split("\n")
      .map((line) => line.trim())
      .filter((line) => line !== "");
    const line = lines.find((one) => /^\w*error\b/i.test(one)) ?? lines.at(-1);
    return line === undefined ? undefined : `it wrote: ${short(line)}`;
  }

  #add(severity: ExaminationProblem["severity"], code: string, message: string): void {
    this.#problems.push({ severity, code, message, advice: adviceFor(code, "url" in this.endpoint) });
  }
}

function summaryOf(outcome: ReadOutcome) {
  return {
    outcome: outcome.outcome,
    bytes: "bytes" in outcome ? outcome.bytes : undefined,
    mimeType: outcome.outcome === "content" ? outcome.parts[0]?.mimeType : undefined,
  };
}

/** `ECONNREFUSED`, `ENOTFOUND` and the like, which the MCP client leaves out of its messages. */
function systemCodeIn(error: unknown): string | undefined {
  for (let link = error; link instanceof Error; link = link.cause) {
    if ("code" in link && typeof link.code === "string" && /^E[A-Z]{3,}$/.test(link.code)) return link.code;
  }
  return undefined;
}

function whyPolled(subscribe: boolean, failure: string | undefined): string {
  if (!subscribe) return "the server offers no subscriptions";
  return failure === undefined ? "the server does not acknowledge them" : "the stream could not be opened";
}

async function timed<Result>(work: () => Promise<Result>): Promise<[ms: number, result: Result]> {
  const startedAt = performance.now();
  const result = await work();
  return [since(startedAt), result];
}

/** In milliseconds, to the tenth. */
function since(startedAt: number): number {
  return Math.round((performance.now() - startedAt) * 10) / 10;
}

function short(uri: string): string {
  const text = storableText(uri.slice(0, 200));
  return uri.length > 200 ? `${text}…` : text;
}
