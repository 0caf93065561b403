import type { Grant, Ledger } from "@fenceline/ledger";
import type { FencelineConfig } from "../config/config-schema.js";
import { configuredSources } from "../config/configured-sources.js";
import { type ConfirmedChanges, endpointDigest, settleChangedSources } from "./changed-sources.js";

/**
 * Brings sources and configured grants of the ledger up to the configuration. A grant that left it is withdrawn, also with
 * its whole source (G1): a ledger has one configuration, which all of its pools share.
 *
 * @throws {FencelineError} `source_moved`, `source_removed`
 */
export async function registerConfiguration(
  ledger: Ledger,
  config: FencelineConfig,
  confirmed: ConfirmedChanges = {},
): Promise<void> {
  await settleChangedSources(ledger, config, confirmed);
  // A source that is disabled is not read; what may be seen of it is still what the configuration says.
  const sources = configuredSources({ ...config, mcpServers: enabled(config.mcpServers) });
  for (const { name, settings } of sources) {
    const source = config.mcpServers[name];
    await ledger.registerSource({
      name,
      ...(source && { endpointDigest: endpointDigest(source) }),
      stalenessMs: settings.stalenessMs,
    });
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
