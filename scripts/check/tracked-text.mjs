/** What must stand in no tracked file: paths of a developer's machine, hosts of a registry, and anything like a secret. */

import { execFileSync } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { root } from "../set-up.mjs";

/** The patterns are written so that none of them matches itself. */
const forbidden = {
  "a machine's path": /(?<![\w.\-~/])\/(?:(?:root|work|farm|Users)\/[\w.]|home\/\w|tmp\/bash)/,
  "a registry's host": /\b(?:registry|npm|deb)\.[\w-]+\.(?:org|com|net|dev)\b|\bnpmjs[.](?:org|com)|\btarball: /,
  "a private key": /-----BEGIN [A-Z ]*PRIVATE[ ]KEY/,
  "an access token":
    /\b(?:AKIA[0-9A-Z]{16}|gh[opsur]_\w{36}|github_pat_\w{22}|npm_\w{36}|sk-[\w-]{24}|xox[abprs]-[\w-]{10}|glpat-[\w-]{20}|eyJ[\w-]{16,}\.eyJ)/,
  "a registry's credential": /_auth(?:Token)?\s*=\s*\w/,
};

/** @returns {string[]} One line per finding. */
export function trackedText() {
  const files = execFileSync("git", ["-c", "safe.directory=*", "ls-files", "-z"], { cwd: root, encoding: "utf8" });
  return files
    .split("\0")
    .filter((file) => file !== "" && statSync(join(root, file), { throwIfNoEntry: false })?.isFile())
    .flatMap((file) => findings(file, readFileSync(join(root, file), "utf8")));
}

/**
 * @param {string} file
 * @param {string} text
 */
function findings(file, text) {
  return text
    .split("\n")
    .flatMap((line, index) =>
      Object.entries(forbidden).flatMap(([what, pattern]) =>
        pattern.test(line) ? [`${file}:${index + 1}: ${what}: ${line.trim().slice(0, 100)}`] : [],
      ),
    );
}
