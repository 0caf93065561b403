import { createRequire } from "node:module";
import { type House, openHouse } from "./house.js";
import { type Story, until } from "./story.js";

const QUESTION = "what does the echo tool do?";
const READER = "svc:rag";
const CAROL = ["user:carol"];

/** The same line on a server nobody here wrote: `@modelcontextprotocol/server-everything`, over stdio. */
export async function everythingStory(story: Story, options: { readonly progress: boolean }): Promise<void> {
  const house = await openHouse(
    {
      mcpServers: {
        everything: {
          command: process.execPath,
          args: [
            createRequire(import.meta.url).resolve("@modelcontextprotocol/server-everything/dist/index.js"),
            "stdio",
          ],
          reader: READER,
          afterConnect: [{ tool: "toggle-subscriber-updates", arguments: {} }],
        },
      },
      grants: [{ source: "everything", reader: READER, audience: "user:carol", everything: true }],
      indexes: { everything: {} },
    },
    options,
  );
  try {
    story.say(
      `server-everything runs over stdio; the ledger is in ${house.directory} and stays there.\n` +
        `What the workers log is in ${house.log}.\n`,
    );
    await tell(story, house);
  } finally {
    await house.close();
  }
}

async function tell(story: Story, { ledger, pool, index }: House): Promise<void> {
  const retriever = index.asRetriever({ k: 4, freshness: "mark" });
  const ask = () => retriever.invoke(QUESTION, { configurable: { asker: CAROL } });

  await story.step(
    "its documents are discovered, subscribed, read and indexed",
    { era: "legacy", scan: "SNAPSHOT_UNPROVEN", resources: 7, pushed: 7, problems: 0 },
    async () => {
      const [source] = pool.stats().sources;
      return {
        era: source?.era,
        scan: source?.scan?.verdict,
        resources: source?.scan?.resources,
        pushed: source?.pushed,
        problems: source?.problems.length,
      };
    },
  );

  await story.step(`carol asks "${QUESTION}"`, { answered: true }, async () => {
    const [first] = await ask();
    story.say(`  ${String(first?.metadata["uri"])}: ${firstLineAbout(first?.pageContent, "`echo`")}`);
    return { answered: first?.pageContent.includes("`echo`") ?? false };
  });

  await story.step(
    "the server announces updates that change nothing: verifiedAt moves, no version is added, nothing is indexed again",
    { moved: true, versionsAdded: 0, entriesWritten: 0 },
    async () => {
      const uri = String((await ask())[0]?.metadata["uri"]);
      const before = await footprint(uri);
      const after = await until(
        () => footprint(uri),
        (seen) => seen.verifiedAt > before.verifiedAt && seen.unchanged > before.unchanged,
        20_000,
      );
      return {
        moved: after.verifiedAt > before.verifiedAt,
        versionsAdded: after.versions - before.versions,
        entriesWritten: after.written - before.written,
      };
    },
  );

  async function footprint(uri: string) {
    const document = (await ask()).find(({ metadata }) => metadata["uri"] === uri);
    const [source] = pool.stats().sources;
    return {
      verifiedAt: String(document?.metadata["verifiedAt"]),
      versions: (await ledger.trace({ uri })).versions.length,
      written: source?.entries.written ?? 0,
      unchanged: source?.reads.unchanged ?? 0,
    };
  }

  await story.step(
    "the reader's permission is revoked: every derived entry is purged and verified absent",
    { state: "COMPLETE", remaining: 0, inStore: 0, answers: 0 },
    async () => {
      const given = await ledger.revoke({ source: "everything", subject: READER, reason: "the trial ended" });
      const status = await until(
        async () => (await ledger.revocation(given.revocationId)) ?? given,
        (seen) => seen.state !== "EFFECTIVE",
        30_000,
      );
      return {
        state: status.state,
        remaining: status.stores.reduce((sum, store) => sum + store.remaining, 0),
        inStore: (await index.compare()).present,
        answers: (await ask()).length,
      };
    },
  );
}

function firstLineAbout(text: string | undefined, word: string): string {
  return text?.split("\n").find((line) => line.includes(word)) ?? "no answer";
}
