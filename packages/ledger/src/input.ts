/**
 * What the facade takes from its callers, checked before anything is sent to the database: a value that does not fit is
 * refused as `input_invalid`, which names the field, and leaves no row.
 *
 * An area lists the arguments of each of its calls (`src/arguments/<area>.ts`, as `ArgumentsOf<Area>`, where a forgotten
 * call does not compile) and wraps its calls in `checkedCalls`.
 *
 * Nothing is altered on the way: text that looks like SQL is text, and what no database holds (U+0000, lone surrogates) is
 * refused rather than replaced, so that what is read back is always what was given.
 */
import { z } from "zod";
import { assert, FencelineError } from "./errors.js";

/**
 * Longest name of a source, subject, owner, store, index or request, in UTF-16 code units. At three bytes each it stays
 * below the 2,704 bytes of an index entry of PostgreSQL.
 */
export const MAX_NAME_LENGTH = 512;
/** Longest URI, in UTF-16 code units: more than servers and proxies are asked to take (RFC 9110, section 4.1: 8,000). */
export const MAX_URI_LENGTH = 8_192;
/** A hundred years: longer intervals overflow PostgreSQL's timestamps sooner or later. */
export const MAX_MILLISECONDS = 3_155_760_000_000;
/** Of SHA-512; a longer one is no digest, and might be content (P8). */
export const MAX_DIGEST_BYTES = 64;
const MAX_INT4 = 2 ** 31 - 1;

/** Any text PostgreSQL can hold. It may be content, so errors never quote it. */
export const storableText = z.string().check(storable(true));
/** Name of a source, subject, owner, store, index or request. */
export const name = z.string().min(1).max(MAX_NAME_LENGTH).check(storable(false));
/** A server's own spelling of a URI. */
export const uri = z.string().min(1).max(MAX_URI_LENGTH).check(storable(false));
/** Whether the ledger takes this as a URI: not empty, at most `MAX_URI_LENGTH` long, no U+0000, no lone surrogates. */
export function isStorableUri(text: string): boolean {
  return text.length > 0 && text.length <= MAX_URI_LENGTH && isStorable(text);
}

/** Public id of an entry. One that is no id of this ledger is no error: stores hold other people's entries too. */
export const entryId = z.string();
/** Id of a row that is a `bigint`. */
export const id = z.int().positive();
/** Id of a row that is an `int`, or a number of rows. */
export const count = z.int().positive().max(MAX_INT4);
/** Where a page goes on: the last id seen, 0 at the beginning. */
export const after = z.int().nonnegative();
/** Ordinals, generations and whatever else only rises. */
export const ordinal = z.int().nonnegative();
/** A share of a whole. */
export const share = z.number().min(0).max(1);
export const milliseconds = z.int().nonnegative().max(MAX_MILLISECONDS);
/** A lease: longer than nothing, at most 24 days. */
export const leaseMs = z.int().positive().max(MAX_INT4);
export const digest = z.instanceof(Uint8Array).refine((bytes) => bytes.byteLength <= MAX_DIGEST_BYTES, {
  error: `expected a digest of at most ${MAX_DIGEST_BYTES} bytes`,
});
/** As PostgreSQL prints it; any version. */
export const uuid = z.guid();
/** What `digestChunk` answers. */
export const chunkDigest = z
  .string()
  .regex(/^[0-9a-f]{64}$/, "expected 32 bytes in lower-case hex, as digestChunk gives them");

const scopeUri = z.string().max(MAX_URI_LENGTH).check(storable(false));
/** What a grant or a revocation covers. Its own rules (`uri_invalid`) are those of `uri-scope.ts`. */
export const scope = z.union([
  z.strictObject({ uri: scopeUri }),
  z.strictObject({ prefix: scopeUri }),
  z.strictObject({ everything: z.literal(true) }),
]);

