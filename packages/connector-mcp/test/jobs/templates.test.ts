import { expect, onTestFinished, test } from "vitest";
import type { FencelineConfigInput } from "#src/config/config-schema.js";
import { type Params, type Reply, startScriptedServer } from "../mcp/scripted-server.js";
import { ask, configFor, newCast, startPool, useLedger } from "./pool-setup.js";

const ledgerOf = useLedger();

type Templates = NonNullable<NonNullable<FencelineConfigInput["mcpServers"][string]["resources"]>["templates"]>;

const PLANS = "catalog://plans/{region}/{plan}";

/** A server with these templates, read by pools in mode once. */
async function source(script: {
  templates: string[] | Reply;
  complete?: (argument: Params, context: Params | undefined) => Reply;
  capabilities?: Record<string, unknown>;
}) {
  const reads: string[] = [];
  const { templates } = script;
  const server = await startScriptedServer({
    capabilities: { resources: {}, completions: {}, ...script.capabilities },
    reply(method, params: Params) {
      if (method === "resources/list") return { result: { resources: [{ uri: "catalog://terms", name: "terms" }] } };
      if (method === "resources/templates/list") {
        if (!Array.isArray(templates)) return templates;
        const listed = templates.map((uriTemplate) => ({ uriTemplate, name: "t", mimeType: "text/plain" }));
        return { result: { resourceTemplates: listed } };
      }
      if (method === "completion/complete") {
        return script.complete?.(params["argument"] as Params, params["context"] as Params | undefined);
      }
      if (method !== "resources/read") return undefined;
      const uri = params["uri"] as string;
      reads.push(uri);
      if (uri.endsWith("/none")) return { error: { code: -32602, message: "no", data: { uri } } };
      return { result: { contents: [{ uri, mimeType: "text/plain", text: `a note at ${uri}` }] } };
    },
  });
  onTestFinished(() => server.close());
  const cast = newCast();
  const configWith = (templates: Templates, more = {}) => {
    const { source: name, reader } = cast;
    const settings = { scanAttempts: 1, scanBudgets: { pages: 20 } };
    return configFor(cast, server.url, {
      mcpServers: { [name]: { url: server.url, reader, resources: { templates, ...more }, settings } },
    });
  };
  return {
    reads,
    server,
    async run(templates: Templates, more: { include?: string[]; exclude?: string[] } = {}) {
      const pool = await startPool(ledgerOf(), configWith(templates, more), "once");
      expect(await pool.idle({ timeoutMs: 30_000 })).toBe("idle");
      await pool.close();
      const [stats] = pool.stats().sources;
      return { scan: stats?.scan, problems: (stats?.problems ?? []).map(({ uri, code }) => `${uri ?? "-"} ${code}`) };
    },
    shown: async () => (await ask(ledgerOf(), configWith({}), "note", cast.asker)).map(({ uri }) => uri).sort(),
    listed: () => ledgerOf().listedTemplates({ source: cast.source, reader: cast.reader, limit: 10 }),
  };
}

test("a template is expanded to every combination of its values, escaped as it says, and read like what is listed", async () => {
  const { run, shown, listed } = await source({ templates: [PLANS, "catalog://other/{x}"] });
  const { scan, problems } = await run({ [PLANS]: { region: ["eu", "a b"], plan: ["basic", "pro"] } });
  expect({ scan, problems }).toEqual({ scan: { verdict: "SNAPSHOT_UNPROVEN", resources: 5 }, problems: [] });
  expect(await shown()).toEqual([
    "catalog://plans/a%20b/basic",
    "catalog://plans/a%20b/pro",
    "catalog://plans/eu/basic",
    "catalog://plans/eu/pro",
    "catalog://terms",
  ]);
  expect((await listed()).map(({ uriTemplate }) => uriTemplate)).toEqual(["catalog://other/{x}", PLANS]);
});

