import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describeWithPostgres } from "@fenceline/test-services";
import { describe, expect, test } from "vitest";
import { fences } from "#ordeal/fences/fences.js";
import { REVOCATION_GATE, scan } from "#ordeal/scan/scan.js";

const MAIN = fileURLToPath(new URL("../ordeal/dist/main.js", import.meta.url));

describe("the ordeal command", () => {
  test("says what to set where no PostgreSQL is, and exits 2", () => {
    expect(ordeal(["fences"], { FENCELINE_TEST_POSTGRES_URL: "" })).toMatchObject({
      status: 2,
      stdout: "",
      stderr: expect.stringContaining("FENCELINE_TEST_POSTGRES_URL"),
    });
  });

  test("exits 2 for an ordeal it does not know, and for a number that is none", () => {
    expect(ordeal(["unknown"])).toMatchObject({ status: 2, stderr: expect.stringContaining("Usage") });
    expect(ordeal(["fences", "--events", "many"])).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("--events"),
    });
  });

  test("--help says what can be asked for on standard output, and exits 0", () => {
    const { status, stdout, stderr } = ordeal(["fences", "--help"], { FENCELINE_TEST_POSTGRES_URL: "" });
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(stdout).toContain("100000 events on 8 connections");
  });

  function ordeal(args: string[], env: NodeJS.ProcessEnv = {}) {
    const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...args], {
      encoding: "utf8",
      env: { ...process.env, ...env },
    });
    return { status, stdout, stderr };
  }
});

describeWithPostgres("the ordeal of the fences, in small", (postgresUrl) => {
  test("no version goes back, nothing is accepted after a close, no row is left by a loser (F3, F4, U8, P2)", async () => {
    const report = await fences.run({
      postgresUrl,
      seed: 20_251_130,
      events: 2_500,
      connections: 8,
      progress: () => {},
    });
    expect(report.gates.filter(({ violations }) => violations > 0)).toEqual([]);
    expect(report.gates.filter(({ evaluated }) => evaluated === 0)).toEqual([]);
    expect(report.invariants.filter(({ broken }) => broken > 0)).toEqual([]);
  }, 60_000);
});

describeWithPostgres("the ordeal of the scan, in small", (postgresUrl) => {
  test("S8: ten times the list keeps no more in memory, and no half catalogue is named while it is published (S7)", async () => {
    const kept: number[] = [];
    for (const events of [2_000, 20_000]) {
      const report = await scan.run({ postgresUrl, seed: 1, events, connections: 2, progress: () => {} });
      const isOfTime = ({ name }: { name: string }) => name === REVOCATION_GATE;
      expect(report.gates.filter((gate) => gate.violations > 0 && !isOfTime(gate))).toEqual([]);
      expect(report.missing).toEqual([]);
      expect(report.invariants.filter(({ broken }) => broken > 0)).toEqual([]);
      kept.push(report.figures?.["kept after the first pages, most (MB)"] as number);
    }
    // 20,000 entries held as objects are more than twice that.
    expect(kept[1]).toBeLessThan((kept[0] as number) + 4);
  }, 180_000);
});
