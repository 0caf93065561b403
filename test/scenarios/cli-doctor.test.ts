import { access, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type PriceCatalog, startPriceCatalog } from "@fenceline/example-price-catalog/server";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { runCli } from "./cli-process.js";

let folder: string;
let catalog: PriceCatalog;
let file: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "fenceline-doctor-"));
  catalog = await startPriceCatalog({ token: "secret-token-1" });
  file = join(folder, "fenceline.config.json");
  const authorization = `Bearer ${catalog.token}`;
  await writeFile(
    file,
    JSON.stringify({
      ledger: "file:ledger",
      mcpServers: {
        catalog: {
          url: catalog.url,
          readers: {
            "svc:good": { headers: { authorization } },
            "svc:bad": { headers: { authorization: "Bearer x" } },
          },
        },
      },
    }),
  );
});

afterAll(async () => {
  await catalog.close();
  await rm(folder, { recursive: true, force: true });
});

describe("fenceline doctor", () => {
  it("says of a source that works what it is and how it will be served, and makes no ledger", async () => {
    const { code, stdout, stderr } = await runCli(["doctor", "catalog", "--reader", "svc:good", "--config", file]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    for (const part of [`catalog as svc:good: ${catalog.url}`, "modern era, protocol 2026-07-28", "it can be ingested"])
      expect(stdout).toContain(part);
    expect(stdout).toMatch(/of these [1-9]\d* pushed, 0 polled; changes of the list pushed/);
    await expect(access(join(folder, "ledger"))).rejects.toMatchObject({ code: "ENOENT" });
  });

  it("tries each reader, and exits 1 where one finds a fault, with what to do about it and no credential", async () => {
    const { code, stdout } = await runCli(["doctor", "catalog", "--config", file, "--json"]);
    expect(code).toBe(1);
    const document = JSON.parse(stdout) as { ok: boolean; readers: Record<string, unknown>[] };
    expect(document).toMatchObject({
      ok: false,
      readers: [
        { ok: true, reader: "svc:good", connection: { era: "modern" }, read: { outcome: "content" }, problems: [] },
        {
          ok: false,
          reader: "svc:bad",
          connection: null,
          list: null,
          delivery: null,
          read: null,
          problems: [{ severity: "fault", code: "source_unauthorized", advice: expect.stringContaining("credential") }],
        },
      ],
    });
    expect(stdout).not.toContain(catalog.token);
  });

  it("exits 2 for a source or reader that is not configured", async () => {
    for (const [args, said] of [
      [["doctor", "nope"], 'There is no source "nope"; configured are: catalog'],
      [["doctor", "catalog", "--reader", "svc:nope"], "its readers are: svc:good, svc:bad"],
      [["doctor"], "missing required argument"],
    ] as const) {
      const { code, stdout, stderr } = await runCli([...args, "--config", file]);
      expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
      expect(stderr).toContain(said);
    }
  });
});
