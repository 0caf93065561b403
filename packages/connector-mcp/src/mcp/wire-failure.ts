import { FencelineError } from "@fenceline/ledger";
import {
  AuthorizationServerMismatchError,
  InsecureTokenEndpointError,
  InsufficientScopeError,
  OAuthClientFlowError,
  OAuthError,
  ProtocolError,
  ResourceNotFoundError,
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  UnauthorizedError,
  UnsupportedProtocolVersionError,
} from "@modelcontextprotocol/client";
import type { ConnectorErrorCode } from "../errors.js";
import { storableText } from "../storable-text.js";

/**
 * What a failed request means to us.
 *
 * - `not_found`: -32602 or -32002, typed or bare (F7): evidence about one URI, and only when a resource was read.
 * - `unauthorized`, `forbidden`: 401 and 403 in any shape the SDK gives them (P7).
 * - `session_lost`: this connection is of no further use.
 * - `throttled`: 429, asked too often; it says nothing about what was asked.
 * - `unreachable`: nobody answered. `timed_out`, `aborted`: nobody answered in time, or nobody wanted the answer any more.
 * - `too_large`, `invalid`: an answer came and was refused on this side.
 * - `failed`: everything else, -32603 included. It proves nothing.
 */
export type FailureKind =
  | "not_found"
  | "unauthorized"
  | "forbidden"
  | "session_lost"
  | "throttled"
  | "unreachable"
  | "timed_out"
  | "aborted"
  | "too_large"
  | "invalid"
  | "failed";

/** What must be known beside the error to tell what it means. */
export interface FailureContext {
  /** The caller's signal: the SDK reports an abort and a timeout alike. */
  signal?: AbortSignal | undefined;
  /** A legacy HTTP session id is in use: 404 then means that the server forgot the session. */
  sessionBound: boolean;
}

const INVALID_PARAMS = -32602;
const RESOURCE_NOT_FOUND = -32002;
/** Codes that real servers give, in a 400 or 404 or in an answer, for a session they do not know; and for much else. */
const UNKNOWN_SESSION_CODES: ReadonlySet<number> = new Set([-32000, -32001]);
const GATEWAY_STATUSES: ReadonlySet<number> = new Set([502, 503, 504]);
/** Of the statuses below 500 those that are about the one request, or about now. */
const ONE_REQUEST_STATUSES: ReadonlySet<number> = new Set([408, 413, 414, 429, 431]);

const ERROR_CODES: Record<FailureKind, ConnectorErrorCode> = {
  not_found: "source_failed",
  unauthorized: "source_unauthorized",
  forbidden: "source_forbidden",
  session_lost: "source_lost",
  throttled: "source_throttled",
  unreachable: "source_unreachable",
  timed_out: "request_timeout",
  aborted: "request_aborted",
  too_large: "response_too_large",
  invalid: "response_invalid",
  failed: "source_failed",
};

/** The error code under which a failure of this kind is thrown. */
export function failureCode(kind: FailureKind): ConnectorErrorCode {
  return ERROR_CODES[kind];
}

/** Tells what an error thrown by the MCP client means (facts measured on client 2.4.0). */
export function classifyFailure(error: unknown, context: FailureContext): FailureKind {
  const own = ownCodeIn(error);
  if (own === "response_too_large") return "too_large";
  if (own === "source_throttled") return "throttled";
  if (own === "source_unreachable") return "unreachable";
  if (context.signal?.aborted) return "aborted";
  if (error instanceof UnsupportedProtocolVersionError) return "session_lost";
  if (error instanceof ProtocolError) return classifyAnswer(error, error instanceof ResourceNotFoundError);
  if (error instanceof UnauthorizedError || isNoToken(error)) return "unauthorized";
  if (error instanceof InsufficientScopeError) return "forbidden";
  if (error instanceof SdkHttpError) return classifyStatus(error, context);
  if (error instanceof SdkError) return classifySdkError(error);
  if (error instanceof Error && error.message === "Not connected") return "session_lost";
  return isNetworkError(error) ? "unreachable" : "failed";
}

