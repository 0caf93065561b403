/** `${NAME}` in a configuration value. */
const REFERENCE = /\$\{([A-Za-z_][A-Za-z0-9_]*)\}/g;

/** A reference to a variable that is not set, by the path of the field that holds it. */
export interface MissingVariable {
  readonly path: readonly string[];
  readonly variable: string;
}

/** `*` stands for every key of an object or every position of an array. */
const FIELDS: readonly (readonly string[])[] = [
  ["ledger"],
  ["ledgerListen"],
  ["queue"],
  ["mcpServers", "*", "url"],
  ["mcpServers", "*", "args", "*"],
  ["mcpServers", "*", "headers", "*"],
  ["mcpServers", "*", "env", "*"],
  ["mcpServers", "*", "auth", "*"],
  ["mcpServers", "*", "auth", "command", "*"],
  ["mcpServers", "*", "readers", "*", "headers", "*"],
  ["mcpServers", "*", "readers", "*", "env", "*"],
  ["mcpServers", "*", "readers", "*", "auth", "*"],
  ["mcpServers", "*", "readers", "*", "auth", "command", "*"],
  ["indexes", "*", "store", "address"],
];

/**
 * Replaces `${NAME}` by the environment's value in the fields that hold addresses and credentials, so that a configuration
 * file can be committed. Returns a copy, and the references that lead nowhere.
 */
export function resolveEnvironmentReferences(
  config: unknown,
  environment: Readonly<Record<string, string | undefined>>,
): { config: unknown; missing: MissingVariable[] } {
  const missing: MissingVariable[] = [];
  const resolve = (value: unknown, pattern: readonly string[], path: readonly string[]): unknown => {
    const [step, ...rest] = pattern;
    if (step !== undefined) {
      if (typeof value !== "object" || value === null) return value;
      const copy: Record<string, unknown> | unknown[] = Array.isArray(value) ? [...value] : { ...value };
      for (const key of step === "*" ? Object.keys(value) : [step]) {
        const at = copy as Record<string, unknown>;
        if (Object.hasOwn(at, key)) at[key] = resolve(at[key], rest, [...path, key]);
      }
      return copy;
    }
    if (typeof value !== "string") return value;
    return value.replace(REFERENCE, (reference, variable: string) => {
      const found = environment[variable];
      if (found === undefined) missing.push({ path, variable });
      return found ?? reference;
    });
  };
  return { config: FIELDS.reduce((resolved, pattern) => resolve(resolved, pattern, []), config), missing };
}
