import { execFile } from "node:child_process";
import { promisify } from "node:util";
import {
  type AuthProvider,
  ClientCredentialsProvider,
  type OAuthClientProvider,
  type StoredOAuthTokens,
  UnauthorizedError,
} from "@modelcontextprotocol/client";
import { connectorError } from "../errors.js";

/** How a reader gets the bearer token that it sends to a server. */
export type EndpointAuth =
  | {
      readonly type: "client_credentials";
      readonly clientId: string;
      readonly clientSecret: string;
      /** Of the authorization server, and the only one that is given the secret, whatever the MCP server advertises. */
      readonly issuer: string;
      /** Space-separated. */
      readonly scope?: string;
    }
  | {
      readonly type: "command";
      /** A program and its arguments, run without a shell; the first line that it writes is the token. */
      readonly command: readonly string[];
      /** How long a token is used before the program is asked again, in milliseconds. Default 5 min; a 401 asks at once. */
      readonly tokenMs?: number;
      /** How long the program may take, in milliseconds. Default 30 s; then it is killed. */
      readonly timeoutMs?: number;
    };

/** What the transport asks for tokens, and every secret that it has come to know. */
export interface EndpointAuthorization {
  readonly provider: AuthProvider | OAuthClientProvider;
  /** For the redaction of texts that came from the server. */
  secrets(): readonly string[];
}

/** By what was configured: connections that follow each other share a token. */
const known = new WeakMap<EndpointAuth, EndpointAuthorization>();

export function authorizationOf(auth: EndpointAuth): EndpointAuthorization {
  const authorization =
    known.get(auth) ?? (auth.type === "command" ? new TokenCommand(auth) : new ClientCredentials(auth));
  known.set(auth, authorization);
  return authorization;
}

/**
 * Has a token renewed once for all requests that were refused with it: each would ask for its own, and the last one to be answered
 * would throw away what the others had got.
 *
 * @param sentWith the `Authorization` that the refused request was sent with
 */
export function renewingOnce(
  provider: AuthProvider,
  sentWith: (refusal: Response) => string | undefined,
): AuthProvider {
  let renewal: Promise<void> | undefined;
  return {
    async token() {
      // Whoever is refused with what is being renewed would come back here.
      await renewal?.catch(() => undefined);
      return provider.token();
    },
    async onUnauthorized(refusal) {
      const current = await provider.token();
      const isReplaced = current !== undefined && sentWith(refusal.response) !== `Bearer ${current}`;
      if (isReplaced && renewal === undefined) return;
      renewal ??= Promise.resolve(provider.onUnauthorized?.(refusal)).finally(() => {
        renewal = undefined;
      });
      await renewal;
    },
  };
}

/**
 * What the authorization server refuses is a credential problem at once. The SDK would ask it a second time, with the same secret,
 * and write its words to standard error; and take its outage for a refusal.
 *
 * @throws {UnauthorizedError} and {FencelineError} `source_unreachable`, `source_throttled`
 */
export async function checkTokenAnswer(asked: RequestInit | undefined, answer: Response): Promise<void> {
  const isTokenRequest = new Headers(asked?.headers)
    .get("content-type")
    ?.startsWith("application/x-www-form-urlencoded");
  if (answer.ok || isTokenRequest !== true) return;
  const { status } = answer;
  const what = `the authorization server answered the request for a token with HTTP ${status}`;
  if (status === 429) throw connectorError("source_throttled", what);
  if (status >= 500) throw connectorError("source_unreachable", what);
  const code = /"error"\s*:\s*"([a-z_]{1,50})"/.exec(await answer.text().catch(() => ""))?.[1];
  throw new UnauthorizedError(code === undefined ? what : `${what} (${code})`);
}

/** OAuth 2.1 client credentials, by the SDK: discovery (RFC 9728, RFC 8414), the token request, another one after a 401. */
class ClientCredentials extends ClientCredentialsProvider implements EndpointAuthorization {
  readonly provider = this;
  readonly #secrets: RecentSecrets;
  #tokens: StoredOAuthTokens | undefined;

