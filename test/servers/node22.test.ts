import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describeWhere } from "@fenceline/test-services";
import { expect, onTestFinished, test, vi } from "vitest";
import { ingest } from "./ingestion.js";
import { node22, published } from "./published-servers.js";

vi.setConfig({ testTimeout: 60_000 });

describeWhere(node22 !== undefined, "no Node 22 for this platform", "under Node 22", () => {
  test("obsidian-mcp: a server that offers no subscriptions is polled, never shown as subscribed (U3)", async () => {
    const folder = await mkdtemp(join(tmpdir(), "fenceline-vault-"));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    await mkdir(join(folder, "vault/.obsidian"), { recursive: true });
    const { stats, textOf } = await ingest({
      command: node22 as string,
      args: [published.obsidian, "serve", "--vault", `notes=${join(folder, "vault")}`],
    });
    expect(stats()).toMatchObject({
      era: "modern",
      pushed: 0,
      polled: 1,
      scan: { verdict: "SNAPSHOT_UNPROVEN", resources: 1 },
      reads: { accepted: 1, failed: 0 },
      problems: [],
    });
    expect(await textOf("obsidian-mcp://vaults")).toContain("notes");
  });

  test("1password-mcp: what is listed and cannot be read is reported each by itself, and deleted by nothing (F7)", async () => {
    const { stats, ledger, ask } = await ingest({
      command: node22 as string,
      args: [published.onePassword],
      env: { OP_SERVICE_ACCOUNT_TOKEN: "dummy" },
    });
    expect(stats()).toMatchObject({ era: "modern", pushed: 0, polled: 3, scan: { resources: 3 } });
    expect(stats().reads).toMatchObject({ issued: 3, accepted: 0, failed: 3 });
    // A template among them, listed as if it were a resource.
    expect(
      stats()
        .problems.map(({ uri, code }) => `${code} ${uri}`)
        .sort(),
    ).toEqual([
      "read_failed 1password://config",
      "read_failed 1password://vaults",
      "read_failed 1password://vaults/{vaultId}/items",
    ]);
    expect(await ask("vaults")).toEqual([]);
    expect((await ledger.receipts({ limit: 1, kinds: ["tombstoneReceipt.v1"] })).receipts).toEqual([]);
  });
});
