import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { readResource } from "#src/mcp/fenced-read.js";
import { startModernServer } from "./modern-server.js";
import { startScriptedServer, updated } from "./scripted-server.js";
import { closing, connected, eventually, watching } from "./watching.js";

const STDIO_SERVER = fileURLToPath(new URL("stdio-server.mjs", import.meta.url));

describe("the modern stream", () => {
  test("what was acknowledged is compared with what was asked, and updates arrive (U2)", async () => {
    const server = closing(await startModernServer());
    const told = await watching(await connected({ url: server.url }), ["note://a", "note://b"]);
    expect(told.stream.acknowledged).toEqual(["note://a", "note://b"]);
    expect(told.stream.listChanged).toBe(true);
    server.notify.resourceUpdated("note://a");
    server.notify.resourceUpdated("note://c");
    server.notify.resourcesChanged();
    await eventually(() => expect(told.listChanges).toBe(1));
    expect(told.updates).toEqual(["note://a"]);
  });

  test.each<[string, (asked: Record<string, unknown>) => unknown, string[], string[]]>([
    ["narrowed", () => ({ resourceSubscriptions: ["note://b"] }), ["note://b"], []],
    [
      "widened",
      () => ({ resourceSubscriptions: ["note://a", "note://b", "note://x"] }),
      ["note://a", "note://b"],
      ["acknowledged_unasked note://x"],
    ],
    ["malformed", () => ({ resourceSubscriptions: "all" }), [], []],
    ["empty", () => ({}), [], []],
  ])(
    "after a %s acknowledgement only what was asked and acknowledged looks subscribed (U2, U3)",
    async (_name, acknowledge, acknowledged, ignored) => {
      const server = closing(await startScriptedServer({ acknowledge }));
      const told = await watching(await connected({ url: server.url }), ["note://a", "note://b"]);
      expect(told.stream.acknowledged).toEqual(acknowledged);
      expect(told.stream.listChanged).toBe(false);
      expect(told.ignored).toEqual(ignored);
      expect(told.ends).toEqual([]);
    },
  );

  test("what an acknowledgement leaves out is asked for again with the next addition that names it (U2, U3)", async () => {
    let listens = 0;
    const server = closing(
      await startScriptedServer({
        acknowledge(filter) {
          listens += 1;
          return listens === 1 ? { ...filter, resourceSubscriptions: ["note://a"] } : filter;
        },
      }),
    );
    const told = await watching(await connected({ url: server.url }), ["note://a", "note://b"]);
    expect(told.stream).toMatchObject({ acknowledged: ["note://a"], mayPush: true });
    expect(await told.stream.add(["note://b"])).toEqual(["note://b"]);
    expect(told.stream.acknowledged).toEqual(["note://a", "note://b"]);
    expect(await told.stream.add(["note://a"])).toEqual(["note://a"]);
    expect(listens).toBe(2);
    expect(told.ends).toEqual([]);
  });

  test("a server without subscribe acknowledges nothing, its list is watched, and that is no break (U1, U3)", async () => {
    const server = closing(await startModernServer({ capabilities: { resources: { listChanged: true } } }));
    const told = await watching(await connected({ url: server.url }), ["note://a"]);
    expect(told.stream.acknowledged).toEqual([]);
    expect(told.stream.listChanged).toBe(true);
    server.notify.resourcesChanged();
    await eventually(() => expect(told.listChanges).toBe(1));
  });

  test("a server that offers neither is not even asked (U1, U3)", async () => {
    const server = closing(await startScriptedServer({ capabilities: { resources: {} } }));
    const told = await watching(await connected({ url: server.url }), ["note://a"]);
    expect(told.stream.acknowledged).toEqual([]);
    expect(await told.stream.add(["note://b"])).toEqual([]);
    expect(server.log).not.toContain("POST subscriptions/listen");
    expect(told.ends).toEqual([]);
  });

  test("adding URIs opens the new stream before the old one closes (U4)", async () => {
    const server = closing(await startModernServer());
    const told = await watching(await connected({ url: server.url }), ["note://a"]);
    expect(await told.stream.add(["note://b"])).toEqual(["note://b"]);
    await eventually(() => expect(server.streams.size).toBe(1));
    const streams = server.log.filter((line) => line === "opened" || line === "closed");
    expect(streams).toEqual(["opened", "opened", "closed"]);
    expect(told.stream.acknowledged).toEqual(["note://a", "note://b"]);
    expect(told.ends).toEqual([]);
  });

  test("no update is lost while URIs are added again and again (U4)", async () => {
    const server = closing(await startModernServer());
    const connection = await connected({ url: server.url });
    const told = await watching(connection, ["note://0"]);
    for (let round = 1; round <= 20; round += 1) {
      const adding = told.stream.add([`note://${round}`]);
      const seen = told.updates.length;
      // Reads travel beside the stream; by their answers the change falls into different moments of the exchange.
      for (let reads = round % 4; reads > 0; reads -= 1)
        await readResource(connection, "note://a", { maxBodyBytes: 100 });
      server.notify.resourceUpdated("note://0");
      await eventually(() => expect(told.updates.length).toBeGreaterThan(seen));
      await adding;
    }
    expect(told.stream.acknowledged).toHaveLength(21);
    expect(told.ends).toEqual([]);
  });

  test("an addition that the server refuses leaves the stream as it was", async () => {
    const server = closing(await startModernServer());
    const told = await watching(await connected({ url: server.url }), ["note://a"]);
    server.refuseWith(403);
    await expect(told.stream.add(["note://b"])).rejects.toMatchObject({ code: "source_forbidden" });
    server.notify.resourceUpdated("note://a");
    await eventually(() => expect(told.updates).toEqual(["note://a"]));
    expect(told.stream.acknowledged).toEqual(["note://a"]);
    expect(told.ends).toEqual([]);
  });

  test("after an unsubscription is acknowledged nothing is delivered for its URI, and the rest goes on (U9, U10)", async () => {
    const server = closing(await startModernServer());
    const told = await watching(await connected({ url: server.url }), ["note://a", "note://b"]);
    expect(await told.stream.unsubscribe(["note://a"])).toEqual({ outcome: "acknowledged", unknown: [] });
    expect(told.stream.acknowledged).toEqual(["note://b"]);
    server.notify.resourceUpdated("note://a");
    server.notify.resourceUpdated("note://b");
    await eventually(() => expect(told.updates).toEqual(["note://b"]));
  });

  test("an unsubscription whose acknowledgement is lost is unknown, and silent all the same (U9)", async () => {
    const server = closing(await startModernServer());
    const told = await watching(await connected({ url: server.url }), ["note://a", "note://b"]);
    server.refuseWith(503);
    expect(await told.stream.unsubscribe(["note://a"])).toEqual({ outcome: "unknown", unknown: ["note://a"] });
    server.notify.resourceUpdated("note://a");
    server.notify.resourceUpdated("note://b");
    await eventually(() => expect(told.updates).toEqual(["note://b"]));
    expect(told.ignored).toEqual(["uri_not_subscribed note://a"]);
  });

  test("a notification of another subscription, of none, or for a URI nobody watches changes nothing and is told (U11)", async () => {
    const server = closing(await startScriptedServer({}));
    const told = await watching(await connected({ url: server.url }), ["note://a/b"]);
    server.send(updated("note://a/b", "listen:99"));
    server.send(updated("note://a/b", undefined));
    server.send(updated("note://a/bc", "listen:0"));
    server.send(updated("note://a", "listen:0"));
    server.send(updated("note://a/b", "listen:0"));
    await eventually(() => expect(told.updates).toEqual(["note://a/b"]));
    expect(told.ignored).toEqual([
      "other_subscription note://a/b",
      "subscription_unnamed note://a/b",
      "uri_not_subscribed note://a/bc",
      "uri_not_subscribed note://a",
    ]);
  });

  test("a notification below a watched URI invalidates that one (U11)", async () => {
    const server = closing(await startScriptedServer({}));
    const told = await watching(await connected({ url: server.url }), ["note://a", "note://a/b/"]);
    for (const uri of ["note://a/x", "note://a?page=2", "note://a#top", "note://a/b/c/d", "note://a"]) {
      server.send(updated(uri, "listen:0"));
    }
    await eventually(() => expect(told.updates).toHaveLength(6));
    expect(told.updates).toEqual(["note://a", "note://a", "note://a", "note://a/b/", "note://a", "note://a"]);
    expect(told.ignored).toEqual([]);
  });

  test("another spelling of a watched URI is that URI, in acknowledgements and in notifications (F10)", async () => {
    const acknowledge = () => ({ resourceSubscriptions: ["NOTE://a/%7euser"] });
    const server = closing(await startScriptedServer({ acknowledge }));
    const told = await watching(await connected({ url: server.url }), ["note://a/~user"]);
    expect(told.stream.acknowledged).toEqual(["note://a/~user"]);
    server.send(updated("Note://a/%7Euser", "listen:0"));
    server.send(updated("note://a/%7Euser/x", "listen:0"));
    server.send(updated("note://A/~user", "listen:0"));
    await eventually(() => expect(told.ignored).toEqual(["uri_not_subscribed note://A/~user"]));
    expect(told.updates).toEqual(["note://a/~user", "note://a/~user"]);
  });

  test("two streams of one connection do not count each other's notifications as ignored (U11)", async () => {
    const server = closing(await startModernServer());
    const connection = await connected({ url: server.url });
    const first = await watching(connection, ["note://a"], { listChanged: false });
    const second = await watching(connection, ["note://b"]);
    server.notify.resourceUpdated("note://a");
    server.notify.resourceUpdated("note://b");
    server.notify.resourcesChanged();
    await eventually(() => expect(second.listChanges).toBe(1));
    await eventually(() => expect([first.updates, second.updates]).toEqual([["note://a"], ["note://b"]]));
    expect([...first.ignored, ...second.ignored]).toEqual([]);
  });
});

