import { createHash } from "node:crypto";
import type { Grant, Ledger } from "@fenceline/ledger";
import type { FencelineConfig } from "../config/config-schema.js";
import { type ConfiguredEndpoint, configuredSources } from "../config/configured-sources.js";

/**
 * Brings sources and configured grants of the ledger up to the configuration. A grant that left it is withdrawn, also with
 * its whole source (G1): a ledger has one configuration, which all of its pools share.
 */
export async function registerConfiguration(ledger: Ledger, config: FencelineConfig): Promise<void> {
  // A source that is disabled is not read; what may be seen of it is still what the configuration says.
  const sources = configuredSources({ ...config, mcpServers: enabled(config.mcpServers) });
  for (const { name, endpoint, settings } of sources) {
    await ledger.registerSource({ name, endpointDigest: digestOf(endpoint), stalenessMs: settings.stalenessMs });
  }
  const granted = await ledger.listGrants();
  const formerly = granted.filter(({ origin }) => origin === "config").map(({ source }) => source);
  await ledger.replaceConfiguredGrants(
    [...new Set([...sources.map(({ name }) => name), ...formerly])],
    config.grants.filter(({ source }) => sources.some(({ name }) => name === source)).map(grantOf),
  );
}

function enabled(servers: FencelineConfig["mcpServers"]): FencelineConfig["mcpServers"] {
  return Object.fromEntries(Object.entries(servers).map(([name, server]) => [name, { ...server, disabled: false }]));
}

function grantOf({ source, reader, audience, uri, prefix }: FencelineConfig["grants"][number]): Grant {
  const scope = uri !== undefined ? { uri } : prefix !== undefined ? { prefix } : ({ everything: true } as const);
  return { source, reader, audience, scope };
}

/** Of what is reached, never of the credentials it is reached with: those change and may differ between readers. */
function digestOf(endpoint: ConfiguredEndpoint): Uint8Array {
  const place = "url" in endpoint ? [endpoint.url] : [endpoint.command, ...(endpoint.args ?? [])];
  return createHash("sha256").update(JSON.stringify(place)).digest();
}
