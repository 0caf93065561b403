import { Listens, listenStatementsIn } from "#src/database/embedded/listens.js";
import { describe, expect, it } from "vitest";

describe("LISTEN statements of one connection", () => {
  it.each([
    ["LISTEN jobs", "jobs"],
    ['listen "Some ""Jobs"""', 'Some "Jobs"'],
    ["-- a comment\n-- and one more (pg_notify('x'))\nLISTEN jobs;\n", "jobs"],
    ["/* listen\n other */ listen jobs", "jobs"],
    ["select 1; listen jobs", "jobs"],
  ])("a LISTEN is found behind white space, comments and other statements: %j", (text, channel) => {
    const listens = new Listens();
    listens.apply(listenStatementsIn(text), ["LISTEN"], true);
    expect(listens.has(channel)).toBe(true);
  });

  it("a LISTEN that was rolled back listens to nothing", () => {
    const listens = new Listens();
    listens.apply(listenStatementsIn("listen jobs"), ["LISTEN"], false);
    listens.apply([], ["ROLLBACK"], true);
    expect(listens.has("jobs")).toBe(false);
  });
});
