import { expect, onTestFinished, test, vi } from "vitest";
import { type ScriptedServer, startScriptedServer } from "../mcp/scripted-server.js";
import { configFor, newCast, startPool, useLedger } from "./pool-setup.js";

vi.setConfig({ testTimeout: 60_000 });
const within = { timeout: 30_000, interval: 20 };

const ledgerOf = useLedger();

/** Tells on every open stream that the list changed. */
function tellListChanged({ requests, send }: ScriptedServer): void {
  const listen = requests.findLast(({ method }) => method === "subscriptions/listen");
  const _meta = { "io.modelcontextprotocol/subscriptionId": listen?.id };
  send({ method: "notifications/resources/list_changed", params: { _meta } });
}

/** A server that answers each list with `uris`, and tells `onListed` first; served by a pool. */
async function served(uris: string[], onListed: (server: ScriptedServer) => void = () => undefined) {
  const server = await startScriptedServer({
    reply(method, params) {
      if (method === "resources/read") {
        return { result: { contents: [{ uri: params["uri"], mimeType: "text/plain", text: "a note" }] } };
      }
      if (method !== "resources/list") return undefined;
      walks.push(performance.now());
      onListed(server);
      return { result: { resources: uris.map((uri) => ({ uri, name: uri })) } };
    },
  });
  const walks: number[] = [];
  onTestFinished(() => server.close());
  const pool = await startPool(ledgerOf(), configFor(newCast(), server.url, { settings: { scanAttempts: 2 } }));
  return { server, walks, stats: () => pool.stats().sources[0], idle: () => pool.idle({ timeoutMs: 30_000 }) };
}

test("two hundred list_changed in a burst lead to two walks (S9)", async () => {
  const { server, walks, idle, stats } = await served(["note://a"]);
  expect(await idle()).toBe("idle");
  const before = walks.length;

  for (let sent = 0; sent < 200; sent += 1) tellListChanged(server);
  await expect.poll(() => walks.length, within).toBeGreaterThan(before);
  expect(await idle()).toBe("idle");

  expect(walks.length - before).toBe(2);
  expect(stats()?.scan).toEqual({ verdict: "SNAPSHOT_UNPROVEN", resources: 1 });
});

test("a list that itself triggers list_changed is served unsettled, and walked after longer and longer pauses (S4, S9)", async () => {
  const { walks, idle, stats } = await served(["note://a", "note://b"], tellListChanged);
  expect(await idle()).toBe("idle");
  expect(stats()).toMatchObject({ scan: { verdict: "UNSETTLED", resources: 2 }, reads: { accepted: 2 } });

  const walksPerDiscovery = 3;
  await expect.poll(() => walks.length, within).toBeGreaterThan(3 * walksPerDiscovery);
  const pauseBefore = (discovery: number) => {
    const [last, next] = walks.slice(discovery * walksPerDiscovery - 1);
    return (next as number) - (last as number);
  };
  expect(pauseBefore(1)).toBeGreaterThan(700);
  expect(pauseBefore(2)).toBeGreaterThan(1_400);
  expect(pauseBefore(3)).toBeGreaterThan(2_800);
});

test("one list_changed every 100 ms neither keeps what is new from being read, nor the walk going without a pause (S4, S9)", async () => {
  const uris = ["note://a"];
  const { server, walks, idle, stats } = await served(uris);
  expect(await idle()).toBe("idle");
  const before = walks.length;
  const stream = setInterval(() => tellListChanged(server), 100);
  onTestFinished(() => clearInterval(stream));
  uris.push("note://b");

  await expect.poll(() => stats()?.reads.accepted, within).toBe(2);
  uris.push("note://c");
  await expect.poll(() => stats()?.reads.accepted, within).toBe(3);

  // At most ten changes a second, each of which would have been walked for: the second resource is found after a pause or two.
  expect(walks.length - before).toBeLessThan(25);
});
