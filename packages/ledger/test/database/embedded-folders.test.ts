import { existsSync } from "node:fs";
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

describeWhere(existsSync("/proc/self"), "no /proc", "a directory where none can be made", () => {
  test("is refused at once", async () => {
    const opening = openDatabase("file:/proc/nothing/here");
    await expect(opening).rejects.toMatchObject({ code: "database_unreachable" });
  });
});
