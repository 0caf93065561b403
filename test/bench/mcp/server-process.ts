import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

/** What the server is asked to do; it answers when that is done. */
export type ToServer =
  | { do: "change_with_every_read" }
  | { do: "change"; changes: number; perSecond: number; times: number; overMs: number };

export type FromServer = { url: string } | { done: ToServer["do"] };

export interface CatalogServer {
  readonly url: string;
  ask(message: ToServer): Promise<void>;
  close(): Promise<void>;
}

/** Starts the server in a process of its own, so that neither its time nor its memory counts as the connector's. */
export async function startCatalogServer(resources: number): Promise<CatalogServer> {
  const child = fork(fileURLToPath(new URL("catalog-server.js", import.meta.url)), [String(resources)]);
  const greeting = await nextMessage(child);
  if (!("url" in greeting)) throw new TypeError("The server's first message is its address.");
  return {
    url: greeting.url,
    async ask(message) {
      const answer = nextMessage(child);
      child.send(message);
      await answer;
    },
    async close() {
      if (child.exitCode !== null) return;
      const exit = once(child, "exit");
      child.disconnect();
      await exit;
    },
  };
}

async function nextMessage(child: ChildProcess): Promise<FromServer> {
  const ended = new AbortController();
  const exit = once(child, "exit", { signal: ended.signal }).then(
    () => Promise.reject(new TypeError("The benchmark's server ended.")),
    () => new Promise<never>(() => undefined),
  );
  try {
    const [message] = (await Promise.race([once(child, "message", { signal: ended.signal }), exit])) as [FromServer];
    return message;
  } finally {
    ended.abort();
  }
}
