import type { FencelineError } from "@fenceline/ledger";
import type { Client, SubscriptionFilter } from "@modelcontextprotocol/client";
import type { ConnectorErrorCode } from "../errors.js";
import type { HttpWatch } from "./http-watch.js";
import type { IgnoredReason } from "./resource-stream.js";
import { ServerPatience } from "./server-patience.js";
import type { SourceEndpoint } from "./source-endpoint.js";
import { SourceLink } from "./source-link.js";
import type { FailureKind } from "./wire-failure.js";

export type { SourceEndpoint } from "./source-endpoint.js";

/** Modern: protocol 2026-07-28 and later. Legacy: everything that begins with `initialize`. */
export type ProtocolEra = "modern" | "legacy";

/** What the server offers about resources (U1). Recorded in a capability receipt by the caller. */
export interface SourceCapabilities {
  /** It has resources at all. Without it the source is unknown, never empty (S9). */
  resources: boolean;
  subscribe: boolean;
  listChanged: boolean;
  /** Its lists bind snapshot ids (S3): the extension of `docs/snapshot-id.md`. */
  snapshotId: boolean;
}

/**
 * Why a connection ended.
 *
 * `local`: {@link SourceConnection.close} was called. `remote`: the process or its pipe ended. `session_lost`: the server does
 * not know the session any more, or does not answer when it is asked.
 */
export interface ConnectionEnd {
  reason: "local" | "remote" | "session_lost";
  cause?: unknown;
}

/** Options of {@link connectSource}. */
export interface ConnectOptions {
  /** Ends the attempt to connect; has no effect on the connection afterwards. */
  signal?: AbortSignal;
  clientInfo?: { name: string; version: string };
  /** Largest body, in bytes, that will be asked for. */
  maxBodyBytes?: number;
  /**
   * Largest single message, in bytes, that is accepted; a larger answer fails its own request alone. Default: three times
   * `maxBodyBytes`, and 64 MiB at least.
   */
  maxMessageBytes?: number;
  /** What a stdio server writes to standard error. Without it that output is dropped. */
  onStderr?: (chunk: string) => void;
  /** Problems that belong to no request, for a log. The text is free of the endpoint's secrets. */
  onProblem?: (message: string) => void;
  /** A credential was refused, whatever was asked for with it (P7). The text is free of the endpoint's secrets. */
  onUnauthorized?: (message: string) => void;
  /** Milliseconds without a message after which a process, or a session over HTTP, is asked for a sign of life. Default 60 000. */
  quietMs?: number;
}

/** JSON-RPC id of the request that opened a subscription; a server stamps it on what belongs to it (modern era). */
export type SubscriptionId = string | number;

/** A receiver of notifications. Each method tells why it did not take one, or nothing when it did. @internal */
export interface SourceListener {
  updated(uri: string, subscriptionId: SubscriptionId | undefined): IgnoredReason | undefined;
  listUpdated(subscriptionId: SubscriptionId | undefined): IgnoredReason | undefined;
  /** Nobody took it; told to one listener only, so that it is counted once. */
  ignored(reason: IgnoredReason, uri: string | undefined): void;
}

/**
 * One connection to one source, made by {@link connectSource}.
 *
 * Invariants:
 * 1. One `Client` per connection. A second connect on a live transport would let the old one kill the new.
 * 2. `closed` resolves exactly once and never rejects; an end that {@link close} asked for is `local`.
 * 3. After `close()` the server's process is gone, also when the handshake failed.
 */
export interface SourceConnection {
  readonly era: ProtocolEra;
  readonly protocolVersion: string;
  /** As the server names itself; a modern server may stay anonymous. */
  readonly server: { name: string; version: string } | undefined;
  readonly capabilities: SourceCapabilities;
  readonly closed: Promise<ConnectionEnd>;
  /** Ends the session and the server's process. Idempotent; resolves when the process is gone. */
  close(): Promise<void>;
  /** For the files of this folder only. @internal */
  readonly wire: SourceWire;
}

/** What the other files of this folder need of a connection. @internal */
export interface SourceWire {
  readonly client: Client;
  readonly requestTimeoutMs: number;
  /** Present over HTTP only. */
  readonly http: HttpWatch | undefined;
  readonly sessionId: string | undefined;
  /** How the connection ended, if it did. */
  readonly ended: ConnectionEnd | undefined;
  /** Installs a receiver of notifications; returns how to remove it. */
  listen(listener: SourceListener): () => void;
  /** The subscription id under which this filter object was sent. */
  subscriptionIdOf(filter: SubscriptionFilter): SubscriptionId | undefined;
  /** Tells what an error means, and ends the connection when it means that the session is lost. */
  failure(error: unknown, signal?: AbortSignal): FailureKind;
  /** What an error says, in one line, free of the endpoint's secrets and of answers' bodies. */
  explain(error: unknown): string;
  /** The error as it may ride as `cause`: free of the endpoint's secrets and of answers' bodies. */
  presentable(error: unknown): unknown;
  /** The error to throw for a failed request; `what` names the request. */
  error(what: string, error: unknown, signal?: AbortSignal): FencelineError<ConnectorErrorCode>;
}

/**
 * Connects to a source in whichever era its server speaks, and calls the endpoint's `afterConnect` tools. What was learned of an
 * endpoint (that it must not be asked for its era, that it wants to be left alone) is remembered by the object that names it.
 *
 * @throws {FencelineError} `source_endpoint_invalid`, `source_unreachable`, `source_unauthorized`, `source_forbidden`,
 * `source_failed`, `request_timeout`, `request_aborted`, `response_invalid`, `after_connect_failed`
 */
export async function connectSource(endpoint: SourceEndpoint, options: ConnectOptions = {}): Promise<SourceConnection> {
  const link = await openLink(endpoint, options);
  try {
    await link.callAfterConnect(endpoint.afterConnect ?? [], options.signal);
  } catch (error) {
    await link.close();
    throw error;
  }
  return link;
}

/**
 * Servers on standard input and output that speak the legacy era, by what they call themselves. They are not asked for their era
 * again: some end on that question, and would be started twice each time; some keep silent, and would be waited for.
 */
const legacyServers = new WeakMap<SourceEndpoint, string>();

async function openLink(endpoint: SourceEndpoint, options: ConnectOptions): Promise<SourceLink> {
  await ServerPatience.of(endpoint).wait(options.signal);
  if (!legacyServers.has(endpoint)) {
    const link = new SourceLink(endpoint, options);
    try {
      await link.shakeHands(options.signal);
      rememberEra(endpoint, link);
      return link;
    } catch (error) {
      await link.close();
      if (!link.processDied) throw error;
    }
  }
  // Some servers of the legacy era end on any request that comes before `initialize`, so also on the question for the era.
  const legacy = new SourceLink(endpoint, options);
  try {
    await legacy.shakeHands(options.signal, { kind: "legacy" });
    rememberEra(endpoint, legacy);
    return legacy;
  } catch (error) {
    legacyServers.delete(endpoint);
    await legacy.close();
    throw error;
  }
}

/** Another name or version is another server, which the next connection asks for its era. */
function rememberEra(endpoint: SourceEndpoint, { era, server }: SourceLink): void {
  if ("url" in endpoint || era !== "legacy") return;
  const name = JSON.stringify(server);
  const isSame = (legacyServers.get(endpoint) ?? name) === name;
  if (isSame) legacyServers.set(endpoint, name);
  else legacyServers.delete(endpoint);
}