  constructor({ clientId, clientSecret, issuer, scope }: Extract<EndpointAuth, { type: "client_credentials" }>) {
    super({ clientId, clientSecret, expectedIssuer: issuer, ...(scope !== undefined && { scope }) });
    const basic = Buffer.from(`${clientId}:${clientSecret}`).toString("base64");
    this.#secrets = new RecentSecrets(clientSecret, encodeURIComponent(clientSecret), basic);
  }

  override tokens(): StoredOAuthTokens | undefined {
    return this.#tokens;
  }

  override saveTokens(tokens: StoredOAuthTokens): void {
    this.#tokens = tokens;
    this.#secrets.add(tokens.access_token);
    if (tokens.refresh_token !== undefined) this.#secrets.add(tokens.refresh_token);
  }

  secrets(): readonly string[] {
    return this.#secrets.all;
  }
}

const DEFAULT_TOKEN_MS = 300_000;
const DEFAULT_COMMAND_MS = 30_000;
const MAX_TOKEN_BYTES = 64 * 1024;

class TokenCommand implements EndpointAuthorization, AuthProvider {
  readonly provider = this;
  readonly #command: readonly string[];
  readonly #tokenMs: number;
  readonly #timeoutMs: number;
  readonly #secrets = new RecentSecrets();
  #token: Promise<string> | undefined;
  #askedAt = 0;

  constructor(auth: Extract<EndpointAuth, { type: "command" }>) {
    this.#command = auth.command;
    this.#tokenMs = auth.tokenMs ?? DEFAULT_TOKEN_MS;
    this.#timeoutMs = auth.timeoutMs ?? DEFAULT_COMMAND_MS;
  }

  token(): Promise<string> {
    const now = performance.now();
    if (this.#token === undefined || now - this.#askedAt >= this.#tokenMs) {
      this.#askedAt = now;
      const token = this.#ask();
      this.#token = token;
      // The next request asks again.
      token.catch(() => {
        if (this.#token === token) this.#token = undefined;
      });
    }
    return this.#token;
  }

  /** The server refused the token: the next one is asked for. */
  async onUnauthorized(): Promise<void> {
    this.#token = undefined;
  }

  secrets(): readonly string[] {
    return this.#secrets.all;
  }

  async #ask(): Promise<string> {
    const [program = "", ...parameters] = this.#command;
    let written: string;
    try {
      const limits = { timeout: this.#timeoutMs, maxBuffer: MAX_TOKEN_BYTES, windowsHide: true };
      // One that waits for somebody to type a password need not heed anything milder.
      ({ stdout: written } = await promisify(execFile)(program, parameters, { ...limits, killSignal: "SIGKILL" }));
    } catch (error) {
      // Neither its arguments nor what it wrote: both may hold the secret.
      throw new UnauthorizedError(`the token command ${program} ${this.#reasonOf(error)}`);
    }
    const token = written.split(/\r?\n/, 1)[0]?.trim() ?? "";
    if (!/^[\x21-\x7e]+$/.test(token)) throw new UnauthorizedError(`the token command ${program} wrote no token`);
    this.#secrets.add(token);
    return token;
  }

  #reasonOf(error: unknown): string {
    const { code, killed, signal } = error as { code?: unknown; killed?: unknown; signal?: unknown };
    if (code === "ERR_CHILD_PROCESS_STDIO_MAXBUFFER") return `wrote more than ${MAX_TOKEN_BYTES} bytes`;
    if (killed === true) return `did not end within ${this.#timeoutMs} ms`;
    if (typeof signal === "string") return `was ended by ${signal}`;
    return typeof code === "number" ? `ended with ${code}` : `could not be run (${String(code)})`;
  }
}

/** A server may answer with a token that has been replaced meanwhile. */
class RecentSecrets {
  static readonly #KEPT = 20;
  readonly #fixed: readonly string[];
  #recent: readonly string[] = [];

  constructor(...fixed: readonly string[]) {
    this.#fixed = fixed;
  }

  get all(): readonly string[] {
    return [...this.#fixed, ...this.#recent];
  }

  add(secret: string): void {
    if (!this.#recent.includes(secret)) this.#recent = [secret, ...this.#recent].slice(0, RecentSecrets.#KEPT);
  }
}
