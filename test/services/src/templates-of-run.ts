import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import "./database-templates.js";

/** Global set-up of a run: the folder of its database templates, which are made by whoever needs them first. */
export default async function templatesOfRun(project: TestProject): Promise<() => Promise<void>> {
  const folder = await mkdtemp(join(tmpdir(), "fenceline-templates-"));
  project.provide("databaseTemplates", folder);
  return () => rm(folder, { recursive: true, force: true });
}
