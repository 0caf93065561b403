/**
 * Embedded databases that tests copy: creating one takes 5 s of CPU, the ledger's tables 2 s more, a copy 0.2 s. What
 * tests the creation itself opens a directory that is empty.
 */

import { cpSync, existsSync } from "node:fs";
import { mkdtemp, rename } from "node:fs/promises";
import { join } from "node:path";
import { inject } from "vitest";

declare module "vitest" {
  interface ProvidedContext {
    /** Folder of this run for its templates; see `templates-of-run.ts`. */
    databaseTemplates: string;
  }
}

/** Name of the template that was created and no more. */
const CREATED = "database";

/**
 * Fills a directory, made when missing, with a database that `open` once created or changed, and closed. Copies of a ledger
 * are one ledger: they share its mark and its digest key.
 *
 * @param name of what `open` makes, for all tests of the run; `database` where it only creates
 */
export async function copyDatabase(
  name: string,
  open: (address: string) => Promise<{ close(): Promise<void> }>,
  directory: string,
): Promise<void> {
  const folder = inject("databaseTemplates");
  const template = join(folder, name);
  if (!existsSync(template)) {
    const attempt = await mkdtemp(join(folder, "attempt-"));
    // What is made of a created database need not create it again.
    const created = join(folder, CREATED);
    if (existsSync(created)) copy(created, attempt);
    const opened = await open(`file:${attempt}`);
    await opened.close();
    try {
      await rename(attempt, template);
    } catch (error) {
      // Another worker was faster; this attempt goes with the folder.
      if (!existsSync(template)) throw error;
    }
  }
  copy(template, directory);
}

/** A thousand files: one after the other they cost half of what they cost at once. */
function copy(from: string, to: string): void {
  cpSync(from, to, { recursive: true });
}
