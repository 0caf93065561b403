import { parseArgs } from "node:util";
import type { Suite } from "./measure.js";
import { failed, type SuiteReport, tableOf } from "./report.js";
import { runSuite } from "./run-suite.js";

/** Where a run speaks: the report on one side, progress on the other. */
export interface Streams {
  out(text: string): void;
  progress(line: string): void;
}

/**
 * `bench SUITE [--json] [--strict] [--only TEXT] [--help]`: the one runner of all benchmarks.
 *
 * @returns the exit code: 0 done; 1 a measure failed, or with `--strict` a goal was missed or could not be measured; 2 wrong usage
 */
export async function bench(
  args: readonly string[],
  // biome-ignore lint/suspicious/noExplicitAny: each suite has benches of its own type, which only its own measures see.
  suites: readonly Suite<any>[],
  { out, progress }: Streams,
): Promise<number> {
  const usage = (problem: string) => {
    progress(`${problem}\n${usageOf(suites)}`);
    return 2;
  };
  const parsed = parse(args);
  if (typeof parsed === "string") return usage(parsed);
  const { positionals, values } = parsed;
  if (values.help) {
    out(usageOf(suites));
    return 0;
  }
  const [name, ...others] = positionals;
  const suite = suites.find((one) => one.name === name);
  if (!suite) return usage(name === undefined ? "Which suite?" : `There is no suite ${name}.`);
  if (others.length > 0) return usage(`One suite at a time, not also ${others.join(" ")}.`);
  if (!suite.measures.some((measure) => measure.name.includes(values.only ?? ""))) {
    return usage(`No measure of ${suite.name} has "${values.only}" in its name.`);
  }
  const report: SuiteReport = await runSuite(suite, { only: values.only, progress });
  out(values.json ? JSON.stringify(report, null, 2) : tableOf(report));
  return failed(report) || (values.strict && !report.ok) ? 1 : 0;
}

// biome-ignore lint/suspicious/noExplicitAny: as above.
function usageOf(suites: readonly Suite<any>[]): string {
  return `Usage: npm run bench -- ${suites.map(({ name }) => name).join("|")} [--json] [--strict] [--only TEXT]

  --json       print one JSON document; progress goes to standard error
  --strict     exit 1 where a goal is missed or could not be measured
  --only TEXT  only the measures that have TEXT in their name:
${suites.flatMap(({ name, measures }) => measures.map((measure) => `                 ${name}: ${measure.name}`)).join("\n")}

Without FENCELINE_TEST_POSTGRES_URL only PGlite is measured, and no goal counts as met.`;
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        json: { type: "boolean", default: false },
        strict: { type: "boolean", default: false },
        only: { type: "string" },
        help: { type: "boolean", short: "h", default: false },
      },
    });
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
