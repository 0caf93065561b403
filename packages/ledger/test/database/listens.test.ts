import { describe, expect, test } from "vitest";
import { Listens, listenStatementsIn } from "#src/database/embedded/listens.js";

const listen = (channel: string) => ({ kind: "LISTEN", channel }) as const;

describe("LISTEN of one connection among those that share PGlite's session", () => {
  test("is found in a query's text, whatever stands around it", () => {
    expect(listenStatementsIn("-- a; listen no\nLISTEN Jobs;\n/* listen no */ unlisten *")).toEqual([
      listen("jobs"),
      { kind: "UNLISTEN", channel: undefined },
    ]);
    expect(listenStatementsIn(`select '; listen no'; listen "A ""b"" -- c"; select $x$; listen no$x$`)).toEqual([
      listen('A "b" -- c'),
    ]);
    expect(listenStatementsIn("select listen from t")).toEqual([]);
  });

  test("takes effect at commit, and not after a rollback or an error", () => {
    const listens = new Listens();
    listens.apply([listen("a")], ["BEGIN", "LISTEN"], false);
    expect(listens.has("a")).toBe(false);
    listens.apply([], ["COMMIT"], true);
    expect(listens.has("a")).toBe(true);
    listens.apply([listen("b")], ["BEGIN", "LISTEN", "ROLLBACK"], true);
    listens.apply([listen("c")], ["LISTEN", "ERROR"], true);
    expect([...listens.channels]).toEqual(["a"]);
    listens.apply([listen("d")], ["BEGIN", "SAVEPOINT", "LISTEN", "SAVEPOINT", "ROLLBACK"], false);
    listens.apply([], ["COMMIT"], true);
    expect([...listens.channels]).toEqual(["a", "d"]);
  });

  test("hears every channel when its text was not understood, and says when PGlite gave up a channel for all", () => {
    const listens = new Listens();
    expect(listens.apply([], ["LISTEN"], true)).toBe(false);
    expect(listens.has("anything")).toBe(true);
    expect(listens.apply([], ["DISCARD ALL"], true)).toBe(true);
    expect(listens.has("anything")).toBe(false);
  });
});
