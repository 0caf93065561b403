import { existsSync } from "node:fs";
import { FencelineError } from "@fenceline/ledger";
import type { FencelineConfig } from "../config/config-schema.js";
import { type ConfiguredSource, configuredSources } from "../config/configured-sources.js";
import { connectorError } from "../errors.js";
import type { CommandContext } from "./command-context.js";

/**
 * A source or reader that is not configured may be known to the ledger from before, but not to one that is not there yet.
 *
 * @throws {FencelineError} `source_unknown`, `reader_unknown`
 */
export function assertConceivable(config: FencelineConfig, source: string | undefined, reader?: string): void {
  if (source === undefined || hasLedger(config)) return;
  if (!isConfigured(config, source)) throw unknownSource(config, source);
  if (reader !== undefined && !readersOf(config, source).includes(reader)) throw unknownReader(config, source, reader);
}

/**
 * Makes a configured source known to the ledger, which otherwise hears of it with the first `ingest`: permissions may be
 * given and taken before. Of one that left the configuration the ledger knows whether it ever had it.
 */
export async function registerNamedSource({ config, ledger }: CommandContext, source: string | undefined) {
  if (source !== undefined && isConfigured(config, source)) await ledger.registerSource({ name: source });
}

/**
 * A source that was asked for by name and of which nothing was found.
 *
 * @throws {FencelineError} `source_unknown`
 */
export async function assertSourceKnown({ config, ledger }: CommandContext, source: string | undefined) {
  if (source === undefined || isConfigured(config, source)) return;
  const { sources } = await ledger.status();
  if (!sources.some(({ name }) => name === source)) throw unknownSource(config, source);
}

/**
 * A grant for a reader that never reads would show nobody anything, for ever.
 *
 * @throws {FencelineError} `reader_unknown`
 */
export async function assertReaderKnown({ config, ledger }: CommandContext, source: string, reader: string) {
  if (readersOf(config, source).includes(reader)) return;
  const { sources } = await ledger.status();
  if (sources.some((known) => known.name === source && known.reader === reader)) return;
  throw unknownReader(config, source, reader);
}

/**
 * A configured source under each of its readers, or under the one that was named; also where it is disabled.
 *
 * @throws {FencelineError} `source_unknown`, `reader_unknown`
 */
export function readersToExamine(config: FencelineConfig, source: string, reader?: string): ConfiguredSource[] {
  const configured = isConfigured(config, source) ? config.mcpServers[source] : undefined;
  if (!configured) throw unknownSource(config, source);
  if (reader !== undefined && !readersOf(config, source).includes(reader)) throw unknownReader(config, source, reader);
  const enabled = { ...config, mcpServers: { [source]: { ...configured, disabled: false } } };
  return configuredSources(enabled).filter((one) => reader === undefined || one.reader === reader);
}

function isConfigured(config: FencelineConfig, source: string): boolean {
  return Object.hasOwn(config.mcpServers, source);
}

function hasLedger({ ledger }: FencelineConfig): boolean {
  return !ledger.startsWith("file:") || existsSync(ledger.slice("file:".length));
}

function readersOf(config: FencelineConfig, source: string): readonly string[] {
  const configured = isConfigured(config, source) ? config.mcpServers[source] : undefined;
  if (configured?.reader !== undefined) return [configured.reader];
  return Object.keys(configured?.readers ?? {});
}

function unknownSource({ mcpServers }: FencelineConfig, source: string): FencelineError {
  const names = Object.keys(mcpServers).join(", ") || "none";
  return new FencelineError(
    "source_unknown",
    `There is no source ${JSON.stringify(source)}; configured are: ${names}.`,
  );
}

function unknownReader(config: FencelineConfig, source: string, reader: string): FencelineError {
  const readers = readersOf(config, source).join(", ") || "none";
  return connectorError(
    "reader_unknown",
    `Nothing of ${source} is read as ${JSON.stringify(reader)}; its readers are: ${readers}.`,
  );
}
