// biome-ignore-all lint/suspicious/noTemplateCurlyInString: such references are what is tested
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defaultReadTiming } from "@fenceline/ledger";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { configuredSources } from "#src/config/configured-sources.js";
import { defineConfig, loadConfig } from "#src/config/load-config.js";
import { readTimingOf } from "#src/config/read-timing.js";

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "fenceline-config-"));
});

afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});

async function fileWith(config: unknown): Promise<string> {
  const file = join(folder, "fenceline.config.json");
  await writeFile(file, typeof config === "string" ? config : JSON.stringify(config));
  return file;
}

const catalog = { url: "http://127.0.0.1:3000/mcp", reader: "svc:rag" };

describe("a configuration file", () => {
  test("has the content guard on, and names each of its fields that is wrong (§5)", async () => {
    const { guard } = await loadConfig(await fileWith({ mcpServers: { catalog } }), {});
    expect(guard).toMatchObject({
      maxTextBytes: 4_194_304,
      invalidText: "reject",
      bidiControls: "flag",
      detectors: [],
    });

    const wrong = { maxTextBytes: 0, bidiControls: "warn", invalidText: "flag", detectors: [{ name: "x" }], colour: 1 };
    const failed = loadConfig(await fileWith({ mcpServers: { catalog }, guard: wrong }), {});
    for (const field of ["maxTextBytes", "bidiControls", "invalidText", "detectors.0", "colour"]) {
      await expect(failed).rejects.toThrow(`guard.${field}: `);
    }
  });

  test("needs only its sources; every other field has the default the specification names (§9)", async () => {
    const config = await loadConfig(await fileWith({ mcpServers: { catalog } }), {});

    expect(config.ledger).toBe(`file:${join(folder, ".fenceline")}`);
    expect(config.queue).toBe("embedded");
    expect(config.indexes).toEqual({
      main: { store: "embedded", embeddings: "local", version: 1, chunkSize: 1_000, chunkOverlap: 100 },
    });
    expect(config.settings).toMatchObject({
      stalenessMs: 900_000,
      pollMs: 60_000,
      rereadMs: 600_000,
      scanAttempts: 5,
      reviewMs: 600_000,
      maxBodyBytes: 8_388_608,
      coalesceMs: 100,
    });
  });

  test("takes addresses and credentials from the environment, and only in the fields that hold them", async () => {
    const file = await fileWith({
      ledger: "postgres://${DB_USER}@127.0.0.1/test",
      mcpServers: {
        catalog: { ...catalog, headers: { Authorization: "Bearer ${TOKEN}" }, reader: "svc:${TOKEN}" },
        local: { command: "serve-${TOKEN}", env: { KEY: "${TOKEN}" }, reader: "svc:rag" },
      },
    });

    const config = await loadConfig(file, { DB_USER: "fence", TOKEN: "s3cret" });

    expect(config.ledger).toBe("postgres://fence@127.0.0.1/test");
    expect(config.mcpServers["catalog"]?.headers).toEqual({ Authorization: "Bearer s3cret" });
    expect(config.mcpServers["catalog"]?.reader).toBe("svc:${TOKEN}");
    expect(config.mcpServers["local"]?.command).toBe("serve-${TOKEN}");
    expect(config.mcpServers["local"]?.env).toEqual({ KEY: "s3cret" });
  });

  test("that names a variable which is not set is refused with the field and the variable's name", async () => {
    const file = await fileWith({
      mcpServers: { catalog: { ...catalog, headers: { Authorization: "Bearer ${CATALOG_TOKEN}" } } },
    });

    await expect(loadConfig(file, {})).rejects.toMatchObject({
      code: "config_invalid",
      message: expect.stringContaining(
        "mcpServers.catalog.headers.Authorization: environment variable CATALOG_TOKEN is not set",
      ),
    });
  });

  test("with several wrong fields is refused once, naming each with the kind of what is there and never its value", async () => {
    const secret = "sk-live-0123456789";
    const file = await fileWith({
      queue: secret,
      mcpServers: {
        catalog: { url: secret, headers: { Authorization: 7 }, reader: "svc:rag" },
        both: { command: "serve", url: "http://127.0.0.1/", reader: "svc:rag" },
        nobody: { command: "serve" },
      },
      grants: [{ source: "elsewhere", reader: "svc:rag", audience: "group:sales" }],
      indexes: { main: { store: { type: "pgvector", address: secret }, chunkSise: 5 } },
      settings: { pollMs: "60s" },
    });

    const error: unknown = await loadConfig(file, {}).catch((thrown: unknown) => thrown);

    expect(error).toMatchObject({ code: "config_invalid" });
    const { message } = error as Error;
    for (const line of [
      'queue: expected "embedded", redis://… or postgres://…, got string',
      "mcpServers.catalog.url: expected an address that begins with http:// or https://, got string",
      "mcpServers.catalog.headers.Authorization: expected string, got number",
      "mcpServers.both: expected exactly one of command and url, got object",
      "mcpServers.nobody: expected exactly one of reader and readers, got object",
      "grants.0: expected exactly one of uri, prefix and everything, got object",
      "indexes.main.store.address: expected an address that begins with file: or postgres://",
      "indexes.main.chunkSise: no such field",
      "settings.pollMs: expected number, got string",
    ]) {
      expect(message).toContain(line);
    }
    expect(message).not.toContain(secret);
  });

  test("that is not JSON is refused without quoting it, and one that is missing says what to do", async () => {
    const broken = await fileWith('{ "queue": "redis://:hunter2@127.0.0.1" ');

    const error: unknown = await loadConfig(broken, {}).catch((thrown: unknown) => thrown);

    expect(error).toMatchObject({ code: "config_invalid", message: expect.stringContaining("line 1, column 41") });
    expect((error as Error).message).not.toContain("hunter2");
    await expect(loadConfig(await fileWith('\ufeff{ "mcpServers": {} }'), {})).resolves.toMatchObject({
      mcpServers: {},
    });
    await expect(loadConfig(folder, {})).rejects.toMatchObject({
      code: "config_invalid",
      message: expect.stringContaining("directory"),
    });
    await expect(loadConfig(join(folder, "absent.json"), {})).rejects.toMatchObject({
      code: "config_missing",
      message: expect.stringContaining("--config"),
    });
  });
});

