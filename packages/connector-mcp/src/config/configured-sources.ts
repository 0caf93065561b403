import type { ChoiceSettings } from "../mcp/resource-choice.js";
import type { FencelineConfig, SourceConfig } from "./config-schema.js";
import type { Settings } from "./settings.js";

/** Where a bearer token comes from. */
export type ConfiguredAuth = Defined<NonNullable<SourceConfig["auth"]>>;

/** How to reach a source under one reader; the shape that connecting takes. */
export type ConfiguredEndpoint = (
  | { command: string; args?: string[]; env?: Record<string, string>; cwd?: string }
  | { url: string; headers?: Record<string, string>; auth?: ConfiguredAuth }
) & {
  afterConnect?: { tool: string; arguments?: Record<string, unknown> }[];
  requestTimeoutMs: number;
};

/** One source under one reader: the unit that has a session, a catalogue and subscriptions. */
export interface ConfiguredSource {
  readonly name: string;
  readonly reader: string;
  readonly endpoint: ConfiguredEndpoint;
  /** What of it is taken. */
  readonly choice: ChoiceSettings;
  /** The general settings with the source's own laid over them. */
  readonly settings: Settings;
}

/** Every (source, reader) of a configuration, those of disabled sources left out. */
export function configuredSources(config: FencelineConfig): ConfiguredSource[] {
  return Object.entries(config.mcpServers)
    .filter(([, source]) => source.disabled !== true)
    .flatMap(([name, source]) => {
      const { scanBudgets, ...own } = definedOnly(source.settings ?? {});
      const settings = {
        ...config.settings,
        ...own,
        scanBudgets: { ...config.settings.scanBudgets, ...definedOnly(scanBudgets ?? {}) },
      };
      const choice = definedOnly(source.resources ?? {});
      const readers = source.readers ?? { [source.reader as string]: {} };
      return Object.entries(readers).map(([reader, credential]) => ({
        name,
        reader,
        settings,
        choice,
        endpoint: endpointOf(source, credential, settings.requestTimeoutMs),
      }));
    });
}

type Credential = NonNullable<SourceConfig["readers"]>[string];

function endpointOf(source: SourceConfig, credential: Credential, requestTimeoutMs: number): ConfiguredEndpoint {
  const rest = { requestTimeoutMs, ...(source.afterConnect && { afterConnect: source.afterConnect.map(definedOnly) }) };
  if (source.url !== undefined) {
    const auth = credential.auth ?? source.auth;
    const headers = { ...source.headers, ...credential.headers };
    return { url: source.url, headers, ...(auth && { auth: definedOnly(auth) as ConfiguredAuth }), ...rest };
  }
  return {
    command: source.command as string,
    env: { ...source.env, ...credential.env },
    ...(source.args && { args: source.args }),
    ...(source.cwd !== undefined && { cwd: source.cwd }),
    ...rest,
  };
}

/** Zod's optional fields may be present and `undefined`; ours may not. */
type Defined<T> = { [Key in keyof T]: Exclude<T[Key], undefined> };

function definedOnly<T extends object>(value: T): Defined<T> {
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== undefined)) as Defined<T>;
}
