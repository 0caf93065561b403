import { resourceKey } from "@fenceline/ledger";
import { matchesWildcard } from "../wildcard.js";
import { digestJson } from "./canonical-digest.js";

/** Where the values of a template's variable come from: a list, or the server's own completions. */
export type TemplateValues = readonly string[] | "completions";

/** What is taken of a source. In patterns `*` stands for any run of characters. */
export interface ChoiceSettings {
  /** Patterns of URIs; where they are given, what none of them matches is left out. */
  readonly include?: readonly string[];
  /** Patterns of URIs that are left out, whatever `include` says. */
  readonly exclude?: readonly string[];
  /** Patterns of MIME types. What is listed without one is taken: its type is known when it is read. */
  readonly mimeTypes?: readonly string[];
  /** Templates that the server lists, with what their variables stand for, which is taken unless it is excluded. */
  readonly templates?: Readonly<Record<string, Readonly<Record<string, TemplateValues>>>>;
}

/** A resource as far as a choice goes by it. */
export interface Candidate {
  readonly uri: string;
  readonly mimeType?: string | undefined;
  /** The template that stands for it, where no list names it by itself. */
  readonly uriTemplate?: string | undefined;
}

/** Decides, by what a list says of a resource, whether it is subscribed and read. */
export class ResourceChoice {
  /** Of the choice itself: what it takes of one list may be another set tomorrow (S3). */
  readonly digest: Uint8Array;
  readonly templates: NonNullable<ChoiceSettings["templates"]>;

  constructor(private readonly settings: ChoiceSettings = {}) {
    this.digest = digestJson("choice", settings);
    this.templates = settings.templates ?? {};
  }

  /** Nothing is left out. */
  get isEverything(): boolean {
    const { include, exclude, mimeTypes } = this.settings;
    return include === undefined && exclude === undefined && mimeTypes === undefined;
  }

  takes(candidate: Candidate): boolean {
    const { uri, mimeType, uriTemplate } = candidate;
    if (uriTemplate !== undefined && !Object.hasOwn(this.templates, uriTemplate)) return false;
    if (this.isEverything) return true;
    const isNamed = uriTemplate !== undefined || matchesAny(this.settings.include ?? ["*"], uri);
    return isNamed && !this.excludes(uri) && this.#takesType(mimeType);
  }

  /** Left out by its URI, whatever else is said. */
  excludes(uri: string): boolean {
    return matchesAny(this.settings.exclude ?? [], uri);
  }

  /** With and without its parameters. */
  #takesType(mimeType: string | undefined): boolean {
    const { mimeTypes } = this.settings;
    if (mimeTypes === undefined || mimeType === undefined) return true;
    const type = mimeType.toLowerCase();
    const spellings = [type, type.split(";", 1).join("").trim()];
    return mimeTypes.some((pattern) => spellings.some((spelling) => matchesWildcard(pattern.toLowerCase(), spelling)));
  }
}

/** As the server spells it, and as its key (F10): another spelling is the same resource. */
function matchesAny(patterns: readonly string[], uri: string): boolean {
  const spellings = [uri, resourceKey(uri)];
  return patterns.some((pattern) => spellings.some((spelling) => matchesWildcard(pattern, spelling)));
}