describe("a configuration in code", () => {
  test("may hand an index its own embeddings and store, and keeps them as they are", () => {
    const embeddings = { embedDocuments: async () => [], embedQuery: async () => [] };
    const store = { kind: "mine", write: async () => undefined, remove: async () => {}, present: async () => [] };

    const config = defineConfig({ mcpServers: { catalog }, indexes: { main: { embeddings, store } } } as never);

    expect(config.indexes["main"]?.embeddings).toBe(embeddings);
    expect(config.indexes["main"]?.store).toBe(store);
  });

  test("with an interval that no timer holds is refused, for it would pass at once", () => {
    const settings = { reviewMs: 30 * 24 * 3_600_000 };
    expect(() => defineConfig({ mcpServers: { catalog }, settings })).toThrow(/settings\.reviewMs: /);
  });

  test("with a grant of a source that is not configured is refused", () => {
    const grants = [{ source: "catalogue", reader: "svc:rag", audience: "group:sales", everything: true as const }];

    expect(() => defineConfig({ mcpServers: { catalog }, grants })).toThrow(
      "grants.0.source: expected a name under mcpServers, got string",
    );
  });
});

describe("the read timing of a configuration", () => {
  test("carries the configured intervals to the ledger, and the ledger's own for the rest", () => {
    const config = defineConfig({
      mcpServers: { catalog },
      settings: { pollMs: 5_000, rereadMs: 7_000, removalFloor: { count: 1, share: 0.5 } },
    });

    expect(readTimingOf(config)).toEqual({
      ...defaultReadTiming,
      polledIntervalMs: 5_000,
      pushedIntervalMs: 7_000,
      removalFloorCount: 1,
      removalFloorShare: 0.5,
    });
  });
});

