import type { Ledger, RevocationRequest, RevocationRole, RevocationStatus } from "@fenceline/ledger";
import { type Command, Option } from "commander";
import {
  type CommandContext,
  type CommonOptions,
  fencelineCommand,
  printAnswer,
  withContext,
} from "./command-context.js";
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
  readonly timeout: string;
}

/** `fenceline revoke`: takes a permission back; with `--wait` until nothing derived under it is left (P1–P5). */
export function revokeCommand(): Command {
  return withUriScope(
    fencelineCommand("revoke")
      .description("take a permission back; what it covers is hidden when this returns")
      .requiredOption("--subject <subject>", "whose permission: user:…, group:… or a reader")
      .addOption(
        new Option("--role <role>", "as whom the subject loses it")
          .choices(["reader", "audience", "both"])
          .default("both"),
      )
      .option("--source <name>", "of this source (default: every source)"),
  )
    .requiredOption("--reason <text>", "why; kept in the record")
    .option("--request-id <id>", "idempotency key: the same id again is the same revocation")
    .option("--by <who>", "who asked (default: the user that runs this)")
    .option("--wait", "wait until every derived entry is verified absent, and purge here what can be reached from here")
    .option("--timeout <seconds>", "with --wait: give up waiting after this long", "60")
    .action(async (options: RevokeOptions) => {
      await withContext(options, async (context) => {
        const given = await context.ledger.revoke(requestOf(options));
        const status = options.wait === true ? await purged(context, given, Number(options.timeout) * 1_000) : given;
        printAnswer(context.json, documentOf(status), () => describeRevocation(status));
        if (options.wait === true && status.state === "EFFECTIVE") process.exitCode = 1;
      });
    });
}

function requestOf(options: RevokeOptions): RevocationRequest {
  return {
    subject: options.subject,
    role: options.role,
    reason: options.reason,
    scope: uriScopeOf(options, { everything: true }),
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
  const { revocationId, requestId, state, effectiveAt, covered, stores, exports, nothingCovered } = status;
  return { revocationId, requestId, state, effectiveAt, covered, nothingCovered, stores, exports };
}

function describeRevocation(status: RevocationStatus): string[] {
  return [
    `revocation ${status.revocationId} (${status.requestId}): ${status.state}, effective since ${status.effectiveAt.toISOString()}`,
    `  ${status.subject} as ${status.role}, ${status.source ?? "every source"}, ${describeScope(status.scope)}`,
    status.nothingCovered
      ? "  it covers nothing that is known; it stands for what will be"
      : `  covers ${status.covered.resources} resources and ${status.covered.entries} entries`,
    ...status.stores.map((store) => {
      const outcome =
        store.remaining === 0
          ? `${store.claim}${store.absentAt === undefined ? "" : ` at ${store.absentAt.toISOString()}`}`
          : `${store.remaining} left${store.failure === undefined ? "" : `: ${store.failure}`}`;
      return `  ${store.store}: ${store.entries} entries, ${outcome}`;
    }),
    ...(status.exports > 0 ? [`  ${status.exports} exports it cannot reach`] : []),
  ];
}
