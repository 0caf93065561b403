import { parseArgs } from "node:util";
import { everythingStory } from "./everything-story.js";
import { priceStory } from "./price-story.js";
import { Story } from "./story.js";

const usage = `Usage: npm run demo -- [--server price-catalog|everything] [--json]

  --server   whose resources to ingest: the price catalogue of this example (default),
             or @modelcontextprotocol/server-everything, over stdio
  --json     print one JSON document: { "steps": [{ "name", "expected", "seen", "ok" }], "ok" };
             what else there is to say goes to standard error`;

const stories = { "price-catalog": priceStory, everything: everythingStory };

function isStory(name: string): name is keyof typeof stories {
  return Object.hasOwn(stories, name);
}

async function main(): Promise<number> {
  const options = parseOptions();
  if (options === undefined) return 2;
  if (options.help) {
    process.stdout.write(`${usage}\n`);
    return 0;
  }
  const forPeople = options.json ? process.stderr : process.stdout;
  const story = new Story((line) => forPeople.write(`${line}\n`));
  await stories[options.server](story, { progress: !options.json && process.stderr.isTTY === true });
  const failed = story.steps.filter((step) => !step.ok).length;
  story.say(
    failed === 0
      ? `\nAll ${story.steps.length} steps as expected.`
      : `\n${failed} of ${story.steps.length} steps not as expected.`,
  );
  if (options.json) process.stdout.write(`${JSON.stringify({ steps: story.steps, ok: story.ok }, null, 2)}\n`);
  return story.ok ? 0 : 1;
}

function parseOptions() {
  try {
    const { values } = parseArgs({
      options: {
        server: { type: "string", default: "price-catalog" },
        json: { type: "boolean", default: false },
        help: { type: "boolean", short: "h", default: false },
      },
    });
    const { server, json, help } = values;
    if (!isStory(server)) throw new TypeError(`there is no server ${server} to choose`);
    return { server, json, help };
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n\n${usage}\n`);
    return undefined;
  }
}

try {
  process.exitCode = await main();
} catch (error) {
  process.stderr.write(`The demo could not go on: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
