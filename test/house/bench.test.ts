import { expect, test } from "vitest";
import { bench } from "../bench/dist/command.js";
import type { Measure, Suite } from "../bench/dist/measure.js";
import { beside } from "../bench/dist/rounds.js";

/** A suite whose figures are given; on PGlite each is half. */
function suiteOf(measures: readonly Measure<number>[], missing?: string): Suite<number> & { readonly left: string[] } {
  const left: string[] = [];
  return {
    name: "planted",
    measures,
    left,
    missing: (platform) => (platform === "postgres" ? missing : undefined),
    async withBench(platform, use) {
      try {
        return await use(platform === "postgres" ? 1 : 0.5);
      } finally {
        left.push(platform);
      }
    },
  };
}

function measure(name: string, figure: number, goal?: Measure<number>["goal"]): Measure<number> {
  return { name, unit: "ratio", ...(goal && { goal }), run: async (factor) => figure * factor };
}

async function run(args: string[], suite: Suite<number>) {
  let out = "";
  let progress = "";
  const code = await bench(args, [suite], {
    out: (text) => {
      out += text;
    },
    progress: (line) => {
      progress += `${line}\n`;
    },
  });
  return { code, out, progress };
}

const met = measure("met", 2, { atLeast: 1.8 });
const missed = measure("missed", 9, { atMost: 8 });

test("the table has measured, goal and met, with PGlite's figure beside each", async () => {
  const { code, out } = await run(["planted"], suiteOf([met, missed, measure("no goal", 100)]));
  expect(code).toBe(0);
  expect(out.split("\n").map((line) => line.trim().split(/ {2,}/))).toEqual([
    ["measure", "measured", "goal", "met", "PGlite"],
    ["met", "2.00", ">= 1.80", "yes", "1.00"],
    ["missed", "9.00", "<= 8.00", "NO", "4.50"],
    ["no goal", "100.0", "50.0"],
  ]);
});

test("--strict exits 1 where a goal is missed, and 0 where all are met", async () => {
  expect((await run(["planted", "--strict"], suiteOf([met]))).code).toBe(0);
  expect((await run(["planted", "--strict"], suiteOf([met, missed]))).code).toBe(1);
  expect((await run(["planted"], suiteOf([met, missed]))).code).toBe(0);
});

test("--json writes one document and nothing else on standard output", async () => {
  const { out, progress } = await run(["planted", "--json"], suiteOf([met, missed]));
  expect(JSON.parse(out)).toEqual({
    suite: "planted",
    ok: false,
    measures: [
      {
        name: "met",
        unit: "ratio",
        goal: { atLeast: 1.8 },
        met: true,
        postgres: { measured: 2 },
        embedded: { measured: 1 },
      },
      {
        name: "missed",
        unit: "ratio",
        goal: { atMost: 8 },
        met: false,
        postgres: { measured: 9 },
        embedded: { measured: 4.5 },
      },
    ],
  });
  expect(progress).toContain("planted: missed (embedded)");
});

test("an unknown suite or flag, and a second suite, exit 2 with the usage", async () => {
  const wrong = [[], ["other"], ["planted", "--quick"], ["planted", "planted"], ["planted", "--only", "nothing"]];
  for (const args of wrong) {
    const { code, out, progress } = await run(args, suiteOf([met]));
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(progress).toContain("Usage: npm run bench -- planted [--json] [--strict]");
  }
});

test("--help says what can be asked for on standard output, and exits 0", async () => {
  const { code, out, progress } = await run(["--help"], suiteOf([met, missed]));
  expect({ code, progress }).toEqual({ code: 0, progress: "" });
  expect(out).toContain("Usage: npm run bench -- planted");
  expect(out).toContain("planted: missed");
});

test("without PostgreSQL the figures of PGlite are printed, and no goal counts as met", async () => {
  const { code, out } = await run(["planted", "--strict"], suiteOf([met], "no address is set"));
  expect(out).toContain("No figures on PostgreSQL: no address is set");
  expect(out).toMatch(/met +- +>= 1.80 +1.00/);
  expect(code).toBe(1);
});

test("a measure that fails is reported, keeps no other from running, and exits 1", async () => {
  const failing: Measure<number> = { ...met, name: "failing", run: () => Promise.reject(new TypeError("broken")) };
  const suite = suiteOf([failing, met]);
  const { code, out, progress } = await run(["planted", "--json"], suite);
  expect(code).toBe(1);
  expect(JSON.parse(out).measures).toMatchObject([{ postgres: { error: "broken" }, met: null }, { met: true }]);
  expect(progress).toContain("TypeError: broken");
  expect(suite.left).toEqual(["postgres", "embedded", "postgres", "embedded"]);
});

test("a ratio is the median of the rounds' ratios to the raw operation", async () => {
  let clock = 0;
  const taking = (ms: () => number, items: () => number) => ({
    async call() {
      const done = items();
      if (done > 0) clock += ms();
      return done;
    },
  });
  // In every other round raw and measured both take three times as long: the ratio stays.
  let round = 0;
  const raw = {
    ...taking(
      () => 1 + 2 * (round % 2),
      () => 1,
    ),
    before: async () => ++round,
  };
  const tenAtOnce = taking(
    () => 2 * (1 + 2 * (round % 2)),
    () => 10,
  );
  // A round that has nothing left to do ends before its time.
  let left = 0;
  const ending = {
    ...taking(
      () => 4 * (1 + 2 * (round % 2)),
      () => (left-- > 0 ? 1 : 0),
    ),
    async before() {
      left = 3;
    },
  };
  const figures = await beside(raw, { tenAtOnce, ending }, { rounds: 4, roundMs: 60, now: () => clock });
  expect(figures.tenAtOnce.throughputRatio).toBeCloseTo(5);
  expect(figures.tenAtOnce.latencyRatio).toBeCloseTo(2);
  expect(figures.ending.throughputRatio).toBeCloseTo(0.25);
});
