import { assert } from "@fenceline/ledger";
import { type AuthProvider, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { connectorError } from "../errors.js";
import { authorizationOf, checkTokenAnswer, type EndpointAuth, renewingOnce } from "./endpoint-authorization.js";
import type { Fetch } from "./http-watch.js";
import { ServerProcess } from "./server-process.js";
import { StreamReopening } from "./stream-reopening.js";

/** A tool called once per connection, for servers that must be switched on before they notify. */
export interface AfterConnectCall {
  tool: string;
  arguments?: Record<string, unknown>;
}

/** A server that this process starts and speaks to over standard input and output. */
export interface StdioEndpoint {
  command: string;
  args?: readonly string[];
  /** Added to a small safe part of this process's environment (PATH, HOME, …). */
  env?: Readonly<Record<string, string>>;
  cwd?: string;
}

/** A server reached over Streamable HTTP. */
export interface HttpEndpoint {
  url: string;
  headers?: Readonly<Record<string, string>>;
  /** Where the bearer token comes from, if it is none of the headers. */
  auth?: EndpointAuth;
}

/** Where a source is, and how to speak to it. */
export type SourceEndpoint = (StdioEndpoint | HttpEndpoint) & {
  afterConnect?: readonly AfterConnectCall[];
  /** Longest wait for one answer, in milliseconds. Default 60 000. */
  requestTimeoutMs?: number;
};

/** The endpoint as it may appear in a message: never arguments, credentials, a query, or what looks like a token in the path. */
export function describeEndpoint(endpoint: SourceEndpoint): string {
  if (!("url" in endpoint)) return `command ${endpoint.command}`;
  const { origin, pathname } = parseUrl(endpoint.url);
  return origin + pathname.replace(/[^/]+/g, (segment) => (isToken(segment) ? "***" : segment));
}

/** Shorter ones are parts of ordinary words. */
const SHORTEST_SECRET = 6;

/** Replaces every secret that the endpoint carries or was given since, for texts that came from the server. */
export function redactor(endpoint: SourceEndpoint): (text: string) => string {
  const fixed = "url" in endpoint ? secretsOfHttp(endpoint) : secretsOfProcess(endpoint);
  const authorization = "url" in endpoint && endpoint.auth ? authorizationOf(endpoint.auth) : undefined;
  return (text) => {
    const secrets = [...fixed, ...(authorization?.secrets() ?? [])].filter(({ length }) => length >= SHORTEST_SECRET);
    secrets.sort((a, b) => b.length - a.length);
    return secrets.reduce((redacted, secret) => redacted.replaceAll(secret, "***"), text);
  };
}

function secretsOfHttp(endpoint: HttpEndpoint): string[] {
  const values = Object.values(endpoint.headers ?? {});
  // A server may repeat the credentials without their scheme ("Bearer").
  const credentials = values.flatMap((value) => value.split(/\s+/).slice(1));
  return [
    ...values,
    ...credentials,
    ...secretsOfUrl(endpoint.url),
    ...parseUrl(endpoint.url).pathname.split("/").filter(isToken),
  ];
}

/** A path, a word, or the name of a package with its version: what an argument says that keeps no secret. */
const PLAIN_ARGUMENT = /^(?:(?:\.{0,2}|~|[A-Za-z]:)[\\/][^?=&]*|[A-Za-z@/._-]+(?:@[~^]?\d[\w.+-]*)?)$/;

/**
 * Which of the arguments are secret is not known. The value of an option (`--token x`, `--token=x`) is taken for one, and whatever is
 * neither an option's name nor plain.
 */
function secretsOfProcess({ args = [], env = {} }: StdioEndpoint): string[] {
  const values = args.flatMap((argument, at) => {
    const [, option, value] = /^(--?[A-Za-z][\w-]*)(?:=(.*))?$/s.exec(argument) ?? [];
    if (option !== undefined) return value === undefined ? [] : [argument, value];
    const isValue = /^--[A-Za-z][\w-]*$/.test(args[at - 1] ?? "");
    return isValue || !PLAIN_ARGUMENT.test(argument) ? [argument] : [];
  });
  const all = [...Object.values(env), ...values];
  return [...all, ...all.flatMap(secretsOfUrl)];
}

/** User and password of a URL and what its query holds, as they stand there and decoded. */
function secretsOfUrl(text: string): string[] {
  if (!URL.canParse(text)) return [];
  const { username, password, search, searchParams } = new URL(text);
  const raw = search
    .slice(1)
    .split("&")
    .map((pair) => pair.slice(pair.indexOf("=") + 1));
  return [username, password, ...raw, ...searchParams.values()].flatMap((secret) => [secret, decoded(secret)]);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Some servers take the credential as a part of the path. */
function isToken(segment: string): boolean {
  return segment.length >= 20 && /\d/.test(segment) && /^[\w~-]+$/.test(segment);
}

/** Starts a server's process; `onStderr` receives what it writes beside the protocol. */
export function stdioTransport(
  endpoint: StdioEndpoint,
  options: { maxMessageBytes: number; onStderr?: ((chunk: string) => void) | undefined },
): ServerProcess {
  const transport = new ServerProcess(
    {
      command: endpoint.command,
      args: [...(endpoint.args ?? [])],
      // "inherit" would write into the terminal of whoever runs us.
      stderr: options.onStderr ? "pipe" : "ignore",
      ...(endpoint.env && { env: { ...endpoint.env } }),
      ...(endpoint.cwd !== undefined && { cwd: endpoint.cwd }),
    },
    options.maxMessageBytes,
  );
  if (options.onStderr) transport.stderr?.on("data", (chunk: Buffer) => options.onStderr?.(chunk.toString("utf8")));
  return transport;
}

/** @throws {FencelineError} `source_endpoint_invalid` */
export function httpTransport(endpoint: HttpEndpoint, fetch: Fetch): StreamableHTTPClientTransport {
  const url = parseUrl(endpoint.url);
  if (url.username !== "" || url.password !== "") {
    // fetch refuses such a URL with a message that repeats it.
    throw connectorError(
      "source_endpoint_invalid",
      `the URL of ${url.origin} holds a user name or password; send an Authorization header instead`,
    );
  }
  const sentWith = new WeakMap<Response, string | undefined>();
  const transport = new StreamableHTTPClientTransport(url, {
    fetch: async (...request) => {
      const response = await fetch(...request);
      await checkTokenAnswer(request[1], response);
      sentWith.set(response, new Headers(request[1]?.headers).get("authorization") ?? undefined);
      return response;
    },
    reconnectionOptions: StreamReopening.sdkOptions,
    reconnectionScheduler: new StreamReopening().schedule,
    requestInit: { headers: validHeaders(endpoint.headers ?? {}) },
    ...(endpoint.auth && { authProvider: authorizationOf(endpoint.auth).provider }),
  });
  if (endpoint.auth) renewOnce(transport, (response) => sentWith.get(response));
  return transport;
}

/** The transport makes its provider of what it is given, and keeps that beside it for a 403 that asks for another scope. */
function renewOnce(
  transport: StreamableHTTPClientTransport,
  sentWith: (response: Response) => string | undefined,
): void {
  // A version that has none under this name must not pass unnoticed.
  const provider = Reflect.get(transport, "_authProvider") as AuthProvider | undefined;
  assert(typeof provider?.onUnauthorized === "function", "The SDK's HTTP transport asks its _authProvider for tokens.");
  Reflect.set(transport, "_authProvider", renewingOnce(provider, sentWith));
}

function parseUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url && (url.protocol === "http:" || url.protocol === "https:")) return url;
  throw connectorError("source_endpoint_invalid", "the source's url is not an http or https URL");
}

/** A header value that fetch refuses is repeated in its message; so the check names the header only. */
function validHeaders(headers: Readonly<Record<string, string>>): Record<string, string> {
  for (const [name, value] of Object.entries(headers)) {
    try {
      new Headers([[name, value]]);
    } catch {
      throw connectorError(
        "source_endpoint_invalid",
        `the value of header ${name} holds characters HTTP does not allow`,
      );
    }
  }
  return { ...headers };
}
