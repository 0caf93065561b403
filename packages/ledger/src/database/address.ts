import { resolve } from "node:path";
import { FencelineError } from "../errors.js";

export type Address = { kind: "embedded"; directory: string } | { kind: "postgres"; connectionString: string };

/**
 * Reads the address of a ledger: `file:DIR` or a PostgreSQL connection URI.
 *
 * @throws {FencelineError} `address_invalid`
 */
export function parseAddress(address: string): Address {
  if (/^postgres(ql)?:\/\//i.test(address)) {
    if (!URL.canParse(address)) throw invalid(withoutPassword(address));
    return { kind: "postgres", connectionString: address };
  }
  if (!address.startsWith("file:")) throw invalid(withoutPassword(address));
  // `file:///abs/dir` is what a URL would look like; everything else after `file:` is a path as the shell knows it.
  const path = address.slice("file:".length).replace(/^\/\/(?=\/)/, "");
  if (path === "" || path.startsWith("//") || path.includes("\0")) throw invalid(address);
  return { kind: "embedded", directory: resolve(path) };
}

/** The address as it may be shown: without a password, wherever in the URI it stands. */
export function withoutPassword(address: string): string {
  return address.replace(/(\/\/[^/?#@]*?):[^/?#]*@/, "$1:***@").replace(/([?&]password=)[^&#]*/gi, "$1***");
}

function invalid(address: string): FencelineError {
  return new FencelineError(
    "address_invalid",
    `The ledger address ${JSON.stringify(address)} is neither file:DIR nor postgres://…; for a first try use "file:.fenceline".`,
  );
}
