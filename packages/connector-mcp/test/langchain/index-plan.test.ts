import type { IndexWork } from "@fenceline/ledger";
import { MarkdownTextSplitter } from "@langchain/textsplitters";
import { describe, expect, test } from "vitest";
import { chunksOf, splitterFor } from "#src/langchain/chunks.js";
import { planVersion } from "#src/langchain/index-plan.js";
import type { TextFinding, TextPorts } from "#src/langchain/version-texts.js";

const SIZE = { chunkSize: 60, chunkOverlap: 0 };

function workOf(text: string, present: IndexWork["present"] = []): IndexWork {
  return {
    claimToken: "claim",
    subscriptionId: 1,
    ordinal: 7,
    lineageId: "lineage-7",
    source: "catalog",
    reader: "svc:rag",
    uri: "catalog://plans",
    title: "Plans",
    mimeType: "text/plain",
    parts: [{ partId: 10, uri: "catalog://plans/basic", mimeType: "text/plain", text }],
    present,
  };
}

const planOf = (work: IndexWork, ports: TextPorts = {}) =>
  planVersion(work, { digestChunk: (text) => `digest of ${text}`, chunkSize: SIZE, ...ports });

const presentOf = (...texts: string[]): IndexWork["present"] =>
  texts.map((text, position) => ({ entryId: `entry-${position}`, partId: 10, chunkDigest: `digest of ${text}` }));

const PARAGRAPHS = ["The basic plan has five gigabytes of storage.", "It costs 100 a month, without a contract."];

describe("planning a version", () => {
  test("unchanged chunks are kept, changed ones added, and the rest goes (L3)", async () => {
    const present = presentOf(PARAGRAPHS[0] as string, "It costs 90 a month.");
    const plan = await planOf(workOf(PARAGRAPHS.join("\n\n"), present));
    expect(plan.reused).toEqual(["entry-0"]);
    expect(plan.added.map(({ text }) => text)).toEqual([PARAGRAPHS[1]]);
  });

  test("a chunk that stands twice needs two entries, one that stands once keeps one of two (L3)", async () => {
    const [first] = PARAGRAPHS as [string, string];
    const twice = await planOf(workOf(`${first}\n\n${first}`, presentOf(first)));
    expect(twice).toMatchObject({ reused: ["entry-0"], added: [{ text: first }] });
    const once = await planOf(workOf(first, presentOf(first, first)));
    expect(once.reused).toHaveLength(1);
    expect(once.added).toEqual([]);
  });

  test("a chunk of another part with the same text is not reused: its URI is another (F5)", async () => {
    const present = presentOf("same text").map((entry) => ({ ...entry, partId: 11 }));
    expect(await planOf(workOf("same text", present))).toMatchObject({ reused: [], added: [{ text: "same text" }] });
  });

  test("metadata is flat and says nothing about readers or versions (L5)", async () => {
    const plan = await planOf(workOf("text"));
    expect(plan.added[0]?.metadata).toEqual({
      source: "catalog",
      uri: "catalog://plans/basic",
      resourceUri: "catalog://plans",
      mimeType: "text/plain",
      title: "Plans",
    });
  });

  test("a part that the guard refuses is left out with its reason, and what was indexed of it goes (§5)", async () => {
    const plan = await planOf(workOf("text", presentOf("text")), { guard: () => ({ reason: "text_too_large" }) });
    expect(plan).toMatchObject({
      reused: [],
      added: [],
      leftOut: [{ uri: "catalog://plans/basic", reason: "text_too_large" }],
      findings: [{ uri: "catalog://plans/basic", code: "refused", action: "reject" }],
    });
  });

  test("the reason why a part has no text is a finding of the version, in free words never (§5, P8)", async () => {
    const reasons = ["format_unreadable", "it says: price=100"];
    for (const [position, code] of ["format_unreadable", "no_text"].entries()) {
      const plan = await planOf(workOf("text"), { partToText: () => ({ reason: reasons[position] as string }) });
      expect(plan.findings).toEqual([{ uri: "catalog://plans/basic", code, action: "left_out" }]);
    }
  });

  test("the guard's findings travel with the chunk, and an entry without them is another one (§5)", async () => {
    const orders: TextFinding = { code: "detector", action: "flag", detector: "orders" };
    const bidi: TextFinding = { code: "bidi_control", action: "strip", count: 1 };
    const guard = (text: string) => ({ text: text.replace("\u202e", ""), findings: [orders, bidi, orders] });
    const plan = await planOf(workOf("te\u202ext", presentOf("text")), { guard });
    expect(plan.reused).toEqual([]);
    expect(plan.added).toMatchObject([{ text: "text", metadata: { guardFindings: "bidi_control detector:orders" } }]);
    const uri = "catalog://plans/basic";
    expect(plan.findings).toEqual([orders, bidi, orders].map((finding) => ({ uri, ...finding })));
    const again = presentOf(plan.added[0]?.digest.replace("digest of ", "") ?? "");
    expect((await planOf(workOf("te\u202ext", again), { guard })).reused).toEqual(["entry-0"]);
  });

  test("bytes are read as UTF-8 where they are text, and left out where they are not", async () => {
    const withBytes = (bytes: Uint8Array, mimeType: string): IndexWork => ({
      ...workOf(""),
      parts: [{ partId: 10, uri: "catalog://plans/basic", mimeType, bytes }],
    });
    const text = await planOf(withBytes(new TextEncoder().encode("grün"), "text/plain"));
    expect(text.added.map((chunk) => chunk.text)).toEqual(["grün"]);
    const broken = await planOf(withBytes(Uint8Array.of(0xff, 0xfe, 0x41), "text/plain"));
    expect(broken.leftOut).toMatchObject([{ reason: "invalid_utf8" }]);
    const image = await planOf(withBytes(Uint8Array.of(1), "image/png"));
    expect(image.leftOut).toMatchObject([{ reason: "mime_type_not_text" }]);
  });

  test("an empty or blank text has no chunks", async () => {
    expect(await planOf(workOf(" \n\n\t "))).toMatchObject({ reused: [], added: [], leftOut: [] });
  });
});

