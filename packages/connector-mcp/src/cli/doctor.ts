import type { Command } from "commander";
import type { SourceExamination } from "../mcp/source-examination.js";
import { type CommonOptions, configOf, fencelineCommand, printAnswer, untilAskedToStop } from "./command-context.js";
import { readersToExamine } from "./named-source.js";
import { parseName } from "./option-values.js";

interface DoctorOptions extends CommonOptions {
  readonly reader?: string;
}

/** A source under one reader, and what was found of it. */
interface Examined extends SourceExamination {
  readonly ok: boolean;
  readonly source: string;
  readonly reader: string;
}

/** `fenceline doctor`: tries one source out, and says what to do about whatever is wrong. Opens no ledger. */
export function doctorCommand(): Command {
  return fencelineCommand("doctor", ["doctor catalog", "doctor catalog --reader svc:rag --json"])
    .description(
      "try one source out: connect, list a page, subscribe, read one resource; with what to do where it fails",
    )
    .argument("<source>", "its name under mcpServers", parseName)
    .option("--reader <name>", "only as this reader (default: as each)", parseName)
    .action(async (source: string, options: DoctorOptions) => {
      const readers = readersToExamine(await configOf(options), source, options.reader);
      const { examineSource } = await import("../mcp/source-examination.js");
      const stop = new AbortController();
      void untilAskedToStop().then(() => stop.abort());
      const examined: Examined[] = [];
      const { ResourceChoice } = await import("../mcp/resource-choice.js");
      for (const { name, reader, endpoint, choice, settings } of readers) {
        const { maxBodyBytes } = settings;
        const options = { maxBodyBytes, choice: new ResourceChoice(choice), signal: stop.signal };
        const found = await examineSource(endpoint, options);
        const ok = found.problems.every(({ severity }) => severity === "remark");
        examined.push({ ok, source: name, reader, ...found });
      }
      const ok = examined.every((one) => one.ok);
      printAnswer(options.json === true, { ok, readers: examined.map(documentOf) }, () => examined.flatMap(describe));
      if (!ok) process.exitCode = 1;
    });
}

/** What was not tried is `null`. */
function documentOf({ connection, list, delivery, read, ...rest }: Examined) {
  return {
    ...rest,
    connection: connection && { ...connection, server: connection.server ?? null },
    list: list ?? null,
    delivery: delivery && { ...delivery, polledBecause: delivery.polledBecause ?? null },
    read: read && { ...read, bytes: read.bytes ?? null, mimeType: read.mimeType ?? null },
  };
}

function describe({ ok, source, reader, endpoint, problems, ...found }: Examined): string[] {
  return [
    `${source} as ${reader}: ${endpoint}`,
    ...describeConnection(found.connection),
    ...describeList(found.list),
    ...found.templates.map((template) => `  template ${template}`),
    ...describeDelivery(found.delivery),
    ...describeRead(found.read),
    ...problems.flatMap(({ severity, code, message, advice }) => [
      `  ${severity === "fault" ? "✗" : "!"} ${message} (${code})`,
      `    ${advice}`,
    ]),
    ok ? "  it can be ingested" : "  it cannot be ingested as it is",
  ];
}

function describeConnection(connection: SourceExamination["connection"]): string[] {
  if (!connection) return [];
  const { ms, era, protocolVersion, server, capabilities, extensions } = connection;
  const offered = Object.entries(capabilities).flatMap(([name, has]) => (has === true ? [name] : []));
  return [
    `  connected in ${ms} ms: ${server ? `${server.name} ${server.version}` : "a server without a name"}`,
    `  ${era} era, protocol ${protocolVersion}`,
    `  offers: ${offered.join(", ") || "nothing about resources"}`,
    ...(extensions.length === 0 ? [] : [`  extensions: ${extensions.join(", ")}`]),
  ];
}

function describeList(list: SourceExamination["list"]): string[] {
  if (!list) return [];
  const chosen = list.chosen < list.entries ? `, ${list.chosen} of them chosen` : "";
  return [`  first page in ${list.ms} ms: ${list.entries} resources${chosen}${list.more ? ", more follow" : ""}`];
}

function describeDelivery(delivery: SourceExamination["delivery"]): string[] {
  if (!delivery) return [];
  const { ms, pushed, polled, polledBecause, listChanges } = delivery;
  const why = polledBecause === undefined ? "" : `: ${polledBecause}`;
  return [`  of these ${pushed} pushed, ${polled} polled${why}; changes of the list ${listChanges} (${ms} ms)`];
}

function describeRead(read: SourceExamination["read"]): string[] {
  if (read?.outcome !== "content") return [];
  return [`  read ${read.uri} in ${read.ms} ms: ${read.bytes} bytes, ${read.mimeType ?? "no MIME type"}`];
}
