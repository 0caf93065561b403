import { describe, expect, onTestFinished, test } from "vitest";
import { readResource } from "#src/mcp/fenced-read.js";
import { openResourceStream } from "#src/mcp/resource-stream.js";
import { ServerPatience } from "#src/mcp/server-patience.js";
import { connectSource } from "#src/mcp/source-connection.js";
import { type Reply, startScriptedServer } from "./scripted-server.js";

const START = Date.parse("2026-12-01T00:00:00Z");

function patience() {
  let now = 0;
  const one = new ServerPatience(
    () => now,
    () => START + now,
  );
  const answer = (status: number, retryAfter?: string) =>
    one.note({ status, headers: new Headers(retryAfter === undefined ? {} : { "Retry-After": retryAfter }) });
  return { one, answer, pass: (ms: number) => (now += ms) };
}

test.each([
  ["429 with seconds", 429, "7", 7_000],
  ["503 with seconds", 503, "2", 2_000],
  ["429 with a date", 429, "Tue, 01 Dec 2026 00:00:30 GMT", 30_000],
  ["429 with a date that has passed", 429, "Mon, 30 Nov 2026 00:00:00 GMT", 0],
  ["429 with more than five minutes", 429, "86400", 300_000],
  ["429 without a time", 429, undefined, 1_000],
  ["429 with something else", 429, "soon", 1_000],
  ["503 without a time", 503, undefined, 0],
  ["an answer", 200, "60", 0],
])("Retry-After: %s", (_name, status, header, remaining) => {
  const { one, answer } = patience();
  answer(status, header);
  expect(one.remainingMs).toBe(remaining);
});

test("refusals in a row without a time double the wait, those that come together count once, and an answer ends the row", () => {
  const { one, answer, pass } = patience();
  answer(429);
  answer(429);
  expect(one.remainingMs).toBe(1_000);
  pass(1_000);
  answer(429);
  expect(one.remainingMs).toBe(2_000);
  pass(2_000);
  answer(200);
  answer(429);
  expect(one.remainingMs).toBe(1_000);
});

describe("a server that asked to be left alone for a second", () => {
  /** Answers the first request of this method so, and tells what came before the second was over. */
  async function impatientServer(refused: string) {
    let until = 0;
    const early: string[] = [];
    const answer = (method: string): Reply | undefined => {
      if (until > performance.now()) early.push(method);
      if (until > 0 || method !== refused) return undefined;
      until = performance.now() + 1_000;
      return { status: 429, headers: { "retry-after": "1" } };
    };
    const server = await startScriptedServer({
      reply: answer,
      discover: () => answer("server/discover"),
      acknowledge(filter) {
        answer("subscriptions/listen");
        return filter;
      },
    });
    onTestFinished(() => server.close());
    return { url: server.url, early };
  }

  test("is asked for no stream before that", async () => {
    const { url, early } = await impatientServer("resources/read");
    const connection = await connectSource({ url });
    onTestFinished(() => connection.close());
    expect(await readResource(connection, "n://1", { maxBodyBytes: 100 })).toMatchObject({ outcome: "throttled" });

    const nothing = () => undefined;
    const streamed = { uris: ["n://1"], listChanged: false, onListChanged: nothing, onClosed: nothing };
    const stream = await openResourceStream(connection, { ...streamed, onUpdated: nothing });

    expect(stream.acknowledged).toEqual(["n://1"]);
    expect(early).toEqual([]);
  });

  test("is connected to no sooner, though the connection that it told so has ended", async () => {
    const { url, early } = await impatientServer("server/discover");
    const endpoint = { url };
    await expect(connectSource(endpoint)).rejects.toMatchObject({ code: "source_throttled" });
    early.splice(0);

    const connection = await connectSource(endpoint);
    onTestFinished(() => connection.close());

    expect(connection.era).toBe("modern");
    expect(early).toEqual([]);
  });
});
