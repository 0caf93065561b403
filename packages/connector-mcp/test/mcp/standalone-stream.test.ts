import { describe, expect, test } from "vitest";
import { HttpWatch } from "#src/mcp/http-watch.js";
import { ServerPatience } from "#src/mcp/server-patience.js";
import { StandaloneStream } from "#src/mcp/standalone-stream.js";
import { serveHttp } from "./http-server.js";

const EVENTS = { accept: "text/event-stream" };

/** A stream whose answer comes in these pieces. */
async function passedOn(pieces: readonly string[]): Promise<string> {
  const stream = new StandaloneStream({ maxEventBytes: 1_000, request: async () => undefined });
  const encoder = new TextEncoder();
  const body = ReadableStream.from(pieces.map((piece) => encoder.encode(piece)));
  const response = await stream.answer(async () => new Response(body), "http://127.0.0.1/", undefined);
  return response.text();
}

describe("the notification stream of the older era", () => {
  test("shows the client no event ids, with which it would resume a stream whose gaps it does not know (U4)", async () => {
    const events = 'id: 1\nevent: message\ndata: {"id":1}\n\nid\ndata: id: 2\r\nid: 3\r\n\r\nidle: x\n: id: 4\n\n';
    const expected = 'event: message\ndata: {"id":1}\n\ndata: id: 2\r\n\r\nidle: x\n: id: 4\n\n';
    expect(await passedOn([events])).toBe(expected);
    expect(await passedOn([...events])).toBe(expected);
  });

  test("keeps what belongs to a data line, whatever separators stand in it", async () => {
    const events = 'data: {"text":"a\u2028id: 5\u2029id:"}\n\n';
    expect(await passedOn([events])).toBe(events);
  });

  test("is told as ended when the client lets go of it, and when it falls silent (U4)", async () => {
    const endOf = async (quietAfterMs: number, use: (answer: Response) => Promise<unknown>) => {
      const stream = new StandaloneStream({ maxEventBytes: 1_000, request: async () => undefined });
      stream.breakWhenQuiet(quietAfterMs);
      const ended = new Promise((resolve) => {
        stream.onBreak(resolve);
      });
      const silence = new Response(new ReadableStream());
      await use(await stream.answer(async () => silence, "http://127.0.0.1/", undefined));
      return ended;
    };
    expect(await endOf(60_000, async ({ body }) => body?.cancel("let go"))).toBe("let go");
    expect(await endOf(20, (answer) => answer.text())).toMatchObject({ code: "source_lost" });
  });

  test("is told from the stream of a single request that the client resumes: its end is no break (U4)", async () => {
    const server = await serveHttp(async (request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      if (request.headers["last-event-id"] === undefined) return response.flushHeaders();
      response.end(": the answer\n\n");
    });
    const watch = new HttpWatch({
      maxMessageBytes: 1_000,
      patience: new ServerPatience(),
      isModern: () => false,
      requestStream: async () => undefined,
    });
    const breaks: unknown[] = [];
    watch.standalone.onBreak((cause) => breaks.push(cause));
    const resumed = () => watch.fetch(server.url, { headers: { ...EVENTS, "last-event-id": "7" } });
    try {
      expect(await (await resumed()).text()).toBe(": the answer\n\n");
      await expect(watch.standalone.open(100)).rejects.toMatchObject({ code: "source_lost" });

      const notifications = await watch.fetch(server.url, { headers: EVENTS });
      expect(await watch.standalone.open(100)).toBe("open");
      expect(await (await resumed()).text()).toBe(": the answer\n\n");
      expect(breaks).toEqual([]);

      const another = await watch.fetch(server.url, { headers: EVENTS });
      expect(another.status).toBe(405);
      expect(server.log.filter((line) => line === "GET")).toHaveLength(3);

      server.cut();
      await expect(notifications.text()).rejects.toThrow();
      expect(breaks).toHaveLength(1);
    } finally {
      await server.close();
    }
  });
});
