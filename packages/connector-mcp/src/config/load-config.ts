import { readFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import type { z } from "zod";
import { connectorError } from "../errors.js";
import { configSchema, type FencelineConfig, type FencelineConfigInput } from "./config-schema.js";
import { resolveEnvironmentReferences } from "./environment-references.js";
import { jsonFaultAt } from "./json-fault.js";

const DEFAULT_CONFIG_FILE = "fenceline.config.json";

/**
 * Reads a configuration file: JSON, with `${NAME}` replaced from the environment in addresses, headers, `args` and `env`.
 * Relative `file:` addresses mean the file's own folder, so that every command meets the same ledger wherever it is run.
 *
 * @throws {FencelineError} `config_missing`, `config_invalid` (names every wrong field; never a value)
 */
export async function loadConfig(
  file: string = DEFAULT_CONFIG_FILE,
  environment: Readonly<Record<string, string | undefined>> = process.env,
): Promise<FencelineConfig> {
  const { config, missing } = resolveEnvironmentReferences(await readJson(file), environment);
  const faults = missing.map(({ path, variable }) => `${path.join(".")}: environment variable ${variable} is not set`);
  const checked = check(config);
  if (!checked.success || faults.length > 0) throw configInvalid(file, [...faults, ...faultsOf(checked, config)]);
  return resolveFileAddresses(checked.data, dirname(resolve(file)));
}

/**
 * Checks a configuration written in code and fills in its defaults. There an index may name its own `Embeddings` and store.
 *
 * @throws {FencelineError} `config_invalid`
 */
export function defineConfig(config: FencelineConfigInput): FencelineConfig {
  const checked = check(config);
  if (!checked.success) throw configInvalid("the configuration", faultsOf(checked, config));
  return checked.data;
}

type Checked = z.ZodSafeParseResult<FencelineConfig>;

function check(config: unknown): Checked {
  return configSchema.safeParse(config);
}

async function readJson(file: string): Promise<unknown> {
  const text = await readText(file);
  try {
    return JSON.parse(text);
  } catch {
    const { line, column } = jsonFaultAt(text);
    throw configInvalid(file, [`not valid JSON: line ${line}, column ${column}`]);
  }
}

async function readText(file: string): Promise<string> {
  try {
    const text = await readFile(file, "utf8");
    return text.replace(/^\ufeff/, ""); // some editors begin a file with it
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === "EISDIR") throw configInvalid(file, ["it is a directory: name the file in it"]);
    if (code !== "ENOENT" && code !== "ENOTDIR") throw configInvalid(file, [`it cannot be read (${code})`]);
    throw connectorError(
      "config_missing",
      `There is no configuration at ${file}: write one, or name it with --config.`,
      { cause },
    );
  }
}

function configInvalid(what: string, faults: readonly string[]) {
  const lines = faults.map((fault) => `  ${fault}`).join("\n");
  return connectorError("config_invalid", `${what} cannot be used:\n${lines}`);
}

function faultsOf(checked: Checked, config: unknown): string[] {
  return checked.success ? [] : checked.error.issues.flatMap((issue) => describe(issue, config));
}

/** One line per wrong field: its path, what is expected, and the kind (never the value) of what is there. */
function describe(issue: z.core.$ZodIssue, config: unknown): string[] {
  const at = issue.path.length === 0 ? "the file" : issue.path.join(".");
  switch (issue.code) {
    case "unrecognized_keys":
      return issue.keys.map((key) => `${[...issue.path, key].join(".")}: no such field`);
    case "invalid_type":
      return [`${at}: expected ${issue.expected}, got ${kindAt(config, issue.path)}`];
    case "custom":
    case "invalid_union":
      return [`${at}: expected ${issue.message}, got ${kindAt(config, issue.path)}`];
    case "invalid_key":
      return [`${at}: not a usable name (${issue.issues.map((inner) => inner.message).join(", ")})`];
    default:
      return [`${at}: ${issue.message}`];
  }
}

function kindAt(config: unknown, path: readonly PropertyKey[]): string {
  let value = config;
  for (const key of path) value = (value as Record<PropertyKey, unknown> | null | undefined)?.[key];
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

function resolveFileAddresses(config: FencelineConfig, folder: string): FencelineConfig {
  const absolute = (address: string): string =>
    address.startsWith("file:") ? `file:${resolve(folder, address.slice("file:".length))}` : address;
  const indexes = Object.entries(config.indexes).map(([name, index]) => {
    const { store } = index;
    if (typeof store === "string" || !("address" in store)) return [name, index] as const;
    return [name, { ...index, store: { ...store, address: absolute(store.address) } }] as const;
  });
  return { ...config, ledger: absolute(config.ledger), indexes: Object.fromEntries(indexes) };
}
