import { existsSync, mkdirSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { FencelineError } from "../../errors.js";

/** The PostgreSQL major version that PGlite is built from; a test fails when an update of PGlite changes it. */
const EMBEDDED_POSTGRES_MAJOR = "18";

/** The parts of an embedded directory. */
export interface EmbeddedDirectory {
  /** Real path of the directory itself. */
  path: string;
  lockPath: string;
  /** PGlite's own directory. */
  dataPath: string;
  /** Stands from before PGlite creates its directory until it has served once. */
  creatingPath: string;
}

/** Creates the directory when missing, for this user alone. */
export function embeddedDirectory(directory: string): EmbeddedDirectory {
  createFolder(directory);
  const path = realpathSync(directory);
  return {
    path,
    lockPath: join(path, "lock"),
    dataPath: join(path, "pglite"),
    creatingPath: join(path, "pglite.creating"),
  };
}

/** Folder by folder: the recursive `mkdir` of Node never returns where a file system (/proc) refuses with ENOENT. */
function createFolder(folder: string): void {
  if (existsSync(folder)) return;
  const parent = dirname(folder);
  if (parent !== folder) createFolder(parent);
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    // Another process was faster.
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}

/**
 * Makes the data directory fit to be opened. Only for the holder of the lock.
 *
 * @throws {FencelineError} `directory_incompatible`
 */
export function prepareDataDirectory({ path, dataPath, creatingPath }: EmbeddedDirectory): void {
  // The process was killed while PGlite wrote the first files. Nobody was served yet, so there is nothing to lose.
  if (existsSync(creatingPath)) rmSync(dataPath, { recursive: true, force: true });
  const versionPath = versionPathIn(dataPath);
  if (!existsSync(versionPath)) {
    if (existsSync(dataPath) && readdirSync(dataPath).length > 0) {
      throw new FencelineError(
        "directory_incompatible",
        `${dataPath} holds something that is not a database. Choose another directory.`,
      );
    }
    writeFileSync(creatingPath, "");
    return;
  }
  const major = readFileSync(versionPath, "utf8").trim();
  if (major === EMBEDDED_POSTGRES_MAJOR) return;
  throw new FencelineError(
    "directory_incompatible",
    `${path} was written by PostgreSQL ${major}, and this version of Fenceline embeds PostgreSQL ${EMBEDDED_POSTGRES_MAJOR}. Use the version of Fenceline that wrote it, or another directory.`,
  );
}

/** Whether a database lies in it; also while it is being created. */
export function holdsDatabase({ dataPath }: EmbeddedDirectory): boolean {
  return existsSync(versionPathIn(dataPath));
}

function versionPathIn(dataPath: string): string {
  return join(dataPath, "PG_VERSION");
}

/** To be called once the database has served. */
export function dataDirectoryIsComplete({ creatingPath }: EmbeddedDirectory): void {
  rmSync(creatingPath, { force: true });
}
