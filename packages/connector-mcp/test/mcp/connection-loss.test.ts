import { describe, expect, onTestFinished, test } from "vitest";
import { readResource } from "#src/mcp/fenced-read.js";
import { type ConnectOptions, connectSource, type SourceEndpoint } from "#src/mcp/source-connection.js";
import { startLegacyServer } from "./legacy-server.js";
import { type Reply, startScriptedServer } from "./scripted-server.js";
import { stdioEndpoint } from "./stdio-endpoint.js";

const within = { timeout: 10_000, interval: 20 };

async function connect(endpoint: SourceEndpoint, options: ConnectOptions = {}) {
  const connection = await connectSource({ requestTimeoutMs: 2_000, ...endpoint }, options);
  onTestFinished(() => connection.close());
  return connection;
}

const read = (connection: Awaited<ReturnType<typeof connect>>, uri: string) =>
  readResource(connection, uri, { maxBodyBytes: 1_000 });

describe("a channel that fell silent", () => {
  test("because its process hangs is found out, and ends the connection (U4)", async () => {
    // Long enough for a process to begin on a busy machine.
    const endpoint = { ...stdioEndpoint("serve"), requestTimeoutMs: 5_000 };
    const connection = await connect(endpoint, { quietMs: 50 });
    process.kill(endpoint.pids()[0] as number, "SIGSTOP");
    await expect(connection.closed).resolves.toMatchObject({ reason: "session_lost" });
  });

  test("because nothing changes is asked again and again, and stays (U4)", async () => {
    const server = await startLegacyServer();
    onTestFinished(() => server.close());
    const connection = await connect({ url: server.url }, { quietMs: 50 });
    const asked = () => server.log.filter((line) => line === "POST").length;
    const before = asked();
    await expect.poll(asked, within).toBeGreaterThanOrEqual(before + 3);
    expect(connection.wire.ended).toBeUndefined();
  });

  test("because the server forgot its session is found out, though nothing was asked for (U4)", async () => {
    const server = await startLegacyServer();
    onTestFinished(() => server.close());
    const connection = await connect({ url: server.url }, { quietMs: 50 });
    server.forgetSessions();
    await expect(connection.closed).resolves.toMatchObject({ reason: "session_lost" });
  });
});

describe("an answer that is none", () => {
  const odd: [string, Reply, string][] = [
    [
      "a page",
      { status: 200, headers: { "content-type": "text/html" }, body: "<html>please log in</html>" },
      "invalid",
    ],
    ["no JSON", { status: 200, headers: { "content-type": "application/json" }, body: "oops" }, "failed"],
    ["no JSON-RPC", { status: 200, headers: { "content-type": "application/json" }, body: "{}" }, "failed"],
    ["400 with plain text", { status: 400, body: "no" }, "failed"],
    ["410", { status: 410, body: "gone" }, "failed"],
  ];

  test.each(odd)("for one resource, %s, ends no connection that answers otherwise (U4)", async (_, reply, outcome) => {
    const server = await startScriptedServer({
      reply: (method, { uri }) =>
        method === "resources/read"
          ? uri === "n://odd"
            ? reply
            : { result: { contents: [{ uri: "n://1", text: "one" }] } }
          : undefined,
    });
    onTestFinished(() => server.close());
    const connection = await connect({ url: server.url });
    const asked = () => server.requests.filter(({ method }) => method === "server/discover").length;
    expect(asked()).toBe(1);

    expect(await read(connection, "n://odd")).toMatchObject({ outcome });
    await expect.poll(asked, within).toBe(2);
    expect(await read(connection, "n://1")).toMatchObject({ outcome: "content" });
    expect(connection.wire.ended).toBeUndefined();
  });

  test("that speaks of a session and is about one resource ends no session (U4)", async () => {
    const server = await startLegacyServer();
    onTestFinished(() => server.close());
    server.refuseReads({ code: -32001, message: "the session of this note was not found" });
    const connection = await connect({ url: server.url });
    const pinged = () => server.asked.includes("ping");
    expect(await read(connection, "note://a")).toMatchObject({ outcome: "failed" });
    await expect.poll(pinged, within).toBe(true);
    expect(await read(connection, "note://a")).toMatchObject({ outcome: "failed" });
    expect(connection.wire.ended).toBeUndefined();
  });

  test("of 404 that says in it that a resource is not there ends no session (U4, F7)", async () => {
    const server = await startLegacyServer();
    onTestFinished(() => server.close());
    server.refuseReads({ code: -32602, message: "no such note" }, 404);
    const connection = await connect({ url: server.url });
    expect(await read(connection, "note://a")).toMatchObject({ outcome: "not_found" });
    expect(connection.wire.ended).toBeUndefined();
  });

  test.each(odd)("for everything, %s, ends the connection: it is another server by now (U4)", async (_, reply) => {
    let isOther = false;
    const server = await startScriptedServer({
      reply: () => (isOther ? reply : undefined),
      discover: () => (isOther ? reply : undefined),
    });
    onTestFinished(() => server.close());
    const connection = await connect({ url: server.url });
    isOther = true;
    await read(connection, "n://1");
    await expect(connection.closed).resolves.toMatchObject({ reason: "session_lost" });
  });
});
