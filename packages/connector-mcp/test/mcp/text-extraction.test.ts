import { describe, expect, test } from "vitest";
import { extractText } from "#src/mcp/text-extraction.js";

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

describe("text extraction", () => {
  test.each([
    "text/plain",
    "text/markdown; charset=UTF-8",
    "TEXT/HTML",
    "application/json",
    "application/ld+json",
    "application/xml",
    "application/rss+xml",
    "application/yaml",
  ])("bytes of %s become text", (mimeType) => {
    const { texts, skipped } = extractText([{ uri: "n://1", mimeType, bytes: utf8("größer 🙂") }]);
    expect(texts).toEqual([{ uri: "n://1", mimeType: mimeType.split(";")[0]?.toLowerCase(), text: "größer 🙂" }]);
    expect(skipped).toEqual([]);
  });

  test.each(["video/mp4", "image/svg+xml", "application/pdf", "application/octet-stream", undefined])(
    "bytes of %s are recorded as not turned into text",
    (mimeType) => {
      const part = { uri: "n://1", ...(mimeType && { mimeType }), bytes: utf8("text all the same") };
      expect(extractText([part])).toEqual({
        texts: [],
        skipped: [{ uri: "n://1", mimeType: mimeType ?? "", reason: "mime_type_not_text" }],
      });
    },
  );

  test.each([
    ["text/plain", [0xc3, 0x28], "invalid_encoding"],
    ["application/json", [0xed, 0xa0, 0x80], "invalid_encoding"],
    ["text/plain; charset=klingon", [0x61], "unknown_charset"],
    ["no type at all", [0x61], "mime_type_invalid"],
  ])("%s with bytes %j is refused by name, never repaired", (mimeType, bytes, reason) => {
    const { texts, skipped } = extractText([{ uri: "n://1", mimeType, bytes: new Uint8Array(bytes) }]);
    expect(texts).toEqual([]);
    expect(skipped).toEqual([{ uri: "n://1", mimeType, reason }]);
  });

  test("another character set is decoded by its name", () => {
    const bytes = new Uint8Array([0x67, 0x72, 0xfc, 0x6e]);
    expect(extractText([{ uri: "n://1", mimeType: "text/plain; charset=latin1", bytes }]).texts[0]?.text).toBe("grün");
  });

  test("what came as text is text, in the order of the parts and under their own URIs (F5)", () => {
    const { texts, skipped } = extractText([
      { uri: "d://1", text: "one" },
      { uri: "d://2", mimeType: "image/png", bytes: utf8("x") },
      { uri: "d://3", mimeType: "text/html;profile=mcp-app", text: "three" },
    ]);
    expect(texts.map(({ uri, mimeType }) => [uri, mimeType])).toEqual([
      ["d://1", "text/plain"],
      ["d://3", "text/html"],
    ]);
    expect(skipped.map(({ uri }) => uri)).toEqual(["d://2"]);
  });
});
