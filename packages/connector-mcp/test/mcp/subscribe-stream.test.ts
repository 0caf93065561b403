import { createRequire } from "node:module";
import { describe, expect, test, vi } from "vitest";
import { readResource } from "#src/mcp/fenced-read.js";
import { startLegacyServer } from "./legacy-server.js";
import { closing, connected, eventually, watching, watchingAtLast } from "./watching.js";

const EVERYTHING = createRequire(import.meta.url).resolve("@modelcontextprotocol/server-everything/dist/index.js");

describe("the legacy stream", () => {
  test("each URI is subscribed, one that is refused does not look subscribed, and updates arrive (U2, U3)", async () => {
    const server = closing(await startLegacyServer());
    const told = await watching(await connected({ url: server.url }), ["note://a", "note://forbidden"]);
    expect(told.stream.acknowledged).toEqual(["note://a"]);
    expect(server.subscribed).toEqual(new Set(["note://a"]));
    await server.sendUpdated("note://a");
    await server.sendUpdated("note://other");
    await server.sendListChanged();
    await eventually(() => expect(told.listChanges).toBe(1));
    expect(told.updates).toEqual(["note://a"]);
    expect(told.ignored).toEqual(["uri_not_subscribed note://other"]);
  });

  test("URIs are added to the one stream, and unsubscribed with an acknowledgement (U9)", async () => {
    const server = closing(await startLegacyServer());
    const told = await watching(await connected({ url: server.url }), ["note://a"]);
    expect(await told.stream.add(["note://b", "note://forbidden"])).toEqual(["note://b"]);
    expect(await told.stream.unsubscribe(["note://a"])).toEqual({ outcome: "acknowledged", unknown: [] });
    expect(server.subscribed).toEqual(new Set(["note://b"]));
    expect(told.stream.acknowledged).toEqual(["note://b"]);
  });

  test("after a break of the stream an unsubscription still reaches the session (U9)", async () => {
    const server = closing(await startLegacyServer());
    const told = await watching(await connected({ url: server.url }), ["note://a"]);
    server.cut();
    await eventually(() => expect(told.ends).toHaveLength(1));
    expect(told.stream.acknowledged).toEqual([]);
    expect(await told.stream.unsubscribe(["note://a"])).toEqual({ outcome: "acknowledged", unknown: [] });
    expect(server.subscribed.size).toBe(0);
    await expect(told.stream.add(["note://b"])).rejects.toMatchObject({ code: "source_lost" });
  });

  test("an unsubscription that nobody confirms is unknown (U9)", async () => {
    const server = closing(await startLegacyServer());
    const told = await watching(await connected({ url: server.url }), ["note://a"]);
    server.refuseUnsubscribe();
    expect(await told.stream.unsubscribe(["note://a"])).toEqual({ outcome: "unknown", unknown: ["note://a"] });
    await server.sendUpdated("note://a");
    await eventually(() => expect(told.ignored).toEqual(["uri_not_subscribed note://a"]));
    expect(told.updates).toEqual([]);
  });

  test("the loss of the GET stream is a break, although the client reconnects by itself (U4)", async () => {
    const server = closing(await startLegacyServer());
    const connection = await connected({ url: server.url });
    const told = await watching(connection, ["note://a"]);
    server.cut();
    await eventually(() => expect(told.ends).toEqual([expect.objectContaining({ reason: "remote" })]));
    const again = await watching(connection, ["note://a"]);
    expect(again.stream.acknowledged).toEqual(["note://a"]);
    await server.sendUpdated("note://a");
    await eventually(() => expect(again.updates).toEqual(["note://a"]));
    expect(told.updates).toEqual([]);
  });

  test("a GET stream that is answered 503 is asked for again, and opens when the server has recovered (U3, U4)", async () => {
    const server = closing(await startLegacyServer());
    server.refuseNextStreams(503, 503);
    const connection = await connected({ url: server.url });
    const { told, codes } = await watchingAtLast(connection, ["note://a"]);
    expect(codes).toEqual(["source_unreachable"]);
    expect(told.stream.acknowledged).toEqual(["note://a"]);
    await server.sendUpdated("note://a");
    await eventually(() => expect(told.updates).toEqual(["note://a"]));
  });

  test.each([
    [401, "source_unauthorized"],
    [403, "source_forbidden"],
    [404, "source_failed"],
    [500, "source_failed"],
  ])("a GET stream that is answered %i may open the next time; only 405 is final (U3)", async (status, code) => {
    const server = closing(await startLegacyServer());
    server.refuseNextStreams(status, status);
    const connection = await connected({ url: server.url });
    const { told, codes } = await watchingAtLast(connection, ["note://a"]);
    expect(codes).toEqual([code]);
    expect(told.stream).toMatchObject({ acknowledged: ["note://a"], mayPush: true });
  });

  test("a server without a GET stream (405) pushes nothing, and is not asked again (U3)", async () => {
    const server = closing(await startLegacyServer());
    server.refuseNextStreams(405);
    const connection = await connected({ url: server.url });
    for (const _again of [1, 2]) {
      const told = await watching(connection, ["note://a"]);
      expect(told.stream).toMatchObject({ acknowledged: [], listChanged: false, mayPush: false });
    }
    expect(server.log.filter((line) => line === "GET")).toHaveLength(1);
    expect(server.subscribed.size).toBe(0);
  });

  test("a GET stream on which nothing comes for too long is broken from this side, and opens again (U4)", async () => {
    const server = closing(await startLegacyServer());
    const connection = await connected({ url: server.url });
    const told = await watching(connection, ["note://a"], { quietAfterMs: 50 });
    await eventually(() => expect(told.ends).toEqual([expect.objectContaining({ reason: "remote" })]));
    await eventually(() => expect(server.streams.size).toBe(0));
    const again = await watching(connection, ["note://a"]);
    await server.sendUpdated("note://a");
    await eventually(() => expect(again.updates).toEqual(["note://a"]));
  });

  test("a URI that was refused is asked for again with the next addition that names it (U3)", async () => {
    const server = closing(await startLegacyServer());
    server.refuseSubscribe("note://b");
    const told = await watching(await connected({ url: server.url }), ["note://a", "note://b"]);
    expect(told.stream.acknowledged).toEqual(["note://a"]);
    server.refuseSubscribe(undefined);
    expect(await told.stream.add(["note://b"])).toEqual(["note://b"]);
    expect(told.stream.acknowledged).toEqual(["note://a", "note://b"]);
  });

  test("a server that answers no subscribe is not asked thousands of times (U3)", async () => {
    const server = closing(await startLegacyServer());
    const uris = Array.from({ length: 1_000 }, (_, number) => `note://silent/${number}`);
    const connection = await connected({ url: server.url, requestTimeoutMs: 1_000 });
    await expect(watching(connection, uris)).rejects.toMatchObject({ code: "request_timeout" });
    expect(server.subscribed.size).toBeLessThan(100);
  });

  test("a server without sessions answers a subscribe and never notifies, so nothing looks subscribed (U3)", async () => {
    const server = closing(await startLegacyServer({ sessions: false }));
    const connection = await connected({ url: server.url });
    expect(connection).toMatchObject({ era: "legacy", capabilities: { subscribe: true } });
    const told = await watching(connection, ["note://a"]);
    expect(told.stream.acknowledged).toEqual([]);
    expect(told.stream.listChanged).toBe(false);
    expect(server.subscribed.size).toBe(0);
  });

  test("a forgotten session ends the stream with the connection (U4, U11)", async () => {
    const server = closing(await startLegacyServer());
    const connection = await connected({ url: server.url });
    const told = await watching(connection, ["note://a"]);
    server.forgetSessions();
    await readResource(connection, "note://a", { maxBodyBytes: 100 });
    await eventually(() => expect(told.ends).toEqual([expect.objectContaining({ reason: "connection" })]));
  });

  test("server-everything announces its subscribed resource over stdio", async () => {
    const connection = await connected({
      command: process.execPath,
      args: [EVERYTHING, "stdio"],
      requestTimeoutMs: 20_000,
    });
    const uri = "demo://resource/dynamic/text/1";
    const told = await watching(connection, [uri]);
    expect(told.stream.acknowledged).toEqual([uri]);
    await connection.wire.client.callTool({ name: "toggle-subscriber-updates" });
    await vi.waitFor(() => expect(told.updates).toContain(uri), { timeout: 15_000 });
  });
});
