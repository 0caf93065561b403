import { describe, expect, test } from "vitest";
import { type Candidate, ResourceChoice } from "#src/mcp/resource-choice.js";
import { matchesWildcard } from "#src/wildcard.js";

describe("a pattern", () => {
  test.each([
    ["catalog://plans/*", "catalog://plans/basic", true],
    ["catalog://plans/*", "catalog://plans/", true],
    ["catalog://plans/*", "catalog://plan", false],
    ["*.md", "file:///a/b.md", true],
    ["*.md", "file:///a/b.md.bak", false],
    ["a*b*c", "a-b-b-c", true],
    ["a*bc*c", "abc", false],
    ["a*a", "a", false],
    ["*", "", true],
    ["a.c", "abc", false],
    ["**", "anything", true],
    ["sqlite:////data/a b?c#d", "sqlite:////data/a b?c#d", true],
  ])("%s on %s: %s", (pattern, text, matches) => {
    expect(matchesWildcard(pattern, text)).toBe(matches);
  });

  test("of many stars is decided in one pass over a long text", () => {
    expect(matchesWildcard("*a".repeat(1_000), "a".repeat(999))).toBe(false);
    expect(matchesWildcard("*a".repeat(1_000), "a".repeat(5_000))).toBe(true);
  });
});

describe("a choice", () => {
  const taken = (choice: ResourceChoice, ...entries: (string | Candidate)[]) =>
    entries.map((entry) => choice.takes(typeof entry === "string" ? { uri: entry } : entry));

  test("that is empty takes everything", () => {
    expect(new ResourceChoice().isEverything).toBe(true);
    expect(taken(new ResourceChoice(), "users/me", { uri: "urn:x:y", mimeType: "video/mp4" })).toEqual([true, true]);
  });

  test("takes what is included and not excluded, whichever comes first", () => {
    const choice = new ResourceChoice({ include: ["n://a/*", "n://b"], exclude: ["*/secret/*"] });
    expect(taken(choice, "n://a/1", "n://b", "n://b/1", "n://a/secret/1")).toEqual([true, true, false, false]);
  });

  test("knows a resource in another spelling of its URI (F10)", () => {
    const choice = new ResourceChoice({ exclude: ["n://x/~user/*"] });
    expect(taken(choice, "N://x/%7euser/1", "n://x/~user/1", "n://x/user/1")).toEqual([false, false, true]);
  });

  test("goes by the listed MIME type with and without its parameters, and takes what is listed without one", () => {
    const choice = new ResourceChoice({ mimeTypes: ["text/*", "application/json"] });
    const uri = "n://1";
    expect(
      taken(
        choice,
        { uri, mimeType: "Text/HTML; charset=utf-8" },
        { uri, mimeType: "application/json;x=1" },
        { uri, mimeType: "video/mp4" },
        uri,
      ),
    ).toEqual([true, true, false, true]);
  });

  test("takes what a configured template stands for, unless it is excluded, and of no other template anything", () => {
    const templates = { "n://users/{id}": { id: "completions" } } as const;
    const choice = new ResourceChoice({ include: ["n://plans/*"], exclude: ["n://users/root"], templates });
    const ofTemplate = (uri: string, uriTemplate = "n://users/{id}") => ({ uri, uriTemplate });
    expect(
      taken(
        choice,
        "n://plans/a",
        "n://users/7",
        ofTemplate("n://users/7"),
        ofTemplate("n://users/root"),
        ofTemplate("n://plans/a", "n://{+path}"),
      ),
    ).toEqual([true, false, true, false, false]);
    expect(new ResourceChoice().takes(ofTemplate("n://users/7"))).toBe(false);
  });
});
