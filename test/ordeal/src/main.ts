/**
 * `npm run ordeal -- NAME [--json] [--seed N] [--events N] [--connections N] [--help]`. Exits 0 where everything
 * held, 1 where something was missed, 2 for wrong usage. Progress goes to standard error, the report to standard output.
 */

import { parseArgs } from "node:util";
import { fences } from "./fences/fences.js";
import type { Ordeal, OrdealReport } from "./ordeal.js";
import { scan } from "./scan/scan.js";

const ordeals: readonly Ordeal[] = [fences, scan];

process.exitCode = await main(process.argv.slice(2));

async function main(args: string[]): Promise<number> {
  const asked = parse(args);
  if (asked === "help") {
    console.log(usage());
    return 0;
  }
  if (typeof asked === "string") return refuse(asked);
  const postgresUrl = process.env["FENCELINE_TEST_POSTGRES_URL"];
  if (!postgresUrl) {
    return refuse(
      "An ordeal needs a PostgreSQL: set FENCELINE_TEST_POSTGRES_URL, for instance to postgres://postgres@127.0.0.1:5432/test.",
    );
  }
  const { ordeal, seed, events, connections, json } = asked;
  console.error(`${ordeal.name}: ${events} events on ${connections} connections, seed ${seed}`);
  const progress = progressOf(events);
  const report = await ordeal.run({ postgresUrl, seed, events, connections, progress });
  console.log(json ? JSON.stringify(report, null, 2) : describe(report));
  if (!report.ok)
    console.error(`Again with the same draws: npm run ordeal -- ${ordeal.name} --seed ${seed} --events ${events}`);
  return report.ok ? 0 : 1;
}

function refuse(message: string): number {
  console.error(message);
  return 2;
}

interface Asked {
  readonly ordeal: Ordeal;
  readonly seed: number;
  readonly events: number;
  readonly connections: number;
  readonly json: boolean;
}

function usage(): string {
  return [
    "Usage: npm run ordeal -- NAME [--json] [--seed N] [--events N] [--connections N]",
    "",
    ...ordeals.flatMap(({ name, summary, defaultEvents, defaultConnections }) => [
      `  ${name.padEnd(6)}  ${summary}`,
      `          ${defaultEvents} events on ${defaultConnections} connections by default`,
    ]),
    "",
    "On the PostgreSQL of FENCELINE_TEST_POSTGRES_URL, in a schema of its own. The same seed makes the same draws.",
  ].join("\n");
}

/** What was asked for; otherwise `help`, or what is wrong with it. */
function parse(args: string[]): Asked | string {
  let parsed: ReturnType<typeof parseOrdealArgs>;
  try {
    parsed = parseOrdealArgs(args);
  } catch (error) {
    return `${(error as Error).message}\n${usage()}`;
  }
  const { positionals, values } = parsed;
  if (values.help) return "help";
  const ordeal = ordeals.find(({ name }) => name === positionals[0]);
  if (ordeal === undefined || positionals.length > 1) return usage();
  const numbers = {
    seed: values.seed ?? String(Math.floor(Math.random() * 2 ** 32)),
    events: values.events ?? String(ordeal.defaultEvents),
    connections: values.connections ?? String(ordeal.defaultConnections),
  };
  for (const [name, text] of Object.entries(numbers)) {
    if (!/^\d{1,10}$/.test(text) || (name !== "seed" && Number(text) === 0))
      return `--${name} takes a whole number${name === "seed" ? "" : " from 1 on"}, not ${text}.\n${usage()}`;
  }
  return {
    ordeal,
    seed: Number(numbers.seed),
    events: Number(numbers.events),
    connections: Number(numbers.connections),
    json: values.json ?? false,
  };
}

function parseOrdealArgs(args: string[]) {
  return parseArgs({
    args,
    allowPositionals: true,
    options: {
      json: { type: "boolean" },
      seed: { type: "string" },
      events: { type: "string" },
      connections: { type: "string" },
      help: { type: "boolean", short: "h" },
    },
  });
}

function progressOf(events: number): (done: number) => void {
  let next = 0.1;
  return (done) => {
    if (done < events * next) return;
    console.error(`  ${done} of ${events} events`);
    next = Math.floor((done / events) * 10) / 10 + 0.1;
  };
}

/** What was never tried proves nothing, and fails the run; it is not what a violation is. */
function verdictOf({ ok, missing, gates, invariants, events }: OrdealReport): string {
  if (ok) return "Held.";
  const violated = gates.some(({ violations }) => violations > 0) || invariants.some(({ broken }) => broken > 0);
  if (violated || missing.length === 0) return "Missed.";
  return `Nothing was violated, but ${events} events did not try everything: ask for more with --events.`;
}

function describe(report: OrdealReport): string {
  const { ordeal, events, connections, seconds, seed, tried, missing, gates, invariants } = report;
  const broken = invariants.filter((invariant) => invariant.broken > 0);
  return [
    `${ordeal}: ${events} events on ${connections} connections in ${seconds.toFixed(1)} s, seed ${seed}`,
    "",
    ...Object.entries(tried).map(
      ([kind, outcomes]) =>
        `  ${kind.padEnd(34)} ${Object.entries(outcomes)
          .map(([outcome, count]) => `${outcome} ${count}`)
          .join(" · ")}`,
    ),
    ...Object.entries(report.figures ?? {}).map(
      ([name, value]) => `  ${name.padEnd(44)} ${Math.round(value * 10) / 10}`,
    ),
    "",
    ...gates.flatMap((gate) => [
      `  ${gate.name.padEnd(44)} ${gate.violations} of ${gate.evaluated}${
        gate.upperBound === null ? "" : `, below ${gate.upperBound.toExponential(1)} (95 %)`
      } (${gate.rules.join(", ")})`,
      ...gate.examples.map((example) => `    ${example}`),
    ]),
    `  ${"invariants of the ledger".padEnd(44)} ${broken.length} of ${invariants.length} broken`,
    ...broken.map(({ name, broken: times, checked }) => `    ${name}: ${times} of ${checked}`),
    ...missing.map((each) => `  missing: ${each}`),
    verdictOf(report),
  ].join("\n");
}