/** The session that fences a call, as `openSession` answered. */
export const session = z.object({
  sessionId: id,
  scopeId: count,
  sourceId: count,
  source: name,
  reader: name,
  generation: ordinal,
});

/** Calls that answer with a promise, which is all that reach the database. */
type AsyncCall<Area> = {
  [Call in keyof Area]: Area[Call] extends (...values: never[]) => Promise<unknown> ? Call : never;
}[keyof Area];

/**
 * How errors name an argument, and what it may be. `fits` says yes only to what the schema takes, and sooner: what it does not
 * say yes to, the schema decides.
 */
type Argument = readonly [name: string, schema: z.ZodType, fits?: (value: unknown) => boolean];

type ArgumentsOfCall<Call> = Call extends (...values: infer Values) => unknown
  ? { readonly [Place in keyof Values]-?: Argument }
  : never;

/** The arguments of every call of an area, by position: how errors name each, and what it may be. */
export type ArgumentsOf<Area> = { readonly [Call in AsyncCall<Area>]: ArgumentsOfCall<Area[Call]> };

type Calls = Record<string, (...values: unknown[]) => unknown>;

/** The same calls, which refuse arguments that do not fit with `input_invalid` before they do anything. */
export function checkedCalls<Area extends object>(schemas: ArgumentsOf<Area>, calls: Area): Area {
  const checked: Calls = { ...(calls as Calls) };
  for (const [call, parameters] of Object.entries(schemas) as [string, readonly Argument[]][]) {
    const unchecked = checked[call] as Calls[string];
    checked[call] = async (...values) => {
      for (const [place, [field, schema, fits]] of parameters.entries()) {
        if (fits?.(values[place]) !== true) checkArgument(field, schema, values[place]);
      }
      return unchecked(...values);
    };
  }
  return checked as Area;
}

/**
 * Refuses a value that does not fit.
 *
 * @param field how the error names the value; what lies inside it is named by its path: `answers[3].ordinal`
 * @returns the value with the fields that the schema knows, and no others
 * @throws {FencelineError} `input_invalid`
 */
export function checkArgument<Value>(field: string, schema: z.ZodType<Value>, value: unknown): Value {
  const parsed = schema.safeParse(value, { error: expectation });
  if (parsed.success) return parsed.data;
  const [issue, ...others] = innermost(parsed.error.issues).flatMap(oneOfEachUnknown);
  assert(issue !== undefined, "What a schema refuses has an issue.");
  const more = others.length === 0 ? "" : ` (and ${others.length} more that do not fit)`;
  throw inputInvalid(`${field}${pathText(issue.path)}`, valueAt(value, issue), `${issue.message}${more}`);
}

/**
 * The error for an argument that does not fit, for what no schema can say.
 *
 * @param shown the value as the error may show it; `undefined` for content
 * @param expected what to give instead
 */
function inputInvalid(field: string, shown: string | undefined, expected: string): FencelineError {
  const found = shown === undefined ? "does not fit" : `is ${shown}`;
  return new FencelineError("input_invalid", `${field} ${found}: ${expected}.`, { field });
}

/** Refuses lists that name one subscription twice: in one statement the second of two would be lost without a receipt. */
export function oneOfEach<Item>(keyOf: (item: Item) => unknown, field: string) {
  return (context: z.core.ParsePayload<Item[]>): void => {
    const seen = new Set<unknown>();
    for (const [place, item] of context.value.entries()) {
      const key = keyOf(item);
      if (seen.has(key)) {
        const message = `expected each ${field} once in a call`;
        context.issues.push({ code: "custom", message, path: [place, field], input: item });
        return;
      }
      seen.add(key);
    }
  };
}

/** Whether PostgreSQL can hold it as text. */
export function isStorable(text: string): boolean {
  return !text.includes("\0") && text.isWellFormed();
}

