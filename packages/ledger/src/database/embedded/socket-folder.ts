import { createHash } from "node:crypto";
import { existsSync, lstatSync, mkdirSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { FencelineError } from "../../errors.js";

/** `pg` and libpq look for `.s.PGSQL.<port>` in the folder they are given as host. */
export const SOCKET_PORT = 5432;
const SOCKET_FILE = `.s.PGSQL.${SOCKET_PORT}`;
/** `sun_path` holds 108 bytes on Linux and 104 on macOS, with a terminating zero. */
const SOCKET_PATH_MOST_BYTES = 103;
/** Names tried for a user's folder. */
const NAMES = 9;

export function socketPathIn(folder: string): string {
  return join(folder, SOCKET_FILE);
}

/**
 * The folder of a directory's socket: always the same for one directory and user, so that whoever takes over serves where
 * clients, also those of other libraries, already look. It is short, however deep the directory lies.
 *
 * @param directory its real path
 */
export function socketFolderFor(directory: string): string {
  const name = createHash("sha256").update(directory).digest("hex").slice(0, 16);
  const inFolder = (temporary: string) => join(ownFolderIn(temporary), name);
  const folder = inFolder(tmpdir());
  return Buffer.byteLength(socketPathIn(folder)) <= SOCKET_PATH_MOST_BYTES ? folder : inFolder("/tmp");
}

/**
 * This user's folder: the first of a few names that is free or private to it. Somebody else may have taken a name: for mischief,
 * or as the user of equal number in another user namespace (whoever is root in one, and root itself).
 */
function ownFolderIn(temporary: string): string {
  const user = process.getuid?.();
  const names = [...Array(NAMES).keys()].map((n) => `fenceline-${user ?? 0}${n === 0 ? "" : `-${n + 1}`}`);
  const paths = names.map((name) => join(temporary, name));
  // When none is, making the first one says what is wrong with it.
  return paths.find((path) => !existsSync(path) || isPrivate(path, [user])) ?? (paths[0] as string);
}

/**
 * Creates the folder if need be, and makes sure nobody else can put a socket there.
 *
 * @throws {FencelineError} `database_unreachable`
 */
export function makePrivateFolder(folder: string): void {
  for (const path of [dirname(folder), folder]) {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    refuseUnlessPrivate(path, [process.getuid?.()]);
  }
}

/**
 * Makes sure that a socket folder belongs to this user or to the owner of the directory it serves (root may look into
 * another user's), and to nobody else.
 *
 * @throws {FencelineError} `database_unreachable`
 */
export function refuseUntrustedFolder(folder: string, directory: string): void {
  refuseUnlessPrivate(folder, [process.getuid?.(), statSync(directory).uid]);
}

function refuseUnlessPrivate(path: string, owners: readonly (number | undefined)[]): void {
  if (isPrivate(path, owners)) return;
  throw new FencelineError(
    "database_unreachable",
    `The socket folder ${path} is not private: it must be a folder with mode 0700 that belongs to user ${owners.join(" or ")}. Remove it and open the ledger again.`,
  );
}

function isPrivate(path: string, owners: readonly (number | undefined)[]): boolean {
  // A holder that leaves removes its folder; where there is none, nobody can have put anything.
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return true;
  return stats.isDirectory() && owners.includes(stats.uid) && (stats.mode & 0o077) === 0;
}
