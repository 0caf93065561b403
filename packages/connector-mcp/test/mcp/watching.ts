import { afterEach, vi } from "vitest";
import {
  openResourceStream,
  type ResourceStream,
  type ResourceStreamOptions,
  type StreamBreak,
} from "#src/mcp/resource-stream.js";
import { connectSource, type SourceConnection, type SourceEndpoint } from "#src/mcp/source-connection.js";

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

/** What is closed when the test ends. */
export function closing<T extends { close(): Promise<void> }>(one: T): T {
  opened.push(one);
  return one;
}

/** Everything a stream told, in the order in which it told it. */
export interface Told {
  stream: ResourceStream;
  updates: string[];
  listChanges: number;
  ends: StreamBreak[];
  ignored: string[];
}

export async function watching(
  connection: SourceConnection,
  uris: readonly string[],
  options: Partial<ResourceStreamOptions> = {},
): Promise<Told> {
  const told = { updates: [] as string[], listChanges: 0, ends: [] as StreamBreak[], ignored: [] as string[] };
  const stream = await openResourceStream(connection, {
    uris,
    listChanged: true,
    onUpdated: (uri) => told.updates.push(uri),
    onListChanged: () => {
      told.listChanges += 1;
    },
    onClosed: (end) => told.ends.push(end),
    onIgnored: (reason, uri) => told.ignored.push(`${reason} ${uri ?? ""}`.trim()),
    ...options,
  });
  closing(stream);
  return Object.assign(told, { stream });
}

export async function connected(endpoint: SourceEndpoint): Promise<SourceConnection> {
  return closing(await connectSource({ requestTimeoutMs: 5_000, ...endpoint }));
}

/** Tries until it opens, and tells why it did not before: the client's own first request may be one of those refused. */
export async function watchingAtLast(connection: SourceConnection, uris: readonly string[]) {
  const codes = new Set<unknown>();
  for (let tries = 1; ; tries += 1) {
    try {
      return { told: await watching(connection, uris), codes: [...codes] };
    } catch (error) {
      if (tries === 3) throw error;
      codes.add((error as { code?: unknown }).code);
    }
  }
}

export const eventually = (check: () => void): Promise<void> => vi.waitFor(check, { timeout: 10_000, interval: 5 });
