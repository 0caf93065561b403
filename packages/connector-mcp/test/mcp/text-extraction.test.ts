import { describe, expect, test } from "vitest";
import { extractText } from "#src/mcp/text-extraction.js";

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

describe("text extraction", () => {
  test.each([
    "text/plain",
    "text/markdown; charset=UTF-8",
    "application/json",
    "application/ld+json",
    "application/xml",
    "application/rss+xml",
    "application/yaml",
  ])("bytes of %s become text", async (mimeType) => {
    const { texts, skipped } = await extractText([{ uri: "n://1", mimeType, bytes: utf8("größer 🙂") }]);
    expect(texts).toEqual([{ uri: "n://1", mimeType: mimeType.split(";")[0]?.toLowerCase(), text: "größer 🙂" }]);
    expect(skipped).toEqual([]);
  });

  test.each(["video/mp4", "image/svg+xml", "application/zip", "application/octet-stream", undefined])(
    "bytes of %s are recorded as not turned into text",
    async (mimeType) => {
      const part = { uri: "n://1", ...(mimeType && { mimeType }), bytes: utf8("text all the same") };
      expect(await extractText([part])).toEqual({
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
  ])("%s with bytes %j is refused by name, never repaired", async (mimeType, bytes, reason) => {
    const { texts, skipped } = await extractText([{ uri: "n://1", mimeType, bytes: new Uint8Array(bytes) }]);
    expect(texts).toEqual([]);
    expect(skipped).toEqual([{ uri: "n://1", mimeType, reason }]);
  });

  test("another character set is decoded by its name", async () => {
    const bytes = new Uint8Array([0x67, 0x72, 0xfc, 0x6e]);
    const { texts } = await extractText([{ uri: "n://1", mimeType: "text/plain; charset=latin1", bytes }]);
    expect(texts[0]?.text).toBe("grün");
  });

  test("what came as text is text, in the order of the parts and under their own URIs (F5)", async () => {
    const { texts, skipped } = await extractText([
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

/** A PDF of one page for each text. */
function pdfOf(...texts: readonly string[]): Uint8Array {
  const pages = texts.map((text) => `BT /F1 12 Tf 72 720 Td (${text}) Tj ET`);
  const objects = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    `<< /Type /Pages /Count ${pages.length} /Kids [${pages.map((_, page) => `${4 + 2 * page} 0 R`).join(" ")}] >>`,
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ...pages.flatMap((stream, page) => [
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents ${5 + 2 * page} 0 R /Resources << /Font << /F1 3 0 R >> >> >>`,
      `<< /Length ${stream.length} >>\nstream\n${stream}\nendstream`,
    ]),
  ];
  let file = "%PDF-1.4\n";
  const places = objects.map((object, number) => {
    const place = file.length;
    file += `${number + 1} 0 obj\n${object}\nendobj\n`;
    return place;
  });
  const table = places.map((place) => `${String(place).padStart(10, "0")} 00000 n \n`).join("");
  const size = objects.length + 1;
  file += `xref\n0 ${size}\n0000000000 65535 f \n${table}trailer\n<< /Size ${size} /Root 1 0 R >>\nstartxref\n${places.at(-1) ?? 0}\n%%EOF`;
  return utf8(file);
}

describe("formats", () => {
  const extracted = async (mimeType: string, content: string | Uint8Array) => {
    const body = typeof content === "string" ? { text: content } : { bytes: content };
    const { texts, skipped } = await extractText([{ uri: "n://1", mimeType, ...body }]);
    return texts[0] ?? skipped[0]?.reason;
  };

  test.each(["text/html; charset=utf-8", "application/xhtml+xml"])(
    "of %s what a reader sees is the text",
    async (type) => {
      const page = `<!doctype html><html><head><title>t</title><style>p { color: red }</style></head><body>
      <h1>Prices</h1><script>hidden()</script><p>The <b>price</b> is <a href="https://example.test/x">100&nbsp;&euro;</a>.</p>
      <ul><li>one</li><li>two</li></ul><table><tr><th>Plan</th><th>Price</th></tr><tr><td>Basic</td><td>100</td></tr></table></body></html>`;
      const found = await extracted(type, page);
      expect(found).toMatchObject({ mimeType: type.split(";")[0], textType: "text/plain" });
      const { text } = found as { text: string };
      expect(text).toMatch(/^Prices\n/);
      expect(text).toContain("The price is 100\u00a0€.");
      for (const word of ["one", "two", "Plan", "Basic"]) expect(text).toContain(word);
      for (const hidden of ["hidden", "color", "example.test", "<"]) expect(text).not.toContain(hidden);
    },
  );

  test("a table's rows name their columns, also where a row is short, long or quoted", async () => {
    const table = '\ufeffplan,price\nBasic,100\n\n"Pro, yearly",1200,extra\nFree\n';
    expect(await extracted("text/csv", table)).toMatchObject({
      text: "plan: Basic\nprice: 100\n\nplan: Pro, yearly\nprice: 1200\ncolumn 3: extra\n\nplan: Free",
    });
    expect(await extracted("text/csv", "only,names\n")).toMatchObject({ text: "only, names" });
  });

  test("the pages of a PDF are text, also where its base64 came as text", async () => {
    const bytes = pdfOf("Price is 100", "Second page");
    const expected = { mimeType: "application/pdf", textType: "text/plain", text: "Price is 100\n\nSecond page" };
    expect(await extracted("application/pdf", bytes)).toMatchObject(expected);
    expect(await extracted("application/pdf", Buffer.from(bytes).toString("base64"))).toMatchObject(expected);
    // It is still there to be read again.
    expect(await extracted("application/pdf", bytes)).toMatchObject(expected);
  });

  test.each([
    ["a PDF without text", "application/pdf", pdfOf(""), "no_text"],
    ["what is no PDF", "application/pdf", utf8("%PDF-1.4 and nothing more"), "format_unreadable"],
    ["a page of HTML that shows nothing", "text/html", "<script>x</script>", "no_text"],
    ["a table with an open quote", "text/csv", 'a,b\n"c', "format_unreadable"],
  ])("%s is recorded with the reason", async (_, type, content, reason) => {
    expect(await extracted(type, content)).toBe(reason);
  });
});
