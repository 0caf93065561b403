import { type Goal, isMet, type Measure, type Platform, type Unit } from "./measure.js";

/** What became of a measure on one platform. */
export type Outcome = { readonly measured: number } | { readonly missing: string } | { readonly error: string };

export interface MeasureReport {
  readonly name: string;
  readonly unit: Unit;
  readonly goal: Goal | null;
  /** On PostgreSQL; null where there is no goal, or nothing was measured. */
  readonly met: boolean | null;
  readonly postgres: Outcome;
  readonly embedded: Outcome;
}

/** The `--json` document. */
export interface SuiteReport {
  readonly suite: string;
  /** Every goal was measured and met, and nothing failed. */
  readonly ok: boolean;
  readonly measures: readonly MeasureReport[];
}

export function reportOf(
  measure: Pick<Measure<never>, "name" | "unit" | "goal">,
  outcomes: Readonly<Record<Platform, Outcome>>,
): MeasureReport {
  const { name, unit, goal = null } = measure;
  const { postgres } = outcomes;
  const met = goal && "measured" in postgres ? isMet(goal, postgres.measured) : null;
  return { name, unit, goal, met, ...outcomes };
}

export function suiteReport(suite: string, measures: readonly MeasureReport[]): SuiteReport {
  const failed = measures.some((measure) => "error" in measure.postgres || "error" in measure.embedded);
  const open = measures.some((measure) => measure.goal !== null && measure.met !== true);
  return { suite, ok: !failed && !open, measures };
}

export function failed(report: SuiteReport): boolean {
  return report.measures.some((measure) => "error" in measure.postgres || "error" in measure.embedded);
}

/** The same report for people. */
export function tableOf(report: SuiteReport): string {
  const rows = [
    ["measure", "measured", "goal", "met", "PGlite"],
    ...report.measures.map(({ name, unit, goal, met, postgres, embedded }) => [
      name,
      cell(postgres, unit),
      goal ? goalText(goal, unit) : "",
      met === null ? "" : met ? "yes" : "NO",
      cell(embedded, unit),
    ]),
  ];
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const lines = rows.map((row) =>
    row
      .map((text, column) => (column === 0 ? text.padEnd(widths[0] ?? 0) : text.padStart(widths[column] ?? 0)))
      .join("  "),
  );
  const missing = new Set(report.measures.flatMap(({ postgres }) => ("missing" in postgres ? [postgres.missing] : [])));
  return [...lines, ...[...missing].map((reason) => `No figures on PostgreSQL: ${reason}`)].join("\n");
}

function cell(outcome: Outcome, unit: Unit): string {
  if ("measured" in outcome) return figureText(outcome.measured, unit);
  return "error" in outcome ? "failed" : "-";
}

function goalText(goal: Goal, unit: Unit): string {
  return "atLeast" in goal ? `>= ${figureText(goal.atLeast, unit)}` : `<= ${figureText(goal.atMost, unit)}`;
}

function figureText(figure: number, unit: Unit): string {
  switch (unit) {
    case "ratio":
      return figure >= 10 ? figure.toFixed(1) : figure.toFixed(2);
    case "ms":
      return `${figure >= 10 ? figure.toFixed(0) : figure.toFixed(2)} ms`;
    case "bytes":
      return `${figure.toFixed(0)} B`;
    case "MB":
      return `${figure.toFixed(0)} MB`;
    default:
      return unit satisfies never;
  }
}
