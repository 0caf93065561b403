import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startPriceCatalog } from "@fenceline/example-price-catalog/server";
import { openDatabase, openLedger } from "@fenceline/ledger";
import { copyDatabase } from "@fenceline/test-services";
import { expect, it, onTestFinished } from "vitest";
import { runCli } from "./cli-process.js";

it("revoke --wait beside a store that is down hides, says what is left and why, and ends it when the store is back (P2, P5)", async () => {
  const folder = await mkdtemp(join(tmpdir(), "fenceline-store-down-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const catalog = await startPriceCatalog({ token: "t" });
  onTestFinished(() => catalog.close());
  const file = join(folder, "fenceline.config.json");
  const [vectors, elsewhere] = [join(folder, "vectors"), join(folder, "elsewhere")];
  await writeFile(
    file,
    JSON.stringify({
      ledger: "file:ledger",
      mcpServers: { catalog: { url: catalog.url, headers: { Authorization: "Bearer t" }, reader: "svc:rag" } },
      indexes: { main: { store: { type: "pgvector", address: "file:vectors" } } },
    }),
  );
  await copyDatabase("database", openDatabase, vectors);
  await copyDatabase("ledger", openLedger, join(folder, "ledger"));
  const ledger = await openLedger(`file:${join(folder, "ledger")}`);
  onTestFinished(() => ledger.close());
  const run = async (...args: string[]) => {
    const { code, stdout, stderr } = await runCli([...args, "--config", file, "--json"]);
    return { code, stderr, document: stdout === "" ? undefined : JSON.parse(stdout) };
  };
  const request = ["revoke", "--subject", "svc:rag", "--reason", "over", "--request-id", "r-1", "--wait"];
  const store = `pgvector file:${vectors}`;
  expect(await run("ingest")).toMatchObject({ code: 0, document: { ok: true } });

  await rename(vectors, elsewhere);
  await writeFile(vectors, "not a database");
  const down = await run(...request, "--timeout", "3");
  expect(down.code).toBe(1);
  expect(down.document).toMatchObject({
    state: "EFFECTIVE",
    covered: { resources: 40, entries: 40 },
    stores: [{ store, entries: 40, remaining: 40, absentAt: null, claim: "hidden", failure: expect.any(String) }],
  });
  const status = await run("status");
  expect(status.document).toMatchObject({
    revocations: { open: 1, complete: 0 },
    stores: [{ store, reachable: false, failure: expect.any(String) }],
  });

  await rm(vectors);
  await rename(elsewhere, vectors);
  expect(await run("query", "what does basic cost?", "--as", "svc:rag")).toMatchObject({ document: { hits: [] } });
  expect(await run(...request)).toMatchObject({
    code: 0,
    document: { state: "COMPLETE", stores: [{ store, remaining: 0, claim: "absent", absentAt: expect.any(String) }] },
  });
  expect(await run("verify")).toMatchObject({ code: 0, document: { ok: true } });
}, 240_000);
