import type { ScanPage } from "../mcp/resource-scan.js";
import { storableText } from "../storable-text.js";
import type { SourceProblem } from "./worker-pool-options.js";

const MAX_SHOWN_URI = 200;
/** Of a walk; the others are counted. */
const MAX_KEPT = 100;

/** What of a list was not valid, page by page, in bounded memory: a million bad entries are a hundred, and how many more. */
export class WalkFaults {
  readonly #kept: SourceProblem[] = [];
  #more = 0;
  #page = 0;

  addPage({ refused, faults }: Pick<ScanPage, "refused" | "faults">): void {
    this.#page += 1;
    for (const { uri } of refused) this.refuse(uri);
    const unnamed = new Map<string, number>();
    for (const { uri, message } of faults) {
      if (uri === undefined) unnamed.set(message, (unnamed.get(message) ?? 0) + 1);
      else this.add({ uri: shown(uri), code: "list_malformed", message });
    }
    for (const [message, count] of unnamed) {
      const times = count > 1 ? ` (${count} times)` : "";
      this.add({ code: "list_malformed", message: `page ${this.#page}: ${message}${times}` });
    }
  }

  get problems(): readonly SourceProblem[] {
    if (this.#more === 0) return this.#kept;
    return [...this.#kept, { code: "list_malformed", message: `${this.#more} more faults in the list` }];
  }

  /** It cannot be asked for by a URI the ledger does not take; the rest of its page is as good as any. */
  refuse(uri: string): void {
    const message = "Listed under a URI that is empty, too long or no valid text.";
    this.add({ uri: shown(uri), code: "uri_refused", message });
  }

  add(problem: SourceProblem): void {
    if (this.#kept.length < MAX_KEPT) this.#kept.push(problem);
    else this.#more += 1;
  }
}

function shown(uri: string): string {
  return storableText(uri.slice(0, MAX_SHOWN_URI));
}
