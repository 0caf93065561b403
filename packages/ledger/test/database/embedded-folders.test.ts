import { existsSync, rmSync } from "node:fs";
import { describeWhere } from "@fenceline/test-services";
import { expect, test } from "vitest";
import { openDatabase } from "#src/database/database.js";
import { temporaryDirectory } from "./database-process.js";

test("a ledger that nobody has open any more leaves no socket folder behind", async () => {
  const directory = temporaryDirectory("deep/er");
  const database = await openDatabase(`file:${directory}`);
  const folder = database.connectionOptions.host as string;
  expect(existsSync(folder)).toBe(true);
  await database.close();
  expect(existsSync(folder)).toBe(false);
  const again = await openDatabase(`file:${directory}`);
  expect(await again.query("select 1 as one")).toEqual([{ one: 1 }]);
  await again.close();
}, 120_000);

test("a directory deleted under its holder is named, and soon nothing is acknowledged any more", async () => {
  const directory = temporaryDirectory();
  const database = await openDatabase(`file:${directory}`, { connectTimeoutMs: 30_000 });
  await database.query("create table kept (n int)");
  rmSync(directory, { recursive: true });
  const lost = {
    code: "directory_lost",
    message: expect.stringContaining(directory),
    cause: expect.anything(),
  };
  await expect(database.query("select * from pg_stats")).rejects.toMatchObject(lost);
  // What the engine has in memory it goes on answering, until the thread looks at its lock.
  let refused: unknown;
  while (refused === undefined) {
    refused = await database.query("insert into kept values (1)").then(
      () => undefined,
      (error: unknown) => error,
    );
  }
  expect(refused).toMatchObject(lost);
  await database.close();
  expect(existsSync(directory)).toBe(false);
}, 60_000);

describeWhere(existsSync("/proc/self"), "no /proc", "a directory where none can be made", () => {
  test("is refused at once", async () => {
    const opening = openDatabase("file:/proc/nothing/here");
    await expect(opening).rejects.toMatchObject({ code: "database_unreachable" });
  });
});
