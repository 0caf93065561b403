import type { Platform, Suite } from "./measure.js";
import { type Outcome, reportOf, type SuiteReport, suiteReport } from "./report.js";

/**
 * Runs the measures of a suite one after the other, each on PostgreSQL and on PGlite. A measure that throws is reported and
 * keeps none of the others from running.
 */
export async function runSuite<Bench>(
  suite: Suite<Bench>,
  options: { readonly only?: string | undefined; readonly progress: (line: string) => void },
): Promise<SuiteReport> {
  const measures = suite.measures.filter(({ name }) => name.includes(options.only ?? ""));
  const reports = [];
  for (const measure of measures) {
    const on = async (platform: Platform): Promise<Outcome> => {
      const missing = suite.missing(platform);
      if (missing !== undefined) return { missing };
      options.progress(`${suite.name}: ${measure.name} (${platform})`);
      try {
        const measured = await suite.withBench(platform, (bench) => measure.run(bench));
        options.progress(`  ${measured}`);
        return { measured };
      } catch (error) {
        const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
        options.progress(`failed: ${text}`);
        return { error: error instanceof Error ? error.message : String(error) };
      }
    };
    reports.push(reportOf(measure, { postgres: await on("postgres"), embedded: await on("embedded") }));
  }
  return suiteReport(suite.name, reports);
}
