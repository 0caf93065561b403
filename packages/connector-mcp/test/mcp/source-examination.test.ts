import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, onTestFinished, test } from "vitest";
import { ResourceChoice } from "#src/mcp/resource-choice.js";
import type { SourceEndpoint } from "#src/mcp/source-endpoint.js";
import { examineSource, type SourceExamination } from "#src/mcp/source-examination.js";
import { startLegacyServer } from "./legacy-server.js";
import { startModernServer } from "./modern-server.js";
import { type Reply, startScriptedServer } from "./scripted-server.js";

const stdioServer = fileURLToPath(new URL("stdio-server.mjs", import.meta.url));

/** A scripted server with these answers, examined. */
async function examineScripted(
  answers: Partial<Record<string, Reply>>,
  script: Omit<Parameters<typeof startScriptedServer>[0], "reply"> = {},
): Promise<SourceExamination> {
  const server = await startScriptedServer({ ...script, reply: (method) => answers[method] });
  onTestFinished(() => server.close());
  return examine({ url: server.url });
}

const examine = (endpoint: SourceEndpoint) =>
  examineSource({ requestTimeoutMs: 5_000, ...endpoint }, { maxBodyBytes: 1_000 });

const listed = (...uris: string[]): Reply => ({ result: { resources: uris.map((uri) => ({ uri, name: uri })) } });
const text = (uri: string, content: string): Reply => ({
  result: { contents: [{ uri, mimeType: "text/plain", text: content }] },
});
const codesOf = ({ problems }: SourceExamination) => problems.map(({ severity, code }) => `${severity} ${code}`);

