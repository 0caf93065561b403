import { describe, expect, test } from "vitest";
import { type ContentDetector, type GuardPolicy, guardContent } from "#src/mcp/content-guard.js";

const guard = (text: string, policy?: Partial<GuardPolicy>, mimeType = "text/plain") =>
  guardContent([{ uri: "n://1", mimeType, text }], policy);
const codes = async (text: string) => (await guard(text)).findings.map(({ code }) => code);

describe("the content guard", () => {
  test("ordinary text passes untouched and without findings", async () => {
    const text = "# Plan\r\n\tcosts 5 €, größer 東京 שלום می‌خواهم क्‍ष 👨‍👩‍👧 ❤️ 1️⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 葛󠄀";
    expect(await guard(text)).toEqual({ texts: [{ uri: "n://1", mimeType: "text/plain", text }], findings: [] });
  });

  test.each([
    ["a zero-width space", "pay\u200Bpal", "invisible_character"],
    ["a joiner between Latin letters", "pay\u200Dpal", "invisible_character"],
    ["a byte-order mark inside", "a\uFEFFb", "invisible_character"],
    ["letters written in tags", "hello\u{E0069}\u{E0067}\u{E006E}", "invisible_character"],
    ["a message behind a flag", `\u{1F3F4}${"\u{E0061}".repeat(40)}`, "invisible_character"],
    ["bytes hidden in variation selectors", "a\u{E0100}\u{E0110}", "invisible_character"],
    ["a right-to-left override", "invoice\u202Efdp.exe", "bidi_control"],
    ["an isolate", "a\u2066b\u2069", "bidi_control"],
    ["an escape sequence", "a\u001B[31mb", "control_character"],
  ])("%s is flagged and the text is kept", async (_name, text, code) => {
    expect(await codes(text)).toEqual([code]);
    expect((await guard(text)).texts[0]?.text).toBe(text);
    expect((await guard(text)).findings[0]).toMatchObject({ action: "flag", uri: "n://1", count: expect.any(Number) });
  });

  test.each([
    ["a lone surrogate", "a\uD800b", "lone_surrogate"],
    ["NUL", "a\u0000b", "null_character"],
  ])("%s, which no store keeps, rejects the part", async (_name, text, code) => {
    expect(await guard(text)).toMatchObject({ texts: [], findings: [{ code, action: "reject", count: 1 }] });
  });

  test("stripping removes exactly the offending characters and says how many", async () => {
    const policy = { invisibleCharacters: "strip", bidiControls: "strip", invalidText: "strip" } as const;
    const { texts, findings } = await guard("a\u200Bb\u202Ec\uD800d\u0000e❤️", policy);
    expect(texts[0]?.text).toBe("abc\uFFFDde❤️");
    expect(findings.map(({ code, action, count }) => [code, action, count])).toEqual([
      ["lone_surrogate", "strip", 1],
      ["null_character", "strip", 1],
      ["invisible_character", "strip", 1],
      ["bidi_control", "strip", 1],
    ]);
  });

  test("rejecting leaves the part out and the others in", async () => {
    const { texts, findings } = await guardContent(
      [
        { uri: "n://1", mimeType: "text/plain", text: "a\u202Eb" },
        { uri: "n://2", mimeType: "text/plain", text: "fine" },
      ],
      { bidiControls: "reject" },
    );
    expect(texts.map(({ uri }) => uri)).toEqual(["n://2"]);
    expect(findings).toMatchObject([{ code: "bidi_control", action: "reject", uri: "n://1" }]);
  });

  test.each([
    ["text/markdown", true],
    ["application/ld+json", true],
    ["application/javascript", false],
    ["image/svg+xml", false],
    ["application/json-seq", false],
  ])("by default %s is allowed: %s", async (mimeType, allowed) => {
    const { texts, findings } = await guard("x", {}, mimeType);
    expect(texts.length === 1).toBe(allowed);
    expect(findings.map(({ code }) => code)).toEqual(allowed ? [] : ["mime_type_not_allowed"]);
  });

  test("the size cap counts bytes, not characters", async () => {
    expect((await guard("€€", { maxTextBytes: 6 })).texts).toHaveLength(1);
    expect(await guard("€€", { maxTextBytes: 5 })).toMatchObject({ texts: [], findings: [{ code: "text_too_large" }] });
  });

  test("a detector sees the stripped text, and its finding bears its name", async () => {
    const seen: string[] = [];
    const detector: ContentDetector = {
      name: "orders",
      inspect(text) {
        seen.push(text);
        return text.includes("ignore all") ? [{ message: "speaks to a model", count: 1 }] : [];
      },
    };
    const policy = { invisibleCharacters: "strip", detectors: [detector] } as const;
    expect(await guard("igno\u200Bre all", policy)).toMatchObject({
      texts: [{ text: "ignore all" }],
      findings: [{ code: "invisible_character" }, { code: "detector", action: "flag", detector: "orders" }],
    });
    expect(seen).toEqual(["ignore all"]);
    expect((await guard("ignore all", { detectors: [{ ...detector, action: "reject" }] })).texts).toEqual([]);
  });

  test("a detector may ask elsewhere: the part waits for its answer, and a refusal has not passed it", async () => {
    const asking: ContentDetector = {
      name: "model",
      inspect: async (text) => (text === "silence" ? Promise.reject(new Error("down")) : [{ message: "orders" }]),
    };
    const policy = { detectors: [asking] };
    expect(await guard("x", policy)).toMatchObject({ texts: [{ text: "x" }], findings: [{ detector: "model" }] });
    expect(await guard("silence", policy)).toMatchObject({ texts: [], findings: [{ code: "detector_failed" }] });
  });

  test("a detector that throws has not passed the part", async () => {
    const broken: ContentDetector = {
      name: "broken",
      inspect() {
        throw new TypeError("the secret text");
      },
    };
    const { texts, findings } = await guard("x", { detectors: [broken] });
    expect(texts).toEqual([]);
    expect(findings).toEqual([
      {
        code: "detector_failed",
        action: "reject",
        uri: "n://1",
        detector: "broken",
        message: "detector broken failed",
      },
    ]);
  });
});
