import { onTestFinished } from "vitest";
import { listChanged, type ScriptedServer, startScriptedServer, updated } from "../mcp/scripted-server.js";

export interface ScriptedNotes extends ScriptedServer {
  /** Text by URI; change it at will. */
  resources: Map<string, string>;
  reads: Map<string, number>;
  /** The URIs that each listen request asked for, in order. */
  listens(): string[][];
  /** Announces a change on the newest stream. */
  announce(uri: string): void;
  announceList(): void;
}

/** A server of the modern era with three notes, whose streams do what no SDK would. It is closed at the end of the test. */
export async function startScriptedNotes(
  script: Omit<Parameters<typeof startScriptedServer>[0], "reply"> = {},
): Promise<ScriptedNotes> {
  const resources = new Map([
    ["note://a", "first"],
    ["note://b", "second"],
    ["note://c", "third"],
  ]);
  const reads = new Map<string, number>();
  const server = await startScriptedServer({
    ...script,
    reply(method, { uri }) {
      if (method === "resources/list") {
        return { result: { resources: [...resources.keys()].map((listed) => ({ uri: listed, name: listed })) } };
      }
      const text = resources.get(String(uri));
      if (method !== "resources/read" || text === undefined) return undefined;
      reads.set(String(uri), (reads.get(String(uri)) ?? 0) + 1);
      return { result: { contents: [{ uri, mimeType: "text/plain", text }] } };
    },
  });
  onTestFinished(() => server.close());
  const newest = () => String(server.requests.findLast(({ method }) => method === "subscriptions/listen")?.id);
  return {
    ...server,
    resources,
    reads,
    announce: (uri) => server.send(updated(uri, newest())),
    announceList: () => server.send(listChanged(newest())),
    listens: () =>
      server.requests
        .filter(({ method }) => method === "subscriptions/listen")
        .map(
          ({ params }) => (params["notifications"] as { resourceSubscriptions?: string[] }).resourceSubscriptions ?? [],
        ),
  };
}