describe("the sources of a configuration", () => {
  test("take their token from the source's auth, or from the reader's own (G1)", () => {
    const auth = {
      type: "client_credentials" as const,
      clientId: "c",
      clientSecret: "s",
      issuer: "https://auth.example.test",
    };
    const own = { type: "command" as const, command: ["print-token"] };
    const config = defineConfig({
      mcpServers: { docs: { url: "http://127.0.0.1:1/mcp", auth, readers: { "svc:a": {}, "svc:b": { auth: own } } } },
    });
    expect(
      configuredSources(config).map(({ reader, endpoint }) => [reader, "url" in endpoint && endpoint.auth]),
    ).toEqual([
      ["svc:a", auth],
      ["svc:b", own],
    ]);
    const spoken = { mcpServers: { docs: { command: "server", auth, reader: "svc:a" } } };
    expect(() => defineConfig(spoken)).toThrow("auth belongs to a url");
  });

  test("are one for each reader, each with its own headers laid over the common ones (G1)", () => {
    const config = defineConfig({
      mcpServers: {
        catalog: {
          url: "http://127.0.0.1:3000/mcp",
          headers: { "X-Tenant": "a", Authorization: "common" },
          readers: { "svc:sales": { headers: { Authorization: "sales" } }, "svc:rag": {} },
        },
        off: { command: "serve", reader: "svc:rag", disabled: true },
      },
    });

    expect(configuredSources(config).map(({ name, reader, endpoint }) => ({ name, reader, endpoint }))).toEqual([
      {
        name: "catalog",
        reader: "svc:sales",
        endpoint: {
          url: "http://127.0.0.1:3000/mcp",
          headers: { "X-Tenant": "a", Authorization: "sales" },
          requestTimeoutMs: 60_000,
        },
      },
      {
        name: "catalog",
        reader: "svc:rag",
        endpoint: {
          url: "http://127.0.0.1:3000/mcp",
          headers: { "X-Tenant": "a", Authorization: "common" },
          requestTimeoutMs: 60_000,
        },
      },
    ]);
  });

  test("take from the general settings whatever they do not restate", () => {
    const config = defineConfig({
      settings: { coalesceMs: 250, maxBodyBytes: 1_000 },
      mcpServers: { catalog: { ...catalog, settings: { maxBodyBytes: 2_000 } } },
    });

    expect(configuredSources(config)[0]?.settings).toMatchObject({
      coalesceMs: 250,
      maxBodyBytes: 2_000,
      stalenessMs: 900_000,
    });
  });
});

describe("what is taken of a source", () => {
  const withResources = (resources: unknown) => fileWith({ mcpServers: { catalog: { ...catalog, resources } } });

  test("is given by patterns, types and templates, beside budgets of its own over those of all (§2)", async () => {
    const resources = {
      include: ["catalog://*"],
      exclude: ["*/internal/*"],
      mimeTypes: ["text/*"],
      templates: { "catalog://{region}/{+path}{?q*}": { region: ["eu"], path: "completions", q: ["x"] } },
    };
    const config = await loadConfig(
      await fileWith({
        mcpServers: { catalog: { ...catalog, resources, settings: { scanBudgets: { pages: 7 } } } },
        settings: { scanBudgets: { entries: 9 } },
      }),
      {},
    );
    expect(configuredSources(config)).toMatchObject([
      { choice: resources, settings: { scanBudgets: { pages: 7, entries: 9, bytes: 4 * 1024 ** 3 } } },
    ]);
  });

  test.each([
    [{ include: [] }, "resources.include: "],
    [{ exclude: [""] }, "resources.exclude.0: "],
    [{ mimeTypes: "text/*" }, "resources.mimeTypes: expected array, got string"],
    [{ uris: ["a"] }, "resources.uris: no such field"],
    [
      { templates: { "n://{a}": { a: 7 } } },
      'resources.templates.n://{a}.a: expected a list of values, or "completions"',
    ],
    [
      { templates: { "n://{a}/{b}": { a: ["1"] } } },
      "resources.templates.n://{a}/{b}.b: expected values of this variable",
    ],
    [
      { templates: { "n://{a}": { a: ["1"], c: ["2"] } } },
      "resources.templates.n://{a}.c: expected one of the template's variables (a), got array",
    ],
    [{ templates: { "n://{a": {} } }, "resources.templates.n://{a: expected a URI template (RFC 6570)"],
    [{ templates: { "n://{a:3}": {} } }, "resources.templates.n://{a:3}: expected a URI template (RFC 6570)"],
  ])("names what is wrong with %j", async (resources, said) => {
    await expect(loadConfig(await withResources(resources), {})).rejects.toThrow(`mcpServers.catalog.${said}`);
  });
});
