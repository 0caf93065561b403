import { StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { StreamReopening } from "#src/mcp/stream-reopening.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** The SDK's transport with our reopening, before a server that answers each request for its stream as the script says. */
async function streamFrom(answer: () => Response) {
  const askedAt: number[] = [];
  const transport = new StreamableHTTPClientTransport(new URL("http://127.0.0.1/mcp"), {
    fetch: async () => {
      askedAt.push(performance.now());
      return answer();
    },
    reconnectionOptions: StreamReopening.sdkOptions,
    reconnectionScheduler: new StreamReopening().schedule,
  });
  await transport.start();
  await transport.resumeStream("");
  const pauses = () => askedAt.slice(1).map((at, before) => at - (askedAt[before] as number));
  return { pauses, close: () => transport.close() };
}

/** An event stream that ends at once, as cleanly as can be. */
const endedStream = (text = ""): Response =>
  new Response(text, { status: 200, headers: { "content-type": "text/event-stream" } });

test("a stream that the server ends cleanly, again and again, is resumed after ever longer pauses", async () => {
  const { pauses, close } = await streamFrom(() => endedStream());
  await vi.advanceTimersByTimeAsync(20_000);
  await close();

  // 0.5 s, doubled each time, give or take a fifth.
  expect(pauses().length).toBeGreaterThanOrEqual(4);
  for (const [at, pause] of pauses().entries()) {
    expect(pause).toBeGreaterThan(0.75 * 500 * 2 ** at);
    expect(pause).toBeLessThan(1.25 * 500 * 2 ** at);
  }
});

test("a stream that does not open any more is given up", async () => {
  const answers = [endedStream()];
  const { pauses, close } = await streamFrom(() => answers.pop() ?? new Response("no", { status: 503 }));
  await vi.advanceTimersByTimeAsync(60_000);
  await close();

  expect(pauses()).toHaveLength(4);
});

test("a server that names the time is asked again then, and later where that comes to nothing", async () => {
  const { pauses, close } = await streamFrom(() => endedStream("retry: 700\n\n"));
  await vi.advanceTimersByTimeAsync(6_000);
  await close();

  expect(pauses()[0]).toBe(700);
  expect(pauses()[1]).toBeGreaterThan(700);
});
