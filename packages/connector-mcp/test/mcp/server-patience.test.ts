import { expect, test } from "vitest";
import { ServerPatience } from "#src/mcp/server-patience.js";

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