describe("cutting text", () => {
  test("Markdown is cut at headings", async () => {
    const text = `# Plans\n\nThere are two plans, as follows.\n\n## Basic\n\nIt costs 100 a month.\n\n## Pro\n\nIt costs 250 a month.`;
    const chunks = await chunksOf(text, splitterFor("text/markdown; charset=utf-8", SIZE));
    expect(chunks.map((chunk) => chunk.split("\n")[0])).toEqual(["# Plans", "## Basic", "## Pro"]);
  });

  test("no character is cut in half, wherever a text without separators is cut", async () => {
    const text = `x${"😀".repeat(500)}`;
    const chunks = await chunksOf(text, splitterFor("text/plain", { chunkSize: 50, chunkOverlap: 9 }));
    expect(chunks.length).toBeGreaterThan(10);
    for (const chunk of chunks) {
      expect(chunk.length).toBeLessThanOrEqual(50);
      expect(chunk).toMatch(/^x?(?:😀)+$/u);
    }
  });

  test("a megabyte without separators is cut to whole chunks that overlap, and nothing of it is lost", async () => {
    const text = Array.from({ length: 131_072 }, (_, n) => n.toString(36).padStart(8, "x")).join("");
    for (const [chunkSize, chunkOverlap] of [
      [1_000, 100],
      [1_000, 0],
      [997, 101],
      [1_000, 7],
    ] as const) {
      const chunks = await chunksOf(text, splitterFor("text/plain", { chunkSize, chunkOverlap }));
      expect(Math.max(...chunks.map(({ length }) => length))).toBeLessThanOrEqual(chunkSize);
      let end = 0;
      for (const chunk of chunks) {
        const start = text.indexOf(chunk, Math.max(0, end - chunkOverlap));
        expect(start).toBeGreaterThanOrEqual(Math.max(0, end - chunkOverlap));
        expect(start).toBeLessThanOrEqual(end);
        end = start + chunk.length;
      }
      expect(end).toBe(text.length);
      expect(chunks.length).toBeLessThan((1.3 * text.length) / (chunkSize - chunkOverlap));
    }
  });

  test("halves that a splitter of the caller's own leaves become U+FFFD, which every store can hold", async () => {
    const chunks = await chunksOf("a😀b", { splitText: async () => ["a\ud83d", "\ude00b"] });
    expect(chunks).toEqual(["a\ufffd", "\ufffdb"]);
  });

  test("a LangChain splitter of the caller's own is used as it is", async () => {
    const plan = await planVersion(workOf(PARAGRAPHS.join("\n\n")), {
      digestChunk: (text) => text,
      chunkSize: SIZE,
      splitter: new MarkdownTextSplitter({ chunkSize: 1_000, chunkOverlap: 0 }),
    });
    expect(plan.added).toHaveLength(1);
  });
});
