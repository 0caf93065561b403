import type { Grant } from "@fenceline/ledger";
import { Command } from "commander";
import { type CommonOptions, fencelineCommand, printAnswer, withContext } from "./command-context.js";
import { assertConceivable, assertReaderKnown, assertSourceKnown, registerNamedSource } from "./named-source.js";
import { parseName } from "./option-values.js";
import { table } from "./table.js";
import { describeScope, requiredUriScope, type UriScopeOptions, withUriScope } from "./uri-scope-options.js";

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
    .addCommand(addCommand())
    .addCommand(removeCommand())
    .addCommand(listCommand());
}

function addCommand(): Command {
  return changeCommand("add", "let an audience see what a reader read").action(
    (options: GrantOptions, command: Command) => {
      const grant = grantOf(options, command);
      return withContext(
        options,
        async (context) => {
          await assertReaderKnown(context, grant.source, grant.reader);
          await registerNamedSource(context, grant.source);
          await context.ledger.grant(grant, "cli");
          printAnswer(context.json, { granted: true, grant }, () => [`granted: ${describeGrant(grant)}`]);
        },
        (config) => assertConceivable(config, grant.source, grant.reader),
      );
    },
  );
}

function removeCommand(): Command {
  return changeCommand("remove", "take such a grant back").action((options: GrantOptions, command: Command) => {
    const grant = grantOf(options, command);
    return withContext(
      options,
      async (context) => {
        await registerNamedSource(context, grant.source);
        const withdrawn = await context.ledger.withdrawGrant(grant, "cli");
        printAnswer(context.json, { withdrawn, grant }, () => [
          withdrawn
            ? `withdrawn: ${describeGrant(grant)}`
            : "no such grant was given by the command line; one of the configuration goes when it leaves the file",
        ]);
        if (!withdrawn) process.exitCode = 1;
      },
      (config) => assertConceivable(config, grant.source),
    );
  });
}

function listCommand(): Command {
  return fencelineCommand("list", ["grant list", "grant list --audience user:bob --json"])
    .description("show the grants; those of the configuration count from the next ingest or start of a worker")
    .option("--source <name>", "of this source only", parseName)
    .option("--audience <subject>", "to this audience only", parseName)
    .action((options: ListOptions) =>
      withContext(
        options,
        async (context) => {
          const { ledger, json } = context;
          const grants = await ledger.listGrants({
            ...(options.source !== undefined && { source: options.source }),
            ...(options.audience !== undefined && { audience: options.audience }),
          });
          if (grants.length === 0) await assertSourceKnown(context, options.source);
          printAnswer(json, { grants }, () =>
            table(
              ["SOURCE", "READER", "AUDIENCE", "SCOPE", "FROM"],
              grants.map(({ source, reader, audience, scope, origin }) => [
                source,
                reader,
                audience,
                describeScope(scope),
                origin,
              ]),
            ),
          );
        },
        (config) => assertConceivable(config, options.source),
      ),
    );
}

function changeCommand(name: "add" | "remove", description: string): Command {
  const common = `grant ${name} --source catalog --reader svc:rag`;
  const command = fencelineCommand(name, [
    `${common} --audience group:sales --prefix catalog://plans`,
    `${common} --audience user:bob --uri catalog://plans/basic`,
  ]);
  return withUriScope(
    command
      .description(description)
      .requiredOption("--source <name>", "the source", parseName)
      .requiredOption("--reader <subject>", "the reader whose copies are meant", parseName)
      .requiredOption("--audience <subject>", "who may see them: user:… or group:…", parseName),
  );
}

function grantOf({ source, reader, audience }: GrantOptions, command: Command): Grant {
  return { source, reader, audience, scope: requiredUriScope(command) };
}

function describeGrant(grant: Grant): string {
  return `${grant.audience} sees ${describeScope(grant.scope)} of ${grant.source} as read by ${grant.reader}`;
}