describe("the end of a modern stream", () => {
  test("a cut is told once, as remote, while the connection goes on (U4)", async () => {
    const server = closing(await startModernServer());
    const connection = await connected({ url: server.url });
    const told = await watching(connection, ["note://a"]);
    server.cut();
    await eventually(() => expect(told.ends).toEqual([expect.objectContaining({ reason: "remote" })]));
    expect(told.stream.acknowledged).toEqual([]);
    expect(await readResource(connection, "note://a", { maxBodyBytes: 100 })).toMatchObject({ outcome: "content" });
    const again = await watching(connection, ["note://a"]);
    expect(again.stream.acknowledged).toEqual(["note://a"]);
    expect(told.ends).toHaveLength(1);
  });

  test("a goodbye of the server is told as graceful (U4)", async () => {
    const server = closing(await startModernServer());
    const told = await watching(await connected({ url: server.url }), ["note://a"]);
    await server.endStreams();
    await eventually(() => expect(told.ends).toEqual([expect.objectContaining({ reason: "graceful" })]));
  });

  test("a stream that ends together with its acknowledgement is told as ended, and does not look open for ever (U4)", async () => {
    const server = closing(await startScriptedServer({ listen: () => "end" }));
    const told = await watching(await connected({ url: server.url }), ["note://a"]);
    await eventually(() => expect(told.ends).toEqual([expect.objectContaining({ reason: "graceful" })]));
    expect(told.stream.acknowledged).toEqual([]);
  });

  test("a stream that looks resumable is not resumed into silence: its end is told, and no GET is sent (U4)", async () => {
    const server = closing(await startScriptedServer({ eventIds: true }));
    const told = await watching(await connected({ url: server.url }), ["note://a"]);
    server.cut();
    await eventually(() => expect(told.ends).toEqual([expect.objectContaining({ reason: "remote" })]));
    expect(server.log.filter((line) => line.startsWith("GET"))).toEqual([]);
  });

  test("what we close ourselves, stream or connection, is no break", async () => {
    const server = closing(await startModernServer());
    const connection = await connected({ url: server.url });
    const first = await watching(connection, ["note://a"]);
    const second = await watching(connection, ["note://b"]);
    await first.stream.close();
    await connection.close();
    await eventually(() => expect(server.streams.size).toBe(0));
    expect([...first.ends, ...second.ends]).toEqual([]);
  });

  test("the death of a server's process is told as the end of the connection (U4)", async () => {
    const connection = await connected({ command: process.execPath, args: [STDIO_SERVER] });
    const told = await watching(connection, ["note://a"]);
    expect(told.stream.acknowledged).toEqual(["note://a"]);
    await connection.wire.client.callTool({ name: "touch" });
    await eventually(() => expect(told.updates).toEqual(["note://a"]));
    await connection.wire.client.callTool({ name: "die" }).catch(() => {});
    await eventually(() => expect(told.ends).toEqual([expect.objectContaining({ reason: "connection" })]));
  });

  test("a stream is renewed before a silent response would be given up, without a break or a gap (U4)", async () => {
    const server = closing(await startModernServer());
    const told = await watching(await connected({ url: server.url }), ["note://a"], { renewAfterMs: 20 });
    await eventually(() => expect(server.log.filter((line) => line === "closed").length).toBeGreaterThan(2));
    // A close is noticed late now and then, after the next opening; what never happens is that none is open.
    let open = 0;
    const openAfterEach = server.log.flatMap((line) => {
      if (line !== "opened" && line !== "closed") return [];
      open += line === "opened" ? 1 : -1;
      return [open];
    });
    expect(Math.min(...openAfterEach)).toBe(1);
    expect(told.ends).toEqual([]);
    server.notify.resourceUpdated("note://a");
    await eventually(() => expect(told.updates).toContain("note://a"));
  });

  test.each([
    ["fewer URIs", { resourceSubscriptions: ["note://b"] }],
    ["the list no more", { resourcesListChanged: false }],
  ])(
    "a renewal that acknowledges %s is a break, so that nothing goes on looking subscribed (U3)",
    async (_what, less) => {
      let asked = 0;
      const server = closing(
        await startScriptedServer({
          acknowledge(filter) {
            asked += 1;
            return asked === 1 ? filter : { ...filter, ...less };
          },
        }),
      );
      const told = await watching(await connected({ url: server.url }), ["note://a", "note://b"], { renewAfterMs: 20 });
      await eventually(() => expect(told.ends).toEqual([expect.objectContaining({ reason: "remote" })]));
    },
  );

  test("a stream whose renewals nobody answers is told as broken, though its connection still looks open (U4)", async () => {
    const server = closing(await startModernServer());
    const told = await watching(await connected({ url: server.url }), ["note://a"], { renewAfterMs: 20 });
    server.refuseWith(503);
    await eventually(() => expect(told.ends).toEqual([expect.objectContaining({ reason: "remote" })]));
    expect(told.stream.acknowledged).toEqual([]);
  });

  test("a stream whose renewals are refused goes on: the server is there (U4)", async () => {
    let asked = 0;
    const server = closing(
      await startScriptedServer({
        listen() {
          asked += 1;
          return asked === 1 ? undefined : { status: 429 };
        },
      }),
    );
    const told = await watching(await connected({ url: server.url }), ["note://a"], { renewAfterMs: 20 });
    await eventually(() => expect(asked).toBeGreaterThan(4));
    server.send(updated("note://a", "listen:0"));
    await eventually(() => expect(told.updates).toEqual(["note://a"]));
    expect(told.ends).toEqual([]);
  });

  test("a refused opening is an error with its code, and leaves nothing open", async () => {
    const server = closing(await startModernServer());
    const connection = await connected({ url: server.url });
    server.refuseWith(401);
    await expect(watching(connection, ["note://a"])).rejects.toMatchObject({ code: "source_unauthorized" });
    expect(server.streams.size).toBe(0);
  });

  test("an opening that is never acknowledged is a timeout (U2)", async () => {
    const server = closing(await startScriptedServer({ acknowledge: () => "silence" }));
    const connection = await connected({ url: server.url, requestTimeoutMs: 1_000 });
    await expect(watching(connection, ["note://a"])).rejects.toMatchObject({ code: "request_timeout" });
  });
});
