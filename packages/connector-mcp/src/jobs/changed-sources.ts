/**
 * What a configuration says of sources that were read before: one that is gone from it, or leads elsewhere, is asked about. To take
 * another server's resources for newer versions of the old one's, or to drop what was read, is nobody's wish by default.
 */
import { createHash } from "node:crypto";
import type { Ledger, RegisteredSource } from "@fenceline/ledger";
import type { FencelineConfig, SourceConfig } from "../config/config-schema.js";
import { connectorError } from "../errors.js";

/** Answers to what is asked about, for one start: names of sources. */
export interface ConfirmedChanges {
  /** The same server at another place: what was read of it stays, and is read again. */
  readonly moved?: readonly string[];
  /** Gone for good: what was read of it stays and ages, and grants of the configuration are withdrawn. */
  readonly removed?: readonly string[];
}

/** Environment variables and headers that say how something runs or asks, not what is served. */
const INCIDENTAL =
  /^(PATH|HOME|USER|LOGNAME|SHELL|TERM|TZ|LANG|LC_.*|TMPDIR|TEMP|TMP|APPDATA|NODE_OPTIONS|user-agent|accept.*|traceparent)$/i;
/** By their names: what they hold is renewed, and leads to the same server. */
const CREDENTIALS = /TOKEN|SECRET|PASS|CREDENTIAL|AUTH|KEY|COOKIE|SESSION/i;

/**
 * Of what is reached: the URL with its headers; or the command with its arguments, folder and environment. Never of the credentials
 * it is reached with: those change, and may differ between readers.
 */
export function endpointDigest({ url, headers = {}, command, args = [], cwd, env = {} }: SourceConfig): Uint8Array {
  const told = url === undefined ? { cwd, env: telling(env) } : { headers: telling(headers) };
  const isTold = Object.values(told).some((value) => value !== undefined && value.length > 0);
  const place = [...(url === undefined ? [command, ...args] : [url]), ...(isTold ? [told] : [])];
  return createHash("sha256").update(JSON.stringify(place)).digest();
}

function telling(values: Readonly<Record<string, string>>): [name: string, value: string][] {
  return Object.entries(values)
    .filter(([name]) => !INCIDENTAL.test(name) && !CREDENTIALS.test(name))
    .sort(([one], [other]) => (one < other ? -1 : 1));
}

/**
 * Asks about sources of which something was read, and remembers what is confirmed. Nothing is changed where it throws.
 *
 * @throws {FencelineError} `source_moved`, `source_removed`
 */
export async function settleChangedSources(
  ledger: Ledger,
  { mcpServers }: Pick<FencelineConfig, "mcpServers">,
  confirmed: ConfirmedChanges,
): Promise<void> {
  // One without a digest was never of a configuration: a program registered it by itself.
  const known = (await ledger.registeredSources()).filter(({ endpointDigest }) => endpointDigest !== undefined);
  const moved = await living(
    ledger,
    known.filter((source) => isMoved(source, mcpServers[source.name])),
  );
  const unconfirmed = without(moved, confirmed.moved);
  if (unconfirmed.length > 0) throw movedError(unconfirmed);

  const gone = known.filter(({ name, retiredAt }) => retiredAt === undefined && !Object.hasOwn(mcpServers, name));
  const unasked = without(await living(ledger, gone), confirmed.removed);
  if (unasked.length > 0) throw removedError(unasked);
  for (const { name } of gone) await ledger.retireSource(name);
}

interface LivingSource {
  readonly name: string;
  readonly resources: number;
}

/** Those of which something is there to be asked about. */
async function living(ledger: Ledger, sources: readonly RegisteredSource[]): Promise<LivingSource[]> {
  const counted: LivingSource[] = [];
  for (const { name } of sources) counted.push({ name, resources: await ledger.livingResources(name) });
  return counted.filter(({ resources }) => resources > 0);
}

function isMoved(known: RegisteredSource, configured: SourceConfig | undefined): boolean {
  if (configured === undefined || known.endpointDigest === undefined) return false;
  return Buffer.compare(known.endpointDigest, endpointDigest(configured)) !== 0;
}

function without(sources: readonly LivingSource[], names: readonly string[] = []): LivingSource[] {
  return sources.filter(({ name }) => !names.includes(name));
}

function movedError(sources: readonly LivingSource[]) {
  const [first] = sources.map(({ name }) => name);
  return connectorError(
    "source_moved",
    `The configuration leads elsewhere than where ${told(sources)} came from. Nothing was changed; say which it is:\n` +
      `  the same server, at another place: run once with --moved ${first} (in code: confirm: { moved: ["${first}"] }); what was\n` +
      `    read stays, and is read again there\n` +
      `  another server: give it another name in mcpServers\n` +
      `  a mistake: put the former url, headers, command, args, cwd and env back`,
  );
}

function removedError(sources: readonly LivingSource[]) {
  const [first] = sources.map(({ name }) => name);
  return connectorError(
    "source_removed",
    `The configuration no longer names where ${told(sources)} came from. Nothing was changed; say what is to be:\n` +
      `  gone for good, and what was read stays as it is and ages: run once with --removed ${first}\n` +
      `    (in code: confirm: { removed: ["${first}"] }); grants of the configuration are withdrawn\n` +
      `  gone, and what was read with it: fenceline revoke --source ${first} --subject READER --role reader --reason …, then run again\n` +
      `  left out for now: put it back with "disabled": true\n` +
      `  a mistake: put it back`,
  );
}

function told(sources: readonly LivingSource[]): string {
  return sources.map(({ name, resources }) => `${resources} resources of ${name}`).join(", ");
}
