/** Rows as lines with aligned columns; numbers to the right. An empty table is no line. */
export function table(header: readonly string[], rows: readonly (readonly (string | number)[])[]): string[] {
  if (rows.length === 0) return [];
  const cells = [header, ...rows.map((row) => row.map(String))];
  const widths = header.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  const isNumber = header.map((_, column) => rows.every((row) => typeof row[column] === "number"));
  return cells.map((row) =>
    row
      .map((cell, column) => (isNumber[column] ? cell.padStart(widths[column] ?? 0) : cell.padEnd(widths[column] ?? 0)))
      .join("  ")
      .trimEnd(),
  );
}
