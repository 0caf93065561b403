import { connectorError } from "../errors.js";
import type { FencelineConfig } from "./config-schema.js";

/**
 * The index that is meant: the one that was named, or the only one.
 *
 * @throws {FencelineError} `index_unknown`
 */
export function chosenIndex({ indexes }: FencelineConfig, named: string | undefined): string {
  const names = Object.keys(indexes);
  const name = named ?? (names.length === 1 ? names[0] : undefined);
  if (name !== undefined && Object.hasOwn(indexes, name)) return name;
  const asked = name === undefined ? "No index was named" : `There is no index ${name}`;
  throw connectorError("index_unknown", `${asked}; configured are: ${names.join(", ") || "none"}.`);
}
