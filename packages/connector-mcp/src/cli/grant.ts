import type { Grant } from "@fenceline/ledger";
import { Command } from "commander";
import { type CommonOptions, fencelineCommand, printAnswer, withContext } from "./command-context.js";
import { table } from "./table.js";
import { describeScope, type UriScopeOptions, uriScopeOf, withUriScope } from "./uri-scope-options.js";

interface GrantOptions extends CommonOptions, UriScopeOptions {
  readonly source: string;
  readonly reader: string;
  readonly audience: string;
}

interface ListOptions extends CommonOptions {
  readonly source?: string;
  readonly audience?: string;
}

/** `fenceline grant add|remove|list`: who may see what a reader read (G1). */
export function grantCommand(): Command {
  return new Command("grant")
    .description("say who may see what a reader read")
    .addCommand(
      changeCommand("add", "let an audience see what a reader read").action((options: GrantOptions) =>
        withContext(options, async ({ ledger, json }) => {
          const grant = grantOf(options);
          await ledger.grant(grant, "cli");
          printAnswer(json, { granted: true, grant }, () => [`granted: ${describeGrant(grant)}`]);
        }),
      ),
    )
    .addCommand(
      changeCommand("remove", "take such a grant back").action((options: GrantOptions) =>
        withContext(options, async ({ ledger, json }) => {
          const grant = grantOf(options);
          const withdrawn = await ledger.withdrawGrant(grant, "cli");
          printAnswer(json, { withdrawn, grant }, () => [
            withdrawn
              ? `withdrawn: ${describeGrant(grant)}`
              : "no such grant was given by the command line; one of the configuration goes when it leaves the file",
          ]);
          if (!withdrawn) process.exitCode = 1;
        }),
      ),
    )
    .addCommand(
      fencelineCommand("list")
        .description("show the grants")
        .option("--source <name>", "of this source only")
        .option("--audience <subject>", "to this audience only")
        .action((options: ListOptions) =>
          withContext(options, async ({ ledger, json }) => {
            const grants = await ledger.listGrants({
              ...(options.source !== undefined && { source: options.source }),
              ...(options.audience !== undefined && { audience: options.audience }),
            });
            printAnswer(json, { grants }, () =>
              table(
                ["SOURCE", "READER", "AUDIENCE", "SCOPE", "FROM"],
                grants.map((grant) => [
                  grant.source,
                  grant.reader,
                  grant.audience,
                  describeScope(grant.scope),
                  grant.origin,
                ]),
              ),
            );
          }),
        ),
    );
}

function changeCommand(name: string, description: string): Command {
  return withUriScope(
    fencelineCommand(name)
      .description(description)
      .requiredOption("--source <name>", "the source")
      .requiredOption("--reader <subject>", "the reader whose copies are meant")
      .requiredOption("--audience <subject>", "who may see them: user:… or group:…"),
  );
}

function grantOf(options: GrantOptions): Grant {
  const { source, reader, audience } = options;
  return { source, reader, audience, scope: uriScopeOf(options) };
}

function describeGrant(grant: Grant): string {
  return `${grant.audience} sees ${describeScope(grant.scope)} of ${grant.source} as read by ${grant.reader}`;
}