/**
 * Whether a failure may mean that the server does not know this connection any more, though it need not: no answer at all, one
 * that is none of MCP's, or an error that some servers give for that and others for anything. The connection has to be asked.
 */
export function isDoubtful(error: unknown, kind: FailureKind, { sessionBound }: FailureContext): boolean {
  if (kind === "timed_out") return true;
  if (error instanceof ProtocolError) return sessionBound && kind === "failed" && UNKNOWN_SESSION_CODES.has(error.code);
  if (error instanceof SdkHttpError) {
    return kind === "failed" && error.status >= 300 && error.status < 500 && !ONE_REQUEST_STATUSES.has(error.status);
  }
  if (error instanceof SdkError) return error.code === SdkErrorCode.ClientHttpUnexpectedContent;
  // JSON, as it says, and then none, or none of JSON-RPC.
  return error instanceof SyntaxError || (error instanceof Error && error.name.endsWith("ZodError"));
}

/** The authorization server gave none, or is not the one that may be asked: a credential problem (P7). */
function isNoToken(error: unknown): boolean {
  return [OAuthError, OAuthClientFlowError, AuthorizationServerMismatchError, InsecureTokenEndpointError].some(
    (kind) => error instanceof kind,
  );
}

/** Longest message taken over from elsewhere, in characters. */
const MAX_MESSAGE = 300;

/**
 * What an error says, in one short line. A body of an HTTP answer is left out, and so is what JSON.parse quotes of its
 * input: both may be a resource's content, and the line goes into logs and into receipts that outlive a purge (P8).
 */
export function describeError(error: unknown): string {
  const line = storableText(whatItSays(error)).replace(/\s+/g, " ").trim();
  return line.length > MAX_MESSAGE ? `${line.slice(0, MAX_MESSAGE).toWellFormed()}…` : line;
}