function storable(isContent: boolean) {
  return (context: z.core.ParsePayload<string>): void => {
    const { value } = context;
    if (isStorable(value)) return;
    const found = value.includes("\0") ? "U+0000" : "lone surrogates";
    context.issues.push({
      code: "custom",
      message: `expected text without ${found}, which no database holds`,
      input: value,
      params: { isContent },
    });
  };
}

type Issue = z.core.$ZodIssue;

/** What a union refuses is told by the branch that got furthest, with the path down to it. */
function innermost(issues: readonly Issue[]): readonly Issue[] {
  const [issue] = issues;
  if (issue?.code !== "invalid_union" || issue.errors.length === 0) return issues;
  const branches = issue.errors.map((branch) => innermost(branch));
  const depthOf = (branch: readonly Issue[]) => branch[0]?.path.length ?? 0;
  const isOfBranch = (branch: readonly Issue[]) => branch.every(({ code }) => code !== "unrecognized_keys");
  const furthest = branches.filter(isOfBranch).sort((a, b) => depthOf(b) - depthOf(a))[0];
  if (furthest === undefined || depthOf(furthest) === 0) return issues;
  return furthest.map((inner) => ({ ...inner, path: [...issue.path, ...inner.path] }));
}

/** A field that a schema does not know is named itself, and not shown: it may be content. */
function oneOfEachUnknown(issue: Issue): readonly Issue[] {
  if (issue.code !== "unrecognized_keys") return [issue];
  return issue.keys.map((key) => ({
    code: "custom",
    message: issue.message,
    path: [...issue.path, key],
    params: { isContent: true },
  }));
}

/** In our words where a schema has none of its own. */
function expectation(issue: z.core.$ZodRawIssue): string {
  switch (issue.code) {
    case "invalid_type":
      return `expected ${issue.expected === "int" ? "a safe integer" : issue.expected}`;
    case "invalid_value":
      return `expected one of ${issue.values.map((value) => shortened(value)).join(", ")}`;
    case "too_small":
      return issue.origin === "string"
        ? "expected text that is not empty"
        : `expected ${bound(issue.inclusive, "least", "more than")} ${issue.minimum}`;
    case "too_big":
      return issue.origin === "string"
        ? `expected at most ${issue.maximum} characters`
        : `expected ${bound(issue.inclusive, "most", "less than")} ${issue.maximum}`;
    case "invalid_format":
      return `expected a ${issue.format === "guid" ? "UUID" : issue.format}`;
    case "invalid_union":
      return "expected another form";
    case "unrecognized_keys":
      return "expected no such field";
    default:
      return "expected another value";
  }
}

function bound(inclusive: boolean | undefined, atWhat: string, strict: string): string {
  return inclusive === false ? strict : `at ${atWhat}`;
}

const PLAIN_FIELD = /^\w{1,40}$/;

function pathText(path: readonly PropertyKey[]): string {
  return path
    .map((step) => (typeof step === "string" && PLAIN_FIELD.test(step) ? `.${step}` : `[${shortened(step)}]`))
    .join("");
}

function valueAt(value: unknown, issue: Issue): string | undefined {
  if (issue.code === "custom" && issue.params?.["isContent"] === true) return undefined;
  let found = value;
  for (const step of issue.path) found = (found as Record<PropertyKey, unknown> | undefined)?.[step];
  return shortened(found);
}

const MAX_SHOWN = 40;

/** A value as an error may show it: short, and what is no text to a terminal escaped. */
export function shortened(value: unknown): string {
  if (typeof value === "string") {
    if (value.length <= MAX_SHOWN) return JSON.stringify(value);
    return `${JSON.stringify(value.slice(0, MAX_SHOWN))}… (${value.length} characters)`;
  }
  if (typeof value === "bigint" || typeof value === "symbol" || typeof value === "function") return typeof value;
  if (typeof value !== "object" || value === null) return String(value);
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (value instanceof Uint8Array) return `${value.byteLength} bytes`;
  return "an object";
}