describe("examining a source", () => {
  test("tells era, version, capabilities, what is pushed, a page, a read and how long each took", async () => {
    const server = await startModernServer();
    onTestFinished(() => server.close());

    expect(await examine({ url: server.url })).toEqual({
      endpoint: server.url,
      connection: {
        ms: expect.any(Number),
        era: "modern",
        protocolVersion: "2026-07-28",
        server: { name: "modern", version: "2.0.0" },
        capabilities: expect.objectContaining({ resources: true, subscribe: true, listChanged: true }),
        extensions: [],
      },
      list: { ms: expect.any(Number), entries: 3, chosen: 3, more: false },
      templates: [],
      delivery: { ms: expect.any(Number), pushed: 3, polled: 0, polledBecause: undefined, listChanges: "pushed" },
      read: { ms: expect.any(Number), uri: "note://a", outcome: "content", bytes: 5, mimeType: "text/plain" },
      problems: [],
    });
    expect(server.reads.get("note://a")).toBe(1);
    expect(server.streams.size).toBe(0);
  });

  test("tries out only what the configuration takes, and names the templates that it may name (§2)", async () => {
    const server = await startModernServer();
    onTestFinished(() => server.close());
    const examineChosen = (include: string[]) =>
      examineSource({ url: server.url }, { maxBodyBytes: 1_000, choice: new ResourceChoice({ include }) });

    const one = await examineChosen(["note://c"]);
    expect(one).toMatchObject({ list: { entries: 3, chosen: 1 }, delivery: { pushed: 1 }, read: { uri: "note://c" } });
    const none = await examineChosen(["nope://*"]);
    expect(none).toMatchObject({ list: { chosen: 0 }, delivery: { pushed: 0 }, read: undefined });
    expect(codesOf(none)).toEqual(["remark none_chosen"]);
    expect([...server.reads.keys()]).toEqual(["note://c"]);

    const { templates } = await examineScripted({
      "resources/list": listed(),
      "resources/templates/list": { result: { resourceTemplates: [{ uriTemplate: "note://{id}", name: "n" }] } },
    });
    expect(templates).toEqual(["note://{id}"]);
  });

  test("ends the process that it started", async () => {
    const folder = await mkdtemp(join(tmpdir(), "fenceline-examination-"));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const pidFile = join(folder, "pids");

    const examined = await examine({ command: process.execPath, args: [stdioServer], env: { PID_FILE: pidFile } });

    expect(examined).toMatchObject({ connection: { era: "modern", server: { name: "stdio" } }, problems: [] });
    expect(examined.read?.outcome).toBe("content");
    const pids = (await readFile(pidFile, "utf8")).trim().split("\n").map(Number);
    expect(pids.length).toBeGreaterThan(0);
    for (const pid of pids) expect(() => process.kill(pid, 0)).toThrow("ESRCH");
  });

  test("shows as polled what is not acknowledged, though subscriptions are offered (U3)", async () => {
    const examined = await examineScripted(
      { "resources/list": listed("note://a", "note://b"), "resources/read": text("note://a", "a") },
      { acknowledge: () => ({ resourceSubscriptions: ["note://a"] }) },
    );
    expect(examined.delivery).toMatchObject({ pushed: 1, polled: 1, listChanges: "polled" });
    expect(codesOf(examined)).toEqual(["remark not_acknowledged", "remark list_changes_not_acknowledged"]);
  });

  test("knows a server without resources from one that lists none (S9)", async () => {
    const without = await examineScripted({}, { capabilities: { tools: {} } });
    expect(codesOf(without)).toEqual(["fault resources_not_offered"]);
    expect(without).toMatchObject({ list: undefined, delivery: undefined, read: undefined });

    const none = await examineScripted({ "resources/list": listed() });
    expect(codesOf(none)).toEqual(["remark list_empty"]);
    expect(none.list).toMatchObject({ entries: 0, more: false });
  });

  test.each<[string, Reply, string]>([
    ["an error", { error: { code: -32603, message: "broken" } }, "fault list_failed"],
    ["401", { status: 401 }, "fault list_unauthorized"],
    ["403", { status: 403 }, "fault list_forbidden"],
    ["no method", { error: { code: -32601, message: "no" } }, "fault list_not_offered"],
  ])("a list answered with %s is a fault, with what to do", async (_, reply, expected) => {
    const examined = await examineScripted({ "resources/list": reply });
    expect(codesOf(examined)).toEqual([expected]);
    expect(examined.problems[0]?.advice.length).toBeGreaterThan(20);
    expect(examined.connection?.era).toBe("modern");
  });

  test("a read that fails is a remark where another one of the page can be read, else a fault", async () => {
    const one = { error: { code: -32603, message: "of the moment" } };
    const server = await startScriptedServer({
      reply: (method, { uri }) => {
        if (method === "resources/list") return listed("note://a", "note://b");
        return uri === "note://a" ? one : text("note://b", "b");
      },
    });
    onTestFinished(() => server.close());
    const examined = await examine({ url: server.url });
    expect(codesOf(examined)).toEqual(["remark read_failed"]);
    expect(examined.read).toMatchObject({ uri: "note://b", outcome: "content" });

    const none = await examineScripted({ "resources/list": listed("note://a", "note://b"), "resources/read": one });
    expect(codesOf(none)).toEqual(["fault read_failed", "fault read_failed"]);
  });

  test("names a malformed entry of the page, and uses the others", async () => {
    const examined = await examineScripted({
      "resources/list": { result: { resources: [{ uri: "note://a", name: "a" }, { uri: "note://b" }] } },
      "resources/read": text("note://a", "a"),
    });
    expect(codesOf(examined)).toEqual(["remark list_malformed"]);
    expect(examined.problems[0]?.message).toContain("note://b");
    expect(examined.read?.outcome).toBe("content");
  });

  test("a body above maxBodyBytes is named as that", async () => {
    const examined = await examineScripted({
      "resources/list": listed("note://a"),
      "resources/read": text("note://a", "x".repeat(1_001)),
    });
    expect(codesOf(examined)).toEqual(["fault read_too_large"]);
    expect(examined.problems[0]?.advice).toContain("settings.maxBodyBytes");
  });

  test("a legacy server without sessions is polled: what it would push has no way to arrive (U3)", async () => {
    const server = await startLegacyServer({ sessions: false });
    onTestFinished(() => server.close());
    const examined = await examine({ url: server.url });
    expect(examined.connection?.era).toBe("legacy");
    expect(examined.delivery).toMatchObject({ pushed: 0, polled: 1, listChanges: "polled" });
    expect(codesOf(examined)).toEqual(["remark not_acknowledged", "remark list_changes_not_acknowledged"]);
  });

  test("a legacy server with sessions pushes, and its session is ended", async () => {
    const server = await startLegacyServer();
    onTestFinished(() => server.close());
    const examined = await examine({ url: server.url });
    expect(examined.delivery).toMatchObject({ pushed: 1, polled: 0, listChanges: "pushed" });
    expect(server.sessions.size).toBe(0);
  });
});

describe("a source that cannot be reached", () => {
  test("over HTTP is told by the system's own code", async () => {
    const server = await startModernServer();
    await server.close();
    const examined = await examine({ url: server.url });
    expect(codesOf(examined)).toEqual(["fault source_unreachable"]);
    expect(examined.problems[0]?.message).toContain("ECONNREFUSED");
    expect(examined.connection).toBeUndefined();
  });

  test("as a command shows the line in which its process complained, without what the configuration keeps secret", async () => {
    const examined = await examine({
      command: process.execPath,
      args: ["-e", `throw new TypeError("no such token: " + process.env.TOKEN)`],
      env: { TOKEN: "secret-token-1" },
    });
    expect(codesOf(examined)).toEqual(["fault source_unreachable"]);
    expect(examined.problems[0]?.message).toContain("TypeError: no such token: ***");
    expect(JSON.stringify(examined)).not.toContain("secret-token-1");
  });

  test("under an address that is none is named so, and nothing is thrown", async () => {
    const examined = await examine({ url: "nonsense" });
    expect(codesOf(examined)).toEqual(["fault source_endpoint_invalid"]);
    expect(examined.endpoint).toBe("an endpoint that cannot be used");
  });
});