function whatItSays(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof SyntaxError) return "not valid JSON";
  if (error instanceof SdkHttpError) return httpMessageOf(error);
  if (error instanceof SdkError) return invalidFieldsIn(error.message);
  // The SDK quotes a message that it has no use for, whole: an answer that comes after its timeout, with all its content.
  return error.name === "Error" ? error.message.replace(/:\s*[[{].*$/s, "") : error.message;
}

function httpMessageOf(error: SdkHttpError): string {
  const body = bodyOf(error);
  const said = body === "" ? error.message : error.message.replace(body, "").replace(/:\s*$/, "");
  const reason = answerIn(error)?.message;
  const status = said.includes(`HTTP ${error.status}`) ? "" : ` (HTTP ${error.status})`;
  return `${said}${reason ? `: ${reason}` : ""}${status}`;
}

/** A result that does not fit is reported as a document of its own, a dozen lines for each field. */
function invalidFieldsIn(message: string): string {
  const start = message.indexOf("[\n");
  if (start < 0) return message;
  try {
    const issues = JSON.parse(message.slice(start)) as readonly { path: readonly unknown[]; message: string }[];
    return message.slice(0, start) + issues.map((issue) => `${issue.path.join(".")}: ${issue.message}`).join("; ");
  } catch {
    return message;
  }
}

/** An error that came as an answer of JSON-RPC, or in the body of an HTTP error. */
interface AnsweredError {
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
}

/** -32602 is also what servers answer to parameters they dislike; only without data, or typed, does it say "not found". */
function classifyAnswer(answer: AnsweredError, typed: boolean): FailureKind {
  const { code, data } = answer;
  const refusal = refusalIn(answer);
  if (refusal !== undefined) return refusal;
  if (typed || code === RESOURCE_NOT_FOUND) return "not_found";
  if (code === INVALID_PARAMS && (data === undefined || data === null)) return "not_found";
  return "failed";
}

function classifyStatus(error: SdkHttpError, context: FailureContext): FailureKind {
  const { status } = error;
  if (status === 401) return "unauthorized";
  if (status === 403) return "forbidden";
  if (status === 429) return "throttled";
  const answer = answerIn(error);
  if (context.sessionBound) {
    // A bare 404 is the protocol's own way to say so.
    if (status === 404 && (answer === undefined || UNKNOWN_SESSION_CODES.has(answer.code))) return "session_lost";
    if (status === 400 && saysUnknownSession(answer ?? { message: bodyOf(error) })) return "session_lost";
  }
  if (status === 404 && answer !== undefined) return classifyAnswer(answer, isNamedUri(answer.data));
  const refusal = answer && refusalIn(answer);
  return refusal ?? (GATEWAY_STATUSES.has(status) ? "unreachable" : "failed");
}

/** By its code and its words: `{"code":-32000,"message":"Bad Request: No valid session ID provided"}`, "Invalid session id". */
export function saysUnknownSession({ code, message }: { readonly code?: number; readonly message: string }): boolean {
  return (code === undefined || UNKNOWN_SESSION_CODES.has(code)) && /\bsession\b|\bnot initialized\b/i.test(message);
}

/** A word alone is a refusal; as the beginning of a sentence ("Forbidden characters in …") it is anything. */
const REFUSALS = [
  {
    status: 401,
    kind: "unauthorized",
    words: /^unauthori[sz]ed\s*(?:$|[:.,;!(-])/i,
    number: /(?:^|\b(?:http|status(?: code)?|error)[ :=]+)401\b/i,
  },
  {
    status: 403,
    kind: "forbidden",
    words: /^forbidden\s*(?:$|[:.,;!(-])/i,
    number: /(?:^|\b(?:http|status(?: code)?|error)[ :=]+)403\b/i,
  },
] as const;

/**
 * A refusal that is told as a JSON-RPC error: by the HTTP status in its code, its data or its words, as gateways do it and servers
 * that pass on what stood behind them ("Request failed with status code 403").
 */
function refusalIn({ code, message, data }: AnsweredError): "unauthorized" | "forbidden" | undefined {
  const fields = isRecord(data) ? [data["status"], data["statusCode"], data["httpStatus"], data["code"]] : [];
  const told = [code, ...fields].map(Number);
  return REFUSALS.find(
    ({ status, words, number }) =>
      told.some((one) => one === status || one === -status || one === -32_000 - status) ||
      words.test(message) ||
      number.test(message),
  )?.kind;
}

function classifySdkError(error: SdkError): FailureKind {
  switch (error.code) {
    case SdkErrorCode.RequestTimeout:
      return "timed_out";
    case SdkErrorCode.ConnectionClosed:
    case SdkErrorCode.NotConnected:
      return "session_lost";
    case SdkErrorCode.ClientHttpAuthentication:
      return "unauthorized";
    case SdkErrorCode.ClientHttpForbidden:
      return "forbidden";
    case SdkErrorCode.EraNegotiationFailed:
      return "unreachable";
    case SdkErrorCode.InvalidResult:
    case SdkErrorCode.UnsupportedResultType:
    case SdkErrorCode.ClientHttpUnexpectedContent:
      return "invalid";
    default:
      return "failed";
  }
}

/** The JSON-RPC error that some servers put into the body of an HTTP error. */
function answerIn(error: SdkHttpError): AnsweredError | undefined {
  try {
    const body: unknown = JSON.parse(bodyOf(error));
    const answer = isRecord(body) ? body["error"] : undefined;
    if (!isRecord(answer) || typeof answer["code"] !== "number") return undefined;
    const { code, data, message } = answer as { code: number; data: unknown; message: unknown };
    return { code, data, message: typeof message === "string" ? message : "" };
  } catch {
    return undefined;
  }
}

function bodyOf(error: SdkHttpError): string {
  const text = error.data["text"];
  return typeof text === "string" ? text : "";
}

function isNamedUri(data: unknown): boolean {
  return isRecord(data) && typeof data["uri"] === "string" && Object.keys(data).length === 1;
}

function isNetworkError(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  // Node's fetch reports every network failure as a TypeError, the reason below it.
  return (error instanceof TypeError && error.cause !== undefined) || "syscall" in error;
}

/** What was refused on this side stands somewhere among the causes, or is put into an answer as an instance, which no server can. */
function ownCodeIn(error: unknown): string | undefined {
  for (let link = error; link instanceof Error; link = link.cause) {
    const own = link instanceof ProtocolError ? link.data : link;
    if (own instanceof FencelineError) return own.code;
  }
  return undefined;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}