test("completions name the values, each variable's after those before it; what is excluded is not read (S1)", async () => {
  const values: Record<string, string[]> = { region: ["eu", "us"], eu: ["basic", "secret"], us: ["pro", "none"] };
  const { run, reads } = await source({
    templates: [PLANS],
    complete: ({ name }, context) => {
      const { region } = (context?.["arguments"] ?? {}) as Record<string, string>;
      return { result: { completion: { values: values[name === "region" ? "region" : (region ?? "")] ?? [] } } };
    },
  });
  const templates: Templates = { [PLANS]: { region: "completions", plan: "completions" } };
  const { scan, problems } = await run(templates, { include: ["nothing"], exclude: ["*/secret"] });
  expect(scan).toEqual({ verdict: "SNAPSHOT_UNPROVEN", resources: 3 });
  expect(problems).toEqual(["catalog://plans/us/none read_not_found"]);
  expect([...new Set(reads)].sort()).toEqual([
    "catalog://plans/eu/basic",
    "catalog://plans/us/none",
    "catalog://plans/us/pro",
  ]);
});

test("a completion that fails leaves the list unknown: what it named before is not taken for gone (S8)", async () => {
  let reply: Reply = { result: { completion: { values: ["basic"] } } };
  const { run, shown } = await source({ templates: [PLANS], complete: () => reply });
  const templates: Templates = { [PLANS]: { region: ["eu"], plan: "completions" } };
  expect(await run(templates)).toMatchObject({ problems: [] });

  reply = { error: { code: -32603, message: "boom" } };
  expect(await run(templates)).toMatchObject({ problems: ["- scan_failed"] });
  expect(await shown()).toEqual(["catalog://plans/eu/basic", "catalog://terms"]);
});

test("completions that are cut short, a template that is not listed and a server without templates are told, and the rest is read", async () => {
  const cut = await source({
    templates: [PLANS],
    complete: () => ({ result: { completion: { values: ["basic"], total: 900, hasMore: true } } }),
  });
  const templates: Templates = { [PLANS]: { region: ["eu"], plan: "completions" } };
  expect(await cut.run(templates)).toEqual({
    scan: { verdict: "SNAPSHOT_UNPROVEN", resources: 2 },
    problems: [`${PLANS} completions_truncated`],
  });

  for (const templates of [["catalog://other/{x}"], { error: { code: -32601, message: "no" } }]) {
    const { run } = await source({ templates });
    expect(await run({ [PLANS]: { region: ["eu"], plan: ["basic"] } })).toEqual({
      scan: { verdict: "SNAPSHOT_UNPROVEN", resources: 1 },
      problems: [`${PLANS} template_not_listed`],
    });
  }
});

test("what a template stood for that left the configuration is closed: read no more, and kept, until it is back (U7, U10)", async () => {
  const { run, shown, reads } = await source({ templates: [PLANS] });
  const templates: Templates = { [PLANS]: { region: ["eu"], plan: ["basic"] } };
  await run(templates);
  reads.length = 0;
  expect(await run({})).toMatchObject({ scan: { resources: 1 }, problems: [] });
  expect(reads).not.toContain("catalog://plans/eu/basic");
  expect(await shown()).toEqual(["catalog://plans/eu/basic", "catalog://terms"]);

  await run(templates);
  expect(reads).toContain("catalog://plans/eu/basic");
});

test("a value that left the configuration has left the list: what it named is looked at once more, and stays while it can be read (F7)", async () => {
  const { run, shown, reads } = await source({ templates: [PLANS] });
  await run({ [PLANS]: { region: ["eu"], plan: ["basic", "pro"] } });
  reads.length = 0;
  expect(await run({ [PLANS]: { region: ["eu"], plan: ["pro"] } })).toMatchObject({ scan: { resources: 2 } });
  expect(reads).toContain("catalog://plans/eu/basic");
  expect(await shown()).toHaveLength(3);
});

test("completions without an end are stopped by the budget of pages (S2)", async () => {
  const { run } = await source({
    templates: [PLANS],
    complete: () => ({ result: { completion: { values: Array.from({ length: 100 }, (_, n) => `v${n}`) } } }),
  });
  const { problems } = await run({ [PLANS]: { region: "completions", plan: "completions" } });
  expect(problems).toEqual(["- scan_page_budget"]);
});
