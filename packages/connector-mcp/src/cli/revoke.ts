import type { Ledger, PurgeWait, RevocationRequest, RevocationRole, RevocationStatus } from "@fenceline/ledger";
import { type Command, Option } from "commander";
import {
  type CommandContext,
  type CommonOptions,
  fencelineCommand,
  printAnswer,
  withContext,
} from "./command-context.js";
import { assertConceivable, registerNamedSource } from "./named-source.js";
import { parseName, parseSeconds, parseText } from "./option-values.js";
import { ProgressBar } from "./progress-bar.js";
import { describeScope, type UriScopeOptions, uriScopeOf, withUriScope } from "./uri-scope-options.js";

interface RevokeOptions extends CommonOptions, UriScopeOptions {
  readonly subject: string;
  readonly role: RevocationRole;
  readonly source?: string;
  readonly reason: string;
  readonly requestId?: string;
  readonly by?: string;
  readonly wait?: boolean;
  /** In milliseconds. */
  readonly timeout: number;
}

/** `fenceline revoke`: takes a permission back; with `--wait` until nothing derived under it is left (P1–P5). */
export function revokeCommand(): Command {
  return withUriScope(
    fencelineCommand("revoke", [
      'revoke --subject user:alice --prefix catalog://plans/enterprise --reason "left the team"',
      'revoke --subject svc:rag --role reader --source catalog --everything --reason "contract ended" --wait',
    ])
      .description("take a permission back; what it covers is hidden when this returns")
      .requiredOption("--subject <subject>", "whose permission: user:…, group:… or a reader", parseName)
      .addOption(
        new Option("--role <role>", "as whom the subject loses it")
          .choices(["reader", "audience", "both"])
          .default("both"),
      )
      .option("--source <name>", "of this source (default: every source)", parseName),
  )
    .requiredOption("--reason <text>", "why; kept in the record", parseText)
    .option("--request-id <id>", "idempotency key: the same id again is the same revocation", parseName)
    .option("--by <who>", "who asked (default: the user that runs this)", parseName)
    .option("--wait", "wait until every derived entry is verified absent, and purge here what can be reached from here")
    .addOption(
      new Option("--timeout <seconds>", "with --wait: give up waiting after this long")
        .argParser(parseSeconds)
        .default(60_000, "60"),
    )
    .action((options: RevokeOptions, command: Command) => {
      if (options.wait !== true && command.getOptionValueSource("timeout") !== "default") {
        command.error("error: option '--timeout <seconds>' says how long to --wait, which is not asked for");
      }
      return withContext(
        options,
        (context) => revoke(context, options),
        (config) => assertConceivable(config, options.source),
      );
    });
}

async function revoke(context: CommandContext, options: RevokeOptions): Promise<void> {
  await registerNamedSource(context, options.source);
  const given = await context.ledger.revoke(requestOf(options));
  const status = options.wait === true ? await purged(context, given, options.timeout) : given;
  printAnswer(context.json, documentOf(status), () => [
    ...describeRevocation(status),
    ...(status.state === "EFFECTIVE" ? describeRest(options.wait === true) : []),
  ]);
  if (options.wait === true && status.state === "EFFECTIVE") process.exitCode = 1;
}

function requestOf(options: RevokeOptions): RevocationRequest {
  return {
    subject: options.subject,
    role: options.role,
    reason: options.reason,
    scope: uriScopeOf(options),
    requestedBy: options.by ?? `cli:${process.env["USER"] ?? process.env["LOGNAME"] ?? "unknown"}`,
    ...(options.source !== undefined && { source: options.source }),
    ...(options.requestId !== undefined && { requestId: options.requestId }),
  };
}

/** Shares the purge with whatever workers run, and waits for its end. */
async function purged(
  { config, ledger, logger, progress }: CommandContext,
  given: RevocationStatus,
  timeoutMs: number,
): Promise<RevocationStatus> {
  const bar = progress ? new ProgressBar() : undefined;
  const { startWorkers } = await import("../jobs/worker-pool.js");
  const pool = await startWorkers({
    ledger,
    config,
    logger,
    mode: "purge_only",
    ...(bar && { onProgress: bar.update }),
  });
  try {
    return await untilComplete(ledger, given, timeoutMs);
  } finally {
    bar?.stop();
    await pool.close();
  }
}

async function untilComplete(ledger: Ledger, given: RevocationStatus, timeoutMs: number): Promise<RevocationStatus> {
  const end = performance.now() + timeoutMs;
  let status = given;
  while (status.state === "EFFECTIVE" && performance.now() < end) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    status = (await ledger.revocation(given.revocationId)) ?? status;
  }
  return status;
}

function documentOf(status: RevocationStatus) {
  const { revocationId, requestId, state, effectiveAt, stores, exports, nothingCovered } = status;
  const covered = isCounted(status) ? status.covered : { resources: null, entries: null };
  return { revocationId, requestId, state, effectiveAt, covered, nothingCovered, stores, exports };
}

/** What is covered is counted while it is marked, which begins when the revocation is in effect already. */
function isCounted({ state, nothingCovered, covered }: RevocationStatus): boolean {
  return state !== "EFFECTIVE" || nothingCovered || covered.resources > 0 || covered.entries > 0;
}

function describeRevocation(status: RevocationStatus): string[] {
  return [
    `revocation ${status.revocationId} (${status.requestId}): ${status.state}, effective since ${status.effectiveAt.toISOString()}`,
    `  ${status.subject} as ${status.role}, ${status.source ?? "every source"}, ${describeScope(status.scope)}`,
    describeCover(status),
    ...status.stores.map((store) => {
      const outcome =
        store.remaining === 0
          ? `${store.claim}${store.absentAt === undefined ? "" : ` at ${store.absentAt.toISOString()}`}`
          : `${store.remaining} left${store.failure === undefined ? "" : `: ${store.failure}`}${describeWaits(store.waits)}`;
      return `  ${store.store}: ${store.entries} entries, ${outcome}`;
    }),
    ...(status.exports > 0 ? [`  ${status.exports} exports it cannot reach`] : []),
  ];
}

/** What the entries that are left wait for (P5). */
const waitingFor: Readonly<Record<PurgeWait["because"], string>> = {
  writer: "a writer's lease runs",
  claimed: "being removed",
  failing: "tried again",
  due: "nobody has taken them; if that lasts, no process that runs reaches the store",
};

function describeWaits(waits: readonly PurgeWait[]): string {
  return waits
    .map(
      ({ because, entries, until }) => `; ${entries}: ${waitingFor[because]}${until ? `, ${until.toISOString()}` : ""}`,
    )
    .join("");
}

function describeCover(status: RevocationStatus): string {
  if (status.nothingCovered) return "  NOTHING_COVERED: nothing that is known; it stands for what will be";
  if (!isCounted(status)) return "  what it covers is hidden; how much that is, is not counted yet";
  return `  covers ${status.covered.resources} resources and ${status.covered.entries} entries`;
}

function describeRest(waited: boolean): string[] {
  if (!waited) return ["  workers remove what was derived; --wait waits for it and helps"];
  return ["gave up waiting: not everything is verified absent yet; it stays hidden, and workers go on"];
}
