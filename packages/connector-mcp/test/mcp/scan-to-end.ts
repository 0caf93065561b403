import { type ScanEnd, type ScanOptions, type ScanPage, scanPages } from "#src/mcp/resource-scan.js";
import type { SourceConnection } from "#src/mcp/source-connection.js";

/** Hands every page to `onPage`, awaits it, and tells how the listing ended. */
export async function scanToEnd(
  connection: SourceConnection,
  options: ScanOptions,
  onPage: (page: ScanPage) => void | Promise<void>,
): Promise<ScanEnd> {
  const pages = scanPages(connection, options);
  for (;;) {
    const step = await pages.next();
    if (step.done) return step.value;
    await onPage(step.value);
  }
}
