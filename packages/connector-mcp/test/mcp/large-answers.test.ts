import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, test } from "vitest";
import { readResource } from "#src/mcp/fenced-read.js";
import { connectSource, type SourceConnection } from "#src/mcp/source-connection.js";

const SERVER = fileURLToPath(new URL("large-stdio-server.mjs", import.meta.url));
const MB = 1_000_000;
const LIMITS = { maxBodyBytes: 8 * MB };

const opened: SourceConnection[] = [];
afterEach(async () => {
  for (const connection of opened.splice(0)) await connection.close();
});

async function connected(options: Parameters<typeof connectSource>[1] = {}): Promise<SourceConnection> {
  const connection = await connectSource({ command: process.execPath, args: [SERVER] }, options);
  opened.push(connection);
  return connection;
}

/** Reads them all at once; what came of each, with the number of its bytes. */
async function read(connection: SourceConnection, uris: readonly string[]): Promise<unknown[]> {
  const outcomes = await Promise.all(uris.map((uri) => readResource(connection, uri, LIMITS)));
  return outcomes.map((seen) => ("bytes" in seen ? [seen.outcome, seen.bytes] : [seen.outcome]));
}

describe("over stdio", () => {
  test("one resource of 12 MB beside three small ones is refused by name, and the small ones arrive", async () => {
    const connection = await connected();
    expect(await read(connection, ["note://10", "note://12000000", "note://20", "note://30"])).toEqual([
      ["content", 10],
      ["too_large", 12 * MB],
      ["content", 20],
      ["content", 30],
    ]);
  });

  test("one of 12 MB arrives where the limit allows it", async () => {
    const connection = await connected();
    const seen = await readResource(connection, "note://12000000", { maxBodyBytes: 12 * MB });
    expect(seen).toMatchObject({ outcome: "content", bytes: 12 * MB });
  });

  test.each(["note://3000000", "note://3000000#last"])(
    "a message above the connection's limit fails its own read alone, and the connection lives on (%s)",
    async (large) => {
      const connection = await connected({ maxMessageBytes: MB });
      expect(await read(connection, ["note://10", large, "note://20"])).toEqual([
        ["content", 10],
        ["too_large", undefined],
        ["content", 20],
      ]);
      expect(await read(connection, ["note://30"])).toEqual([["content", 30]]);
    },
  );
});
